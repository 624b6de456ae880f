//! A NATS server, engines and a gateway, ended with this value.

use std::io::{self, BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Of an engine, so that several have room for the prefixes of some conversations only.
const KV_MIB: &str = "320";
const START_ATTEMPTS: u32 = 200;

const SETTINGS: [(&str, &str); 5] = [
    ("MILLRACE_MODEL_THREADS", "1"),
    ("MILLRACE_MODEL_KV_MIB", KV_MIB),
    ("MILLRACE_MODEL_CONTEXT", "2048"),
    ("MILLRACE_JOURNAL_DIRECTORY", ""),
    ("MILLRACE_LOG_FILTER", "error"),
];

/// The processes; the gateway is the last.
pub(crate) struct Cluster {
    children: Vec<Child>,
    gateway: String,
    model: PathBuf,
}

impl Cluster {
    /// New processes on a model of this preset, with the gateway's placement policy.
    pub(crate) fn start(policy: &str, engines: usize) -> io::Result<Self> {
        let model = std::env::temp_dir().join(format!("placement-{}.gguf", std::process::id()));
        let made = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .arg("synth")
            .arg(&model)
            .args(["--preset", "qwen3-0.6b"])
            .stdout(Stdio::null())
            .status()?;
        let mut cluster = Self {
            children: Vec::new(),
            gateway: String::new(),
            model,
        };
        if !made.success() {
            return Err(io::Error::other("no model was made"));
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut nats = Command::new("nats-server");
        nats.args(["-a", "127.0.0.1", "-p", &port.to_string()])
            .env("PATH", search_path());
        cluster.children.push(nats.stderr(Stdio::null()).spawn()?);
        let mut attempts = 0..START_ATTEMPTS;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            attempts
                .next()
                .ok_or_else(|| io::Error::other("nats-server does not listen"))?;
            std::thread::park_timeout(Duration::from_millis(20));
        }
        let url = format!("nats://127.0.0.1:{port}");
        for _ in 0..engines {
            cluster.serve("engine", &url, policy)?;
        }
        cluster.gateway = cluster.serve("gateway", &url, policy)?;
        Ok(cluster)
    }

    /// `HOST:PORT` of the gateway.
    pub(crate) fn gateway(&self) -> String {
        self.gateway.clone()
    }

    /// Starts a process and waits until it serves; returns its address.
    fn serve(&mut self, role: &str, url: &str, policy: &str) -> io::Result<String> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .arg("serve")
            .arg(&self.model)
            .args(["--bind", "127.0.0.1:0", "--role", role, "--nats", url])
            .envs(SETTINGS)
            .env("MILLRACE_CLUSTER_PLACEMENT", policy)
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take();
        self.children.push(child);
        let mut lines = BufReader::new(out.ok_or_else(|| io::Error::other("no output"))?);
        let mut line = String::new();
        while !line.contains(" serves ") {
            line.clear();
            if lines.read_line(&mut line)? == 0 {
                return Err(io::Error::other(format!(
                    "the {role} ended before it served"
                )));
            }
        }
        let address = line.trim().rsplit("http://").next().unwrap_or_default();
        Ok(address.to_owned())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(&self.model);
    }
}

/// Debian's package has the program in `/usr/sbin`, which not every user's `PATH` has.
fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/usr/local/sbin")
}
