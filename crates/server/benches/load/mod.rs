//! What programs that load a server share: a client, what the kernel knows of a process, figures.
#![allow(dead_code, unreachable_pub, reason = "each program uses its part")]

pub mod client;
pub mod figures;
pub mod paced;
pub mod process;

use std::io;
use std::time::Instant;
use tokio::runtime::{Builder, Runtime};

/// The clients' runtime: one thread, which is not the server's.
pub fn client_runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("client")
        .enable_all()
        .build()
}

/// Now.
#[expect(clippy::disallowed_methods, reason = "a program that measures time")]
pub fn now() -> Instant {
    Instant::now()
}

/// The number after `--name` on the command line, or this one.
pub fn argument(name: &str, default: f64) -> f64 {
    let mut args = std::env::args();
    args.find(|arg| arg == name)
        .and_then(|_| args.next()?.parse().ok())
        .unwrap_or(default)
}
