//! The binary on a synthetic model, and what its process costs.
#![allow(dead_code, unreachable_pub, reason = "each program uses its part")]

use crate::load::client::Client;
use crate::load::process::Process;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A server of its own, ended with this value.
pub struct Serving {
    child: Child,
    pub addr: SocketAddr,
    pub process: Process,
    model: PathBuf,
}

impl Serving {
    /// Serves the preset; `LOAD_BINARY` names another binary than the one that was just built.
    pub fn start(preset: &str, settings: &[(&str, &str)]) -> io::Result<Self> {
        Self::shaped(&["--preset", preset], settings)
    }

    /// The same of a model that `millrace synth` makes from these arguments.
    pub fn shaped(shape: &[&str], settings: &[(&str, &str)]) -> io::Result<Self> {
        let built = env!("CARGO_BIN_EXE_millrace").to_owned();
        let binary = std::env::var("LOAD_BINARY").unwrap_or(built);
        let model = std::env::temp_dir().join(format!("millrace-{}.gguf", std::process::id()));
        let made = Command::new(&binary)
            .arg("synth")
            .arg(&model)
            .args(shape)
            .stdout(Stdio::null())
            .status()?;
        if !made.success() {
            return Err(io::Error::other("no model was made"));
        }
        let mut child = Command::new(&binary)
            .arg("serve")
            .arg(&model)
            .args(["--bind", "127.0.0.1:0"])
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let out = child
            .stdout
            .take()
            .ok_or_else(|| io::Error::other("no output"))?;
        // It says that it listens, and then that it serves.
        let mut lines = BufReader::new(out);
        while !line.contains(" serves ") {
            line.clear();
            if lines.read_line(&mut line)? == 0 {
                return Err(io::Error::other("it left before it served"));
            }
        }
        let addr = line.trim().rsplit("http://").next().unwrap_or_default();
        Ok(Self {
            addr: addr.parse().map_err(io::Error::other)?,
            process: Process(child.id().to_string()),
            child,
            model,
        })
    }

    /// The value of a metric.
    pub async fn metric(&self, name: &str) -> io::Result<f64> {
        let text = Client::connect(self.addr).await?.get("/metrics").await?;
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.ok_or_else(|| io::Error::other(format!("no metric {name}")))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.model);
    }
}
