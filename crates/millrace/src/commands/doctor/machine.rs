//! What the kernel says of this machine, read from files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Entries of a folder of `/sys` that are read.
const ENTRIES_MAX: usize = 8192;

/// The kernel's files under a root, which is `/` but for tests.
pub(super) struct Machine {
    root: PathBuf,
}

/// Memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) total: u64,
    pub(super) available: u64,
}

impl Machine {
    /// The machine that this process runs on.
    pub(super) fn this() -> Self {
        Self::at(Path::new("/"))
    }

    pub(super) fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// Memory of the machine or, where smaller, of the process's control group.
    pub(super) fn memory(&self) -> Option<Memory> {
        let all = self.text("proc/meminfo")?;
        let bytes = |name: &str| {
            let line = all.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
        };
        let machine = Memory {
            total: bytes("MemTotal:")?,
            available: bytes("MemAvailable:")?,
        };
        let number = |path| self.text(path)?.trim().parse::<u64>().ok();
        let Some(limit) = number("sys/fs/cgroup/memory.max").filter(|max| *max < machine.total)
        else {
            return Some(machine);
        };
        let used = number("sys/fs/cgroup/memory.current").unwrap_or(0);
        Some(Memory {
            total: limit,
            available: machine.available.min(limit.saturating_sub(used)),
        })
    }

    /// Number of processor cores: hardware threads of one core count once. `None` where the kernel does not say.
    pub(super) fn cores(&self) -> Option<usize> {
        let siblings =
            |cpu: PathBuf| std::fs::read_to_string(cpu.join("topology/thread_siblings_list")).ok();
        let cpus = self.numbered("sys/devices/system/cpu", "cpu");
        let cores: BTreeSet<String> = cpus.into_iter().filter_map(siblings).collect();
        (!cores.is_empty()).then_some(cores.len())
    }

    /// Number of memory nodes (NUMA).
    pub(super) fn memory_nodes(&self) -> usize {
        self.numbered("sys/devices/system/node", "node").len()
    }

    /// The first processor's frequency governor.
    pub(super) fn governor(&self) -> Option<String> {
        let governor = self.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")?;
        Some(governor.trim().to_owned())
    }

    /// The mode of transparent huge pages: the word in brackets.
    pub(super) fn huge_pages(&self) -> Option<String> {
        let modes = self.text("sys/kernel/mm/transparent_hugepage/enabled")?;
        let (_, rest) = modes.split_once('[')?;
        Some(rest.split(']').next()?.to_owned())
    }

    /// How many files this process may open; `None`: unlimited or unknown.
    pub(super) fn open_files_max(&self) -> Option<u64> {
        let limits = self.text("proc/self/limits")?;
        let line = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max open files"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// Runnable threads of the last minute.
    pub(super) fn load(&self) -> Option<f64> {
        let load = self.text("proc/loadavg")?;
        load.split_whitespace().next()?.parse().ok()
    }

    fn text(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }

    /// Folders called `name` and a number.
    fn numbered(&self, folder: &str, name: &str) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.root.join(folder)) else {
            return Vec::new();
        };
        let is_numbered = |path: &PathBuf| {
            let file = path.file_name().and_then(|file| file.to_str());
            let number = file.and_then(|file| file.strip_prefix(name));
            number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        };
        let paths = entries
            .take(ENTRIES_MAX)
            .flatten()
            .map(|entry| entry.path());
        paths.filter(is_numbered).collect()
    }
}
