//! What is wrong is said at once: by the readiness probe, in the log and in the metrics.

mod differences;
mod hostile;
mod nats;
mod tls;
mod two_clusters;

use super::processes::{Cluster, json};
use crate::support::{Folder, Serving};
use serde_json::Value;
use testing::wait::wait_until;

/// A process whose log is a file.
pub(super) struct Logged {
    pub(super) serving: Serving,
    pub(super) log: LogFile,
}

/// The log of a process.
pub(super) struct LogFile(std::path::PathBuf);

impl LogFile {
    pub(super) fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }

    fn create((folder, name): (&Folder, &str)) -> (Self, std::fs::File) {
        let path = folder.0.join(format!("{name}.log"));
        let file = std::fs::File::create(&path).unwrap();
        (Self(path), file)
    }
}

impl Logged {
    pub(super) fn launch(
        cluster: &Cluster,
        place: (&Folder, &str),
        role: &str,
        vars: &[(&str, &str)],
        more: &[&str],
    ) -> Self {
        let (log, file) = LogFile::create(place);
        let serving = cluster.launch_to(role, vars, more, file);
        Self { serving, log }
    }

    /// A process at this NATS server.
    pub(super) fn launch_at(
        url: &str,
        place: (&Folder, &str),
        role: &str,
        vars: &[(&str, &str)],
    ) -> Self {
        let (log, file) = LogFile::create(place);
        let args = [
            "serve",
            "--bind",
            "127.0.0.1:0",
            "--role",
            role,
            "--nats",
            url,
        ];
        let serving = Serving::early(&args, vars, file);
        Self { serving, log }
    }

    /// Status and body of the readiness probe.
    pub(super) fn readiness(&self) -> (String, Value) {
        let reply = self.serving.get("/health/readiness");
        (reply[9..12].to_owned(), json(&reply))
    }

    /// Waits until the probe says 503 with a reason that has these parts, and the log has the last of them.
    pub(super) fn wait_refused(&self, parts: &[&str]) {
        let last = parts.last().expect("a part");
        wait_until(&format!("not ready: {last}"), || {
            let (status, body) = self.readiness();
            let reason = body["reason"].as_str().unwrap_or_default();
            status == "503" && parts.iter().all(|part| reason.contains(part))
        });
        wait_until(last, || self.log.text().contains(last));
    }

    /// Waits until the probe says 200, and a warning has these parts, which are in the log, too.
    pub(super) fn wait_warned(&self, parts: &[&str]) {
        let has_all = |text: &str| parts.iter().all(|part| text.contains(part));
        wait_until(&format!("a warning: {parts:?}"), || {
            let (status, body) = self.readiness();
            let warnings = body["warnings"].as_array().cloned().unwrap_or_default();
            let mut warnings = warnings.iter().filter_map(Value::as_str);
            status == "200" && warnings.any(has_all)
        });
        wait_until("a line of the log", || self.log.text().lines().any(has_all));
    }

    pub(super) fn wait_ready(&self) {
        wait_until("ready", || self.readiness().0 == "200");
    }

    /// Id of the process.
    pub(super) fn id(&self, key: &str) -> String {
        let report = json(&self.serving.send("GET", "/v1/cluster", key, ""));
        report["instance"].as_str().unwrap().to_owned()
    }

    /// Whether the metrics have a line, with a key of scope `admin`.
    pub(super) fn has_metric(&self, key: &str, line: &str) -> bool {
        let metrics = self.serving.send("GET", "/metrics", key, "");
        metrics.lines().any(|found| found == line)
    }
}
