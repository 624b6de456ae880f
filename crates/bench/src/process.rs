//! Memory and CPU time of a process from `/proc` (Linux; `None` elsewhere and for ended processes), and the clock.
//! Measurement is the purpose of this crate, so reading the clock is permitted here.

use std::time::{Duration, Instant};

/// Unit of CPU times in `/proc/PID/stat`: Linux fixes `USER_HZ` at 100 on all supported architectures.
const TICK: Duration = Duration::from_millis(10);

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// The current process.
    Own,
    /// The process with this id.
    Pid(u32),
}

impl Process {
    fn file(self, name: &str) -> Option<String> {
        let folder = match self {
            Self::Own => "self".to_owned(),
            Self::Pid(pid) => pid.to_string(),
        };
        std::fs::read_to_string(format!("/proc/{folder}/{name}")).ok()
    }

    /// Resident memory, bytes.
    pub fn resident_bytes(self) -> Option<u64> {
        kib_field(&self.file("status")?, "VmRSS:").map(|kib| kib << 10)
    }

    /// Peak resident memory, bytes.
    pub fn resident_peak_bytes(self) -> Option<u64> {
        kib_field(&self.file("status")?, "VmHWM:").map(|kib| kib << 10)
    }

    /// CPU time of all threads, in user and kernel mode.
    pub fn cpu_time(self) -> Option<Duration> {
        cpu_ticks(&self.file("stat")?).map(|ticks| TICK * u32::try_from(ticks).unwrap_or(u32::MAX))
    }
}

/// Bytes that could be allocated without swapping.
pub fn memory_available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    kib_field(&text, "MemAvailable:").map(|kib| kib << 10)
}

/// Size of the largest cache of the first CPU, bytes.
pub fn last_cache_bytes() -> Option<u64> {
    let size = |index: usize| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = std::fs::read_to_string(path).ok()?;
        text.trim()
            .strip_suffix('K')?
            .parse::<u64>()
            .ok()
            .map(|kib| kib << 10)
    };
    (0..5).filter_map(size).max()
}

/// The number in a line `NAME   123 kB`.
fn kib_field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// `utime + stime` of `/proc/PID/stat`, whose second field is a name in parentheses with arbitrary characters.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// The current time.
#[expect(
    clippy::disallowed_methods,
    reason = "measuring is what this crate is for"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The result of `work` and its duration.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let done = work();
    (done, now() - start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_fields_are_parsed() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(kib_field(status, "VmRSS:"), Some(1024));
        assert_eq!(kib_field(status, "VmHWM:"), Some(2048));
        assert_eq!(kib_field(status, "VmSwap:"), None);
        let stat = "77 (a) b c) S 1 2 3 4 5 6 7 8 9 10 250 31 0 0 20 0 3 0 5";
        assert_eq!(cpu_ticks(stat), Some(281));
        assert_eq!(cpu_ticks("77 (a) S 1"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn own_process_has_memory_and_unknown_process_has_none() {
        // The two values are not compared: the kernel reads them from counters that are updated at different
        // times.
        assert!(Process::Own.resident_bytes().unwrap() > 0);
        assert!(Process::Own.resident_peak_bytes().unwrap() > 0);
        assert!(Process::Own.cpu_time().is_some());
        assert_eq!(Process::Pid(u32::MAX).resident_bytes(), None);
    }
}
