//! NATS that is away at the start, too old, or denies a subject.
//!
//! Promise (Cluster): NATS that is away at the start, too old, or denies a subject is named by the readiness probe
//! and in the log of gateways and engines; away, it is tried again.

use super::super::conversation::SETTINGS;
use super::super::nats_server;
use super::super::processes::Cluster;
use super::Logged;
use crate::support::{Folder, millrace, stdout};
use std::io::{Read, Write};
use std::net::TcpListener;

#[test]
fn nats_that_is_away_at_the_start_is_named_and_tried_again() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("said-away");
    let mut cluster = Cluster::new(program, "said-away-nats", "", &SETTINGS);
    cluster.nats.kill();
    let launch = |role| Logged::launch(&cluster, (&folder, role), role, &[], &[]);
    let both = [launch("gateway"), launch("engine")];
    let address = format!("127.0.0.1:{}", cluster.nats.port);
    for process in &both {
        process.wait_refused(&["NATS is not reachable", &address]);
    }
    cluster.nats.start();
    both.iter().for_each(Logged::wait_ready);
}

/// A server of version 2.8.4, as far as a client sees at the start. Runs as long as the test.
fn serve_old_version(listener: &TcpListener) {
    const INFO: &str = "INFO {\"server_id\":\"A\",\"server_name\":\"old\",\"version\":\"2.8.4\",\"max_payload\":1048576,\"headers\":true}\r\n";
    for socket in listener.incoming() {
        let mut socket = socket.unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            let _ = socket.write_all(INFO.as_bytes());
            while let Ok(1..) = socket.read(&mut buffer) {
                let _ = socket.write_all(b"PONG\r\n");
            }
        });
    }
}

#[test]
fn old_nats_server_is_refused_with_both_versions() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || serve_old_version(&listener));
    let folder = Folder::new("said-old");
    for role in ["gateway", "engine"] {
        let process = Logged::launch_at(&url, (&folder, role), role, &SETTINGS);
        process.wait_refused(&[
            "NATS server \"old\"",
            "2.8.4",
            "at least 2.9.10 is required",
        ]);
    }
}

/// The rights in `deploy`, without one of each role's.
#[test]
fn missing_rights_are_named_with_their_subject() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/nats/rights.conf");
    let mut rights = std::fs::read_to_string(path).unwrap();
    let folder = Folder::new("said-rights");
    for role in ["gateway", "engine"] {
        let made = millrace(&["nkey", &folder.0.join(role).display().to_string()]);
        let variable = format!("${}_NKEY", role.to_uppercase());
        rights = rights.replace(&variable, stdout(&made).trim());
    }
    for (all, some) in [
        (
            "deny: [\"mr.millrace.g.*.t\"]",
            "deny: [\"mr.millrace.g.*.t\", \"mr.millrace.hb\"]",
        ),
        (
            "allow: [\"mr.millrace.hb\", \"mr.millrace.e.>\"]",
            "allow: [\"mr.millrace.hb\", \"mr.millrace.e.*.run\"]",
        ),
    ] {
        assert!(rights.contains(all), "{all}");
        rights = rights.replace(all, some);
    }
    let mut cluster = Cluster::new(program, "said-rights-nats", &rights, &SETTINGS);
    cluster.nkeys = Some(folder.0.clone());
    let launch = |role| {
        let name = format!("{role}-log");
        Logged::launch(&cluster, (&folder, &name), role, &[], &[])
    };
    let (gateway, engine) = (launch("gateway"), launch("engine"));
    gateway.wait_refused(&["may not publish to \"mr.millrace.hb\""]);
    let subjects = format!("subscribe to \"mr.millrace.e.{}.", engine.id(""));
    engine.wait_refused(&["may not", &subjects]);
    let denied = engine.serving.get("/v1/cluster");
    for part in ["ctl", "read"] {
        assert!(denied.contains(&format!(".{part}\\\"")), "{part}: {denied}");
    }
}
