//! A cluster of real processes on this machine: a NATS server, a gateway, engines.

use super::nats_server::NatsServer;
use crate::support::{Folder, Serving};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use testing::wait::wait_until;

/// The setting of the gateways' secret.
const SECRET_FILE: &str = "MILLRACE_CLUSTER_SECRET_FILE";
/// Name of the file.
const SECRET: &str = "secret";

/// The processes. Engines have numbers in the order of their start.
pub(crate) struct Cluster {
    pub(crate) nats: NatsServer,
    settings: Vec<(&'static str, &'static str)>,
    pub(crate) engines: Vec<Option<Serving>>,
    /// Folder with the nkeys `gateway` and `engine`, if the NATS server asks for one.
    pub(crate) nkeys: Option<PathBuf>,
    /// With the secret of the gateways.
    secret: Folder,
    /// Whether gateways that are started now get it.
    pub(crate) gives_secret: bool,
}

impl Cluster {
    /// A NATS server with this configuration beside its address; no other process.
    pub(crate) fn new(
        program: PathBuf,
        name: &str,
        nats: &str,
        settings: &[(&'static str, &'static str)],
    ) -> Self {
        let mut nats = NatsServer::new(program, name, nats);
        nats.start();
        let secret = Folder::new(&format!("{name}-secret"));
        std::fs::write(secret.0.join(SECRET), "0123456789".repeat(4)).unwrap();
        Self {
            secret,
            gives_secret: true,
            nats,
            settings: settings.to_vec(),
            engines: Vec::new(),
            nkeys: None,
        }
    }

    /// Starts processes of this role at the same time, and waits until they are ready.
    pub(crate) fn start_engines(&mut self, count: usize) {
        let engines: Vec<_> = (0..count).map(|_| self.launch("engine")).collect();
        for mut engine in engines {
            let line = engine.line();
            assert!(line.contains(" serves "), "{line:?}");
            self.engines.push(Some(engine));
        }
    }

    /// Starts an engine with this model, and waits until it is ready.
    pub(crate) fn start_engine_of(&mut self, model: &str) {
        self.start_engine_with(&[model]);
    }

    /// Starts an engine with further arguments, and waits until it is ready.
    pub(crate) fn start_engine_with(&mut self, args: &[&str]) {
        let mut engine = self.launch_model("engine", &[], args);
        let line = engine.line();
        assert!(line.contains(" serves "), "{line:?}");
        self.engines.push(Some(engine));
    }

    /// Starts a gateway, and waits until it sees an engine.
    pub(crate) fn start_gateway(&self) -> Serving {
        let mut gateway = self.launch("gateway");
        let line = gateway.line();
        assert!(line.contains(" serves "), "{line:?}");
        gateway
    }

    /// Starts a gateway with further arguments, and waits until it sees an engine.
    pub(crate) fn start_gateway_with(&self, args: &[&str]) -> Serving {
        let mut gateway = self.launch_model("gateway", &[], args);
        let line = gateway.line();
        assert!(line.contains(" serves "), "{line:?}");
        gateway
    }

    /// Starts a gateway with a journal in this folder, and waits until it sees an engine.
    pub(crate) fn start_durable_gateway(&self, folder: &Path) -> Serving {
        let journal = folder.join("journal").display().to_string();
        let vars = [("MILLRACE_JOURNAL_DIRECTORY", journal.as_str())];
        let mut gateway = self.launch_with("gateway", &vars);
        let line = gateway.line();
        assert!(line.contains(" serves "), "{line:?}");
        gateway
    }

    /// Starts a process that may not become ready.
    pub(crate) fn launch(&self, role: &str) -> Serving {
        self.launch_with(role, &[])
    }

    /// Starts a process with further variables.
    pub(crate) fn launch_with(&self, role: &str, further: &[(&str, &str)]) -> Serving {
        self.launch_model(role, further, &[])
    }

    /// Starts a process with further variables and arguments.
    pub(crate) fn launch_model(
        &self,
        role: &str,
        further: &[(&str, &str)],
        more: &[&str],
    ) -> Serving {
        self.launch_to(role, further, more, Stdio::inherit())
    }

    /// Starts a process that logs to this place.
    pub(crate) fn launch_to(
        &self,
        role: &str,
        further: &[(&str, &str)],
        more: &[&str],
        log: impl Into<Stdio>,
    ) -> Serving {
        let url = self.nats.url();
        let args = [
            "serve",
            "--bind",
            "127.0.0.1:0",
            "--role",
            role,
            "--nats",
            &url,
        ];
        let args = [&args, more].concat();
        let file = self.nkeys.as_ref().map(|folder| folder.join(role));
        let file = file.map(|file| file.display().to_string());
        let mut vars: Vec<(&str, &str)> = self.settings.clone();
        vars.extend(further);
        if let Some(file) = &file {
            vars.push(("MILLRACE_CLUSTER_NKEY_FILE", file));
        }
        let secret = self.secret.0.join(SECRET).display().to_string();
        if role != "engine" && self.gives_secret {
            vars.push((SECRET_FILE, &secret));
        }
        Serving::early(&args, &vars, log)
    }

    pub(crate) fn engine(&self, number: usize) -> &Serving {
        self.engines[number].as_ref().expect("an engine")
    }

    /// Ends an engine as `kill -9` does.
    pub(crate) fn kill_engine(&mut self, number: usize) {
        drop(self.engines[number].take()); // the drop kills and waits
    }
}

/// Waits until a gateway knows so many engines that take requests.
pub(crate) fn wait_for_engines(gateway: &Serving, count: usize) {
    wait_until("the gateway sees the engines", || {
        let report = json(&gateway.get("/v1/cluster"));
        let instances = report["instances"].as_array().cloned().unwrap_or_default();
        let is_alive = |i: &&Value| {
            i["role"] == "engine" && i["state"] == "alive" && i["models"][0]["load"].is_object()
        };
        instances.iter().filter(is_alive).count() == count
    });
}

/// The body of a response.
pub(crate) fn json(reply: &str) -> Value {
    let body = reply.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {reply}"))
}

/// `127.0.0.1:port`.
pub(crate) fn address(serving: &Serving) -> String {
    serving.url().trim_start_matches("http://").to_owned()
}
