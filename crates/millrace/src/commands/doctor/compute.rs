//! Findings about the processor and the memory.

use super::Finding;
use super::machine::Machine;
use crate::config::Settings;
use crate::loading::{bytes_needed, kernel_isa};
use crate::model_lookup::find_start_model;
use crate::terminal_text::bytes;
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
pub(super) fn memory_for(memory: super::machine::Memory, name: &str, needed: u64) -> Finding {
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
