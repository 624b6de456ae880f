//! Findings about the processor and the memory, from files in which the kernel describes this machine.

use super::Finding;
use crate::config::Settings;
use crate::loading::{bytes_needed, kernel_isa};
use crate::model_lookup::find_start_model;
use crate::terminal_text::bytes;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

/// Share of the processors that other work may use before it is a finding.
const BUSY_SHARE: f64 = 0.5;

/// All findings that bear on the speed of the model.
pub(super) fn findings(machine: &Machine, settings: &Settings) -> Vec<Finding> {
    let processors = available_parallelism().map_or(1, usize::from);
    let mut found = vec![
        instruction_set(settings),
        threads(machine, settings, processors),
        model_memory(machine, settings),
    ];
    found.extend(huge_pages(machine));
    found.extend(memory_nodes(machine));
    found.extend(governor(machine));
    found.extend(other_work(machine, processors));
    found
}

fn instruction_set(settings: &Settings) -> Finding {
    const SUBJECT: &str = "instruction set";
    let isa = match kernel_isa(settings.model.deterministic) {
        Ok(isa) => isa,
        Err(why) => {
            return Finding::good(SUBJECT, "not usable").wrong(why);
        }
    };
    let fastest = kernels::Isa::fastest().name();
    let found = Finding::good(SUBJECT, isa.name());
    match isa.name() {
        name if name != fastest => found.better(format!(
            "this processor also has {fastest}: MILLRACE_ISA or model.deterministic keep it from being used"
        )),
        "scalar" => {
            found.better("this processor has neither AVX2 nor NEON: answers are many times slower")
        }
        "neon" => found.better(
            "this processor has no dot products of bytes (Armv8.2): prompts are several times slower",
        ),
        _ => found,
    }
}

pub(super) fn threads(machine: &Machine, settings: &Settings, processors: usize) -> Finding {
    let threads = settings.model.threads.unwrap_or(processors);
    let cores = machine.cores().unwrap_or(processors);
    let found = Finding::good(
        "threads",
        format!(
            "{threads} compute threads on {processors} usable processors, {cores} cores in all"
        ),
    );
    if threads > processors {
        return found.better(format!(
            "threads wait for each other where there are more than processors: --threads {processors}"
        ));
    }
    if threads > cores {
        found.better(format!(
            "two threads share a core: compare `millrace bench model` with --threads {cores}"
        ))
    } else {
        found
    }
}

fn model_memory(machine: &Machine, settings: &Settings) -> Finding {
    let Some(memory) = machine.memory() else {
        return Finding::good("memory", "unknown: the kernel does not say");
    };
    let source = match find_start_model(settings) {
        Ok(start) => start.source,
        Err(why) => return Finding::good("model", "cannot be used").wrong(why),
    };
    match bytes_needed(&source, settings) {
        Err(why) => Finding::good("model", "cannot be used").wrong(why),
        Ok(needed) => memory_for(memory, &source.name, needed),
    }
}

/// The finding about a model that needs so many bytes with a full KV cache.
pub(super) fn memory_for(memory: Memory, name: &str, needed: u64) -> Finding {
    let (total, available) = (bytes(memory.total), bytes(memory.available));
    let found = Finding::good(
        "memory",
        format!(
            "{available} of {total} available; {name} needs {} with a full KV cache",
            bytes(needed)
        ),
    );
    if needed > memory.total {
        return found.wrong("a smaller quantization, a smaller KV cache (--kv-mib, --kv-type q8_0) or another machine");
    }
    if needed > memory.available {
        found.better("end other programs, or take a smaller KV cache (--kv-mib, --kv-type q8_0)")
    } else {
        found
    }
}

pub(super) fn huge_pages(machine: &Machine) -> Option<Finding> {
    let mode = machine.huge_pages()?;
    let found = Finding::good("huge pages", format!("transparent, {mode}"));
    Some(match mode.as_str() {
        "never" => found.better(
            "weights are read faster from them: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        _ => found,
    })
}

pub(super) fn memory_nodes(machine: &Machine) -> Option<Finding> {
    let nodes = machine.memory_nodes();
    let found = Finding::good("memory nodes", nodes);
    match nodes {
        0 | 1 => None,
        _ => Some(found.better(
            "threads and weights are not bound to nodes: one process for each node \
             (numactl --cpunodebind=N --membind=N), behind a gateway (docs/cluster.md)",
        )),
    }
}

pub(super) fn governor(machine: &Machine) -> Option<Finding> {
    let governor = machine.governor()?;
    let found = Finding::good("frequency", format!("governor {governor}"));
    Some(match governor.as_str() {
        "powersave" | "conservative" => {
            found.better("cpupower frequency-set --governor performance")
        }
        _ => found,
    })
}

pub(super) fn other_work(machine: &Machine, processors: usize) -> Option<Finding> {
    let load = machine.load()?;
    let found = Finding::good(
        "other work",
        format!("{load} threads ran in the last minute"),
    );
    Some(if load > processors as f64 * BUSY_SHARE {
        found.better("a step takes as long as its slowest thread: other work slows all of them")
    } else {
        found
    })
}

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
