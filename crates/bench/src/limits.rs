//! What this machine can do at most, measured: nothing else makes a rate mean something.

use crate::clock::timed;
use crate::process::{last_cache_bytes, memory_available_bytes};
use kernels::probe::{Arithmetic, arithmetic, read};
use kernels::{Isa, Pool};
use memmap2::{Advice, MmapMut, MmapOptions};
use serde::Serialize;
use std::hint::black_box;
use std::time::Duration;

/// Each limit is the best of so many tries: others on the machine can only make it look slower.
const TRIES: usize = 5;
/// How long one try of arithmetic takes at least.
const TRY: Duration = Duration::from_millis(40);
/// Rounds of arithmetic that the search for [`TRY`] begins with, and where it ends.
const ROUNDS_MIN: u64 = 1 << 12;
const ROUNDS_MAX: u64 = 1 << 40;
/// A buffer to read has at least this size, and at most this part of the memory that is free.
const READ_MIN_BYTES: u64 = 256 << 20;
const READ_MEMORY_PART: u64 = 3;

/// What the machine can do at most, with the threads of the pool that measured it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes read per second from pages of 4 KiB.
    pub read_small_pages: f64,
    /// Bytes read per second from pages of 2 MiB, if the system gives any.
    pub read_large_pages: f64,
    /// Operations on f32 per second (a multiply-add is two).
    pub f32_ops: f64,
    /// Operations on bytes per second.
    pub int8_ops: f64,
}

impl Limits {
    /// Measures them, reading a buffer of at least `bytes` that no cache holds. Seconds of work.
    ///
    /// # Errors
    /// If the system gives no memory for the buffer.
    pub fn measure(isa: Isa, pool: &mut Pool, bytes: u64) -> std::io::Result<Self> {
        let read_bytes = buffer_bytes(bytes);
        Ok(Self {
            read_bytes,
            read_small_pages: bandwidth(isa, pool, read_bytes, Pages::Small)?,
            read_large_pages: bandwidth(isa, pool, read_bytes, Pages::Large)?,
            f32_ops: peak(isa, pool, Arithmetic::F32),
            int8_ops: peak(isa, pool, Arithmetic::Int8),
        })
    }

    /// The better of the two bandwidths, bytes per second.
    pub fn read(&self) -> f64 {
        self.read_small_pages.max(self.read_large_pages)
    }
}

#[derive(Clone, Copy)]
enum Pages {
    Small,
    Large,
}

/// More than the weights and than the last cache, less than would push others out.
fn buffer_bytes(wanted: u64) -> u64 {
    let beyond_cache = last_cache_bytes().unwrap_or(0).saturating_mul(2);
    let most = memory_available_bytes().map_or(u64::MAX, |free| free / READ_MEMORY_PART);
    wanted
        .max(beyond_cache)
        .max(READ_MIN_BYTES)
        .min(most.max(READ_MIN_BYTES))
}

/// Bytes per second that all workers read together.
fn bandwidth(isa: Isa, pool: &mut Pool, bytes: u64, pages: Pages) -> std::io::Result<f64> {
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut buffer = MmapOptions::new().len(len).map_anon()?;
    advise(&buffer, pages);
    buffer.fill(1);
    let buffer = &buffer[..];
    let best = least(|| {
        pool.ranges(len, 4096, |range| {
            black_box(read(isa, &buffer[range]));
        });
    });
    Ok(bytes as f64 / best.as_secs_f64())
}

/// The advice may be refused (a kernel without large pages): then both figures are of small ones.
fn advise(buffer: &MmapMut, pages: Pages) {
    #[cfg(target_os = "linux")]
    {
        let advice = match pages {
            Pages::Small => Advice::NoHugePage,
            Pages::Large => Advice::HugePage,
        };
        let _ = buffer.advise(advice);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (buffer, pages, Advice::Normal);
}

/// Operations per second of all workers together.
fn peak(isa: Isa, pool: &mut Pool, what: Arithmetic) -> f64 {
    let mut rounds = ROUNDS_MIN;
    while rounds < ROUNDS_MAX && timed(|| arithmetic(isa, what, rounds)).1 < TRY {
        rounds *= 2;
    }
    let operations = arithmetic(isa, what, 1) as f64 * rounds as f64 * pool.threads() as f64;
    let best = least(|| {
        pool.run(|_| {
            black_box(arithmetic(isa, what, rounds));
        });
    });
    operations / best.as_secs_f64()
}

fn least(mut work: impl FnMut()) -> Duration {
    let tries = (0..TRIES).map(|_| timed(&mut work).1);
    tries.min().unwrap_or_default().max(Duration::from_nanos(1))
}
