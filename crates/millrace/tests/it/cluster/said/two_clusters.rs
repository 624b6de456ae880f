//! Two clusters that use one name at one NATS.
//!
//! Promise (Cluster): two clusters under one name are named at each instance, and the gateway that does not belong to
//! the records is not ready; a wiped store is not another cluster; a gateway without a past joins only with a key of
//! the cluster.
//! Also held by `cluster/src/records/cluster_identity.rs`.

use super::super::gateway_killed::{HEARTBEAT, jet_stream};
use super::super::nats_server;
use super::super::processes::{Cluster, json};
use super::Logged;
use super::differences::make_keys;
use crate::kill::SETTINGS;
use crate::support::Folder;
use serde_json::Value;
use testing::wait::wait_until;

const FIRST: &str = "00000000000000aa";
const SECOND: &str = "00000000000000bb";

/// Gateways and an engine over a NATS server with JetStream.
struct Scene {
    folder: Folder,
    cluster: Cluster,
}

impl Scene {
    fn start(program: std::path::PathBuf, name: &str) -> Self {
        let folder = Folder::new(name);
        let settings = [&SETTINGS[..], &[HEARTBEAT, ("MILLRACE_MODEL_THREADS", "1")]];
        let (lines, name) = (jet_stream(&folder), format!("{name}-nats"));
        let cluster = Cluster::new(program, &name, &lines, &settings.concat());
        Self { folder, cluster }
    }

    /// A gateway whose journal belongs to a cluster, or to none yet.
    fn gateway(&self, name: &str, cluster: Option<&str>, keys: &str) -> Logged {
        let journal = self.folder.0.join(name);
        std::fs::create_dir(&journal).unwrap();
        if let Some(id) = cluster {
            std::fs::write(journal.join("cluster"), format!("millrace {id}\n")).unwrap();
        }
        let journal = journal.display().to_string();
        let vars = [
            ("MILLRACE_JOURNAL_DIRECTORY", journal.as_str()),
            ("MILLRACE_KEYS_FILE", keys),
        ];
        Logged::launch(&self.cluster, (&self.folder, name), "gateway", &vars, &[])
    }

    fn remembered(&self, name: &str) -> String {
        let file = self.folder.0.join(name).join("cluster");
        std::fs::read_to_string(file).unwrap_or_default()
    }
}

/// What a gateway says of its cluster.
fn report(gateway: &Logged, key: &str) -> Value {
    json(&gateway.serving.send("GET", "/v1/cluster", key, ""))
}

fn wait_stored(gateway: &Logged, key: &str, cluster: &str) {
    wait_until("records are stored, as those of a cluster", || {
        let report = report(gateway, key);
        report["records"]["stored"] == true && report["id"] == cluster
    });
}

#[test]
fn two_clusters_under_one_name_are_told_at_each_instance() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let mut scene = Scene::start(program, "said-two");
    let keys = make_keys(&scene.folder, "keys");
    let engine = Logged::launch(&scene.cluster, (&scene.folder, "e"), "engine", &[], &[]);
    let owner = scene.gateway("owner", Some(FIRST), &keys.0);
    wait_stored(&owner, &keys.1, FIRST);
    // The key file of both is the same: the journals tell them apart.
    let stray = scene.gateway("stray", Some(SECOND), &keys.0);
    stray.wait_refused(&["two clusters", FIRST, SECOND, "cluster.name"]);
    for process in [&owner, &engine] {
        process.wait_warned(&["2 clusters use the name \"millrace\"", FIRST, SECOND]);
    }
    assert!(owner.has_metric(&keys.1, "millrace_cluster_differences{kind=\"cluster\"} 1"));
    let stored = &report(&stray, &keys.1)["records"]["stored"];
    assert_eq!(*stored, false, "no records in the store of another cluster");

    // The store is wiped: the cluster that owned the name goes on with the name, and is ready.
    scene.cluster.nats.kill();
    std::fs::remove_dir_all(scene.folder.0.join("nats")).unwrap();
    scene.cluster.nats.start();
    wait_until("the connection is back", || owner.readiness().0 == "200");
    wait_stored(&owner, &keys.1, FIRST);
    stray.wait_refused(&["two clusters", FIRST, SECOND]);
    assert!(stray.serving.terminate().success());
    wait_until("one cluster is left", || {
        owner.readiness().1["warnings"].is_null()
    });
    assert!(scene.remembered("owner").contains(FIRST));
    assert!(owner.serving.terminate().success());
}

#[test]
fn gateway_without_a_past_joins_only_with_a_key_of_the_cluster() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let scene = Scene::start(program, "said-join");
    let [alice, bob] = ["alice", "bob"].map(|name| make_keys(&scene.folder, name));
    let engine = Logged::launch(&scene.cluster, (&scene.folder, "e"), "engine", &[], &[]);
    let owner = scene.gateway("owner", Some(FIRST), &alice.0);
    wait_stored(&owner, &alice.1, FIRST);
    let friend = scene.gateway("friend", None, &alice.0);
    let stranger = scene.gateway("stranger", None, &bob.0);
    stranger.wait_refused(&["two clusters", FIRST, "API key"]);
    let own = report(&stranger, &bob.1)["id"].clone();
    let own = own.as_str().expect("an id for heartbeats").to_owned();
    assert_ne!(own, FIRST);
    for process in [&owner, &engine] {
        process.wait_warned(&["2 clusters use the name \"millrace\"", FIRST, &own]);
    }
    wait_stored(&friend, &alice.1, FIRST);
    assert_eq!(scene.remembered("stranger"), "", "joined nothing");
    assert_eq!(scene.remembered("friend"), format!("millrace {FIRST}\n"));

    // With a key of the cluster beside its own, the gateway joins.
    let [old, new] = [&bob.0, &alice.0].map(|file| std::fs::read_to_string(file).unwrap());
    let (_, entry) = new.split_once("keys:\n").expect("a list of keys");
    std::fs::write(&bob.0, old + &entry.replace("root", "alice")).unwrap();
    stranger.serving.signal("HUP");
    stranger.wait_ready();
    wait_stored(&stranger, &bob.1, FIRST);
}
