//! Limits of the machine, measured: read bandwidth and arithmetic peak.

use crate::process::{last_cache_bytes, memory_available_bytes, timed};
use kernels::probe::{Arithmetic, arithmetic, read};
use kernels::{Isa, Pool};
use memmap2::{Advice, MmapMut, MmapOptions};
use serde::Serialize;
use std::hint::black_box;
use std::time::Duration;

/// Tries per limit; the best counts, since other processes can only make the machine look slower.
const TRIES: usize = 5;
/// Minimum duration of one try of arithmetic.
const TRY_TIME: Duration = Duration::from_millis(40);
/// First and last number of rounds in the search for [`TRY_TIME`].
const ROUNDS_MIN: u64 = 1 << 12;
const ROUNDS_MAX: u64 = 1 << 40;
/// Minimum size of the read buffer, and its largest share of the available memory (one third).
const READ_MIN_BYTES: u64 = 256 << 20;
const READ_MEMORY_PART: u64 = 3;

/// Limits of the machine with the threads of the pool that measured them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Size of the read buffer in bytes.
    pub read_bytes: u64,
    /// Bytes read per second from pages of 4 KiB.
    pub read_small_pages: f64,
    /// Bytes read per second from pages of 2 MiB, if the operating system provides them.
    pub read_large_pages: f64,
    /// Operations on f32 per second (a multiply-add is two); 0 where that was not measured.
    pub f32_ops: f64,
    /// Operations on int8 per second; 0 where that was not measured.
    pub int8_ops: f64,
}

impl Limits {
    /// Limits of a device, of which only the bytes read per second are known.
    pub(crate) const fn of_device(read: f64) -> Self {
        Self {
            read_bytes: 0,
            read_small_pages: read,
            read_large_pages: read,
            f32_ops: 0.0,
            int8_ops: 0.0,
        }
    }

    /// Measures the limits, reading a buffer of at least `bytes` that exceeds all caches. Takes seconds.
    ///
    /// # Errors
    /// If the operating system cannot provide the buffer.
    pub fn measure(isa: Isa, pool: &mut Pool, bytes: u64) -> std::io::Result<Self> {
        let read_bytes = buffer_bytes(bytes);
        Ok(Self {
            read_bytes,
            read_small_pages: pages_bandwidth(isa, pool, read_bytes, PageSize::Small)?,
            read_large_pages: pages_bandwidth(isa, pool, read_bytes, PageSize::Large)?,
            f32_ops: peak_operations(isa, pool, Arithmetic::F32),
            int8_ops: peak_operations(isa, pool, Arithmetic::Int8),
        })
    }

    /// The higher of the two bandwidths, bytes per second.
    pub fn read(&self) -> f64 {
        self.read_small_pages.max(self.read_large_pages)
    }
}

#[derive(Clone, Copy)]
enum PageSize {
    Small,
    Large,
}

/// More than the weights and than the last-level cache, within the available memory.
fn buffer_bytes(wanted: u64) -> u64 {
    let beyond_cache = last_cache_bytes().unwrap_or(0).saturating_mul(2);
    let most = memory_available_bytes().map_or(u64::MAX, |free| free / READ_MEMORY_PART);
    wanted
        .max(beyond_cache)
        .max(READ_MIN_BYTES)
        .min(most.max(READ_MIN_BYTES))
}

/// Bytes per second that all workers read together, from pages of 2 MiB where there are some, of a buffer that exceeds all
/// caches. Takes a fraction of a second.
///
/// # Errors
/// If the operating system cannot provide the buffer.
pub fn read_bandwidth(isa: Isa, pool: &mut Pool) -> std::io::Result<f64> {
    pages_bandwidth(isa, pool, buffer_bytes(0), PageSize::Large)
}

fn pages_bandwidth(isa: Isa, pool: &mut Pool, bytes: u64, pages: PageSize) -> std::io::Result<f64> {
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut buffer = MmapOptions::new().len(len).map_anon()?;
    advise_pages(&buffer, pages);
    buffer.fill(1);
    let buffer = &buffer[..];
    let best = fastest(|| {
        pool.ranges(len, 4096, |range| {
            black_box(read(isa, &buffer[range]));
        });
    });
    Ok(bytes as f64 / best.as_secs_f64())
}

/// The advice may be refused (a kernel without huge pages); both bandwidths are those of small pages then.
fn advise_pages(buffer: &MmapMut, pages: PageSize) {
    #[cfg(target_os = "linux")]
    {
        let advice = match pages {
            PageSize::Small => Advice::NoHugePage,
            PageSize::Large => Advice::HugePage,
        };
        let _ = buffer.advise(advice);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (buffer, pages, Advice::Normal);
}

/// Operations per second of all workers together.
fn peak_operations(isa: Isa, pool: &mut Pool, what: Arithmetic) -> f64 {
    let mut rounds = ROUNDS_MIN;
    while rounds < ROUNDS_MAX && timed(|| arithmetic(isa, what, rounds)).1 < TRY_TIME {
        rounds *= 2;
    }
    let operations = arithmetic(isa, what, 1) as f64 * rounds as f64 * pool.threads() as f64;
    let best = fastest(|| {
        pool.run(|_| {
            black_box(arithmetic(isa, what, rounds));
        });
    });
    operations / best.as_secs_f64()
}

fn fastest(mut work: impl FnMut()) -> Duration {
    let tries = (0..TRIES).map(|_| timed(&mut work).1);
    tries.min().unwrap_or_default().max(Duration::from_nanos(1))
}
