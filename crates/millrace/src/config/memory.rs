//! Default shares of the machine's memory for models and KV caches.

/// Share of the machine's memory for all loaded models.
const MODELS_PART: (u64, u64) = (7, 8);
/// Divisor for the share of one model's KV cache.
const KV_PART: u64 = 4;
/// Minimum bytes of a KV cache.
const KV_BYTES_MIN: u64 = 1 << 30;
/// Positions of a KV cache, if the share holds them: a prompt of 30,000 tokens, an answer of 10,000, and others beside them.
pub(crate) const KV_POSITIONS: u64 = 65_536;

/// Sequences of a model with recurrent layers that have states, if the share holds them.
pub(crate) const STATE_SEQUENCES: usize = 64;

/// Bytes for all loaded models; `None` if the machine's memory is unknown.
pub(super) fn models_bytes() -> Option<u64> {
    let (part, whole) = MODELS_PART;
    machine_bytes().map(|bytes| bytes / whole * part)
}

/// Bytes of the KV cache of a model with `position_bytes` for each position, and of the states of its sequences, which
/// have `state_bytes` in all.
pub(crate) fn kv_bytes(position_bytes: u64, state_bytes: u64) -> u64 {
    kv_bytes_of(machine_bytes(), position_bytes, state_bytes)
}

fn kv_bytes_of(machine_bytes: Option<u64>, position_bytes: u64, state_bytes: u64) -> u64 {
    let part = machine_bytes.map_or(KV_BYTES_MIN, |bytes| bytes / KV_PART);
    let useful = position_bytes.saturating_mul(KV_POSITIONS);
    let useful = useful.saturating_add(state_bytes);
    useful.min(part).max(KV_BYTES_MIN)
}

/// The memory of the machine or, if smaller, of the process's control group.
fn machine_bytes() -> Option<u64> {
    let all = std::fs::read_to_string("/proc/meminfo").ok();
    let kib = all.as_deref().and_then(|all| {
        let line = all
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    });
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|bytes| bytes.trim().parse::<u64>().ok());
    kib.map(|kib| kib << 10).into_iter().chain(group).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_have_room_for_long_prompts_where_there_is_memory() {
        const KIB: u64 = 1 << 10;
        const GIB: u64 = 1 << 30;
        let rows = [
            ("a tiny model", Some(24 * GIB), KIB, GIB),
            ("Llama 3.2 1B", Some(24 * GIB), 32 * KIB, 2 * GIB),
            ("Qwen3 4B, a quarter", Some(24 * GIB), 144 * KIB, 6 * GIB),
            ("Qwen3 4B, all", Some(64 * GIB), 144 * KIB, 9 * GIB),
            ("a small machine", Some(2 * GIB), 144 * KIB, GIB),
            ("an unknown one", None, 144 * KIB, GIB),
        ];
        for (case, machine, position, want) in rows {
            assert_eq!(kv_bytes_of(machine, position, 0), want, "{case}");
        }
        let hybrid = kv_bytes_of(Some(64 * GIB), 32 * KIB, GIB);
        assert_eq!(hybrid, 3 * GIB, "with states");
    }
}
