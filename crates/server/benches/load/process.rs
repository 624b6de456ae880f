//! What the kernel knows of a process (Linux).

use std::fs;
use std::time::Duration;

/// A process by its id, or `self`.
pub struct Process(pub String);

impl Process {
    /// This one.
    pub fn own() -> Self {
        Self("self".to_owned())
    }

    /// Time on processors of the threads whose names begin so, those that have ended left out.
    pub fn cpu(&self, thread: &str) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.0));
        let spent = |task: fs::DirEntry| {
            let name = fs::read_to_string(task.path().join("comm")).ok()?;
            let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
            let ns = stat.split(' ').next()?.parse().ok()?;
            name.starts_with(thread).then(|| Duration::from_nanos(ns))
        };
        tasks
            .into_iter()
            .flatten()
            .filter_map(|task| spent(task.ok()?))
            .sum()
    }

    /// Threads.
    pub fn threads(&self) -> usize {
        fs::read_dir(format!("/proc/{}/task", self.0)).map_or(0, Iterator::count)
    }

    /// Resident bytes.
    pub fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or(0) << 10
    }
}
