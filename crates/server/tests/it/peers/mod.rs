//! Two gateways of a cluster that hear each other's heartbeats over a real NATS server: lists, look-ups, feed and metrics of
//! both. Skipped where there is no `nats-server`.

mod lists;
mod lookups;
mod views;

use crate::nats::{Nats, start_nats};
use crate::support::Rig;
use crate::support::named::{fake, kept};
use crate::support::owners::{call_as, owners_keys};
use crate::support::wait_until;
use cluster::config::NatsConfig;
use cluster::instances::MembershipConfig;
use cluster::messages::{Heartbeat, Role};
use cluster::names::{ClusterName, InstanceId};
use cluster::node::{ClusterNode, NodeConfig};
use cluster::placement::PlacementPolicy;
use cluster::secret::ClusterSecret;
use serde_json::{Value, json};
use server::Server;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Reads of one feed at most, until what is waited for.
const EVENTS_MAX: usize = 400;

/// A gateway for the callers `one`, `two` and `admin`.
struct Gateway {
    /// `None`: silent over HTTP, while the heartbeats go on.
    rig: Option<Rig>,
    id: String,
    node: Arc<ClusterNode>,
    /// Of the heartbeats.
    _runtime: tokio::runtime::Runtime,
}

/// Two gateways that know each other.
struct Pair {
    first: Gateway,
    second: Gateway,
    _nats: Nats,
}

fn start_pair() -> Option<Pair> {
    let nats = start_nats()?;
    let (first, second) = (start_gateway(&nats, 1), start_gateway(&nats, 2));
    wait_until("the gateways hear each other", || {
        let others = |gateway: &Gateway| gateway.node.membership().instances().len();
        (others(&first), others(&second)) == (1, 1)
    });
    Some(Pair {
        first,
        second,
        _nats: nats,
    })
}

fn start_gateway(nats: &Nats, number: u64) -> Gateway {
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
    let id = InstanceId(number);
    let nats = NatsConfig {
        servers: vec![format!("nats://127.0.0.1:{}", nats.port)],
        connection_name: format!("gateway {number}"),
        ..NatsConfig::default()
    };
    let started = Arc::<Mutex<Option<Arc<ClusterNode>>>>::default();
    let prepare = {
        let (started, handle) = (Arc::clone(&started), runtime.handle().clone());
        move |server: Server| {
            let http = server.local_addr().to_string();
            let describe = move || Heartbeat {
                http: Some(http.clone()),
                ..Heartbeat::new(id, Role::All)
            };
            let config = NodeConfig {
                engine_wait: Duration::from_secs(60),
                nats,
                membership: MembershipConfig {
                    name: ClusterName::new("test").unwrap(),
                    id,
                    heartbeat: Duration::from_millis(50),
                    secret: Some(ClusterSecret::of("of the gateways")),
                },
                role: Role::All,
                placement: PlacementPolicy::default(),
                describe: Box::new(describe),
            };
            let node = std::thread::spawn(move || handle.block_on(ClusterNode::start(config)));
            let node = node.join().unwrap().unwrap();
            *started.lock().unwrap() = Some(Arc::clone(&node));
            server.with_cluster(node)
        }
    };
    Rig::set_next_server(prepare);
    let rig = Rig::behind(fake(), kept(), owners_keys());
    rig.gate.open();
    let node = started.lock().unwrap().take().unwrap();
    Gateway {
        rig: Some(rig),
        id: id.to_string(),
        node,
        _runtime: runtime,
    }
}

impl Gateway {
    fn rig(&self) -> &Rig {
        self.rig.as_ref().expect("the server runs")
    }

    /// The status of a request, and the response as JSON.
    fn ask(&self, owner: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let reply = call_as(self.rig(), owner, method, path, body);
        let json = serde_json::from_str(&reply.body).unwrap_or(Value::Null);
        (reply.head.status, json)
    }

    /// Sends a `GET` request.
    fn show(&self, owner: &str, path: &str) -> (u16, Value) {
        self.ask(owner, "GET", path, &Value::Null)
    }

    /// Runs a job to its end; returns the id of the stream.
    fn run_job(&self, owner: &str, name: Option<&str>) -> String {
        let mut body = json!({"prompt": "hi", "max_tokens": 4, "ignore_eos": true});
        if let Some(name) = name {
            body["job_id"] = name.into();
        }
        let (status, job) = self.ask(owner, "POST", "/v1/jobs", &body);
        assert_eq!(status, 202, "{job}");
        let path = format!("/v1/jobs/{}", job["job_id"].as_str().unwrap());
        let mut id = String::new();
        wait_until("the end of the job", || {
            let job = self.show(owner, &path).1;
            id = job["stream_id"].as_str().unwrap_or_default().to_owned();
            job["state"] == "ended"
        });
        id
    }
}
