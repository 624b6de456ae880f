//! Software prefetching, and non-temporal stores: results that are written past the caches.
//!
//! An ordinary store first reads its line into the first cache. Results whose rows are a multiple of 4 KiB apart share a few
//! sets of each cache, push each other out and wait for these reads.

#[cfg(target_arch = "x86_64")]
use crate::memory::LINE;
use crate::packing::LANES;

/// Prefetches a line into all caches. Nothing is read: any address will do.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(super) fn prefetch_nearest(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing, and every x86-64 has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch reads nothing, and every AArch64 has it.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
    }
}

/// Prefetches a line into the second cache, where the architecture is known. Nothing is read: any address will do.
#[inline(always)]
pub(super) fn prefetch_second(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch reads nothing, and every x86-64 has it.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch reads nothing, and every AArch64 has it.
    unsafe {
        core::arch::asm!("prfm pldl2keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Prefetches all of `what` at once.
pub(crate) fn prefetch_all(what: &[u16]) {
    Prefetcher::new(what).remaining_lines();
}

/// Memory to prefetch line by line, interleaved with other work: prefetching all lines at once would fill the
/// line fill buffers of the core, and the loads of the work would queue behind them.
pub(crate) struct Prefetcher {
    at: *const u16,
    lines: usize,
}

impl Prefetcher {
    pub(crate) fn new(what: &[u16]) -> Self {
        Self {
            at: what.as_ptr(),
            lines: what.len().div_ceil(ELEMENTS_PER_LINE),
        }
    }

    /// Prefetches the next line, if any is left.
    #[inline(always)]
    pub(crate) fn next_line(&mut self) {
        if self.lines == 0 {
            return;
        }
        prefetch_second(self.at.cast());
        self.at = self.at.wrapping_add(ELEMENTS_PER_LINE);
        self.lines -= 1;
    }

    /// Prefetches all lines that are left.
    #[inline(always)]
    pub(crate) fn remaining_lines(&mut self) {
        while self.lines > 0 {
            self.next_line();
        }
    }
}

/// Elements of a cache line.
const ELEMENTS_PER_LINE: usize = 64 / size_of::<u16>();

/// Writes past the caches where `out` is a whole cache line and the processor is an x86-64, elsewhere as usual.
///
/// The thread calls [`finish`] before others may read.
#[inline(always)]
pub(crate) fn write(out: &mut [f32; LANES], results: &[f32; LANES]) {
    #[cfg(target_arch = "x86_64")]
    if out.as_ptr().addr().is_multiple_of(LINE) {
        use core::arch::x86_64::{_mm_loadu_ps, _mm_stream_ps};
        let quarters = out.as_chunks_mut::<4>().0.iter_mut();
        for (out, results) in quarters.zip(results.as_chunks::<4>().0) {
            // SAFETY: four elements each, at a multiple of 16 bytes of a line, and every x86-64 has SSE.
            unsafe { _mm_stream_ps(out.as_mut_ptr(), _mm_loadu_ps(results.as_ptr())) };
        }
        return;
    }
    *out = *results;
}

/// Makes earlier [`write`]s of this thread visible before its later stores.
#[inline(always)]
pub(crate) fn finish() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_written_at_any_alignment() {
        let results: [f32; LANES] = std::array::from_fn(|i| i as f32 - 3.5);
        let mut out = crate::ZeroedBuffer::new(4 * LANES);
        for first in 0..2 * LANES {
            out.fill(0.0);
            let part = out[first..].first_chunk_mut().expect("enough elements");
            write(part, &results);
            finish();
            assert_eq!(out[first..first + LANES], results, "at {first}");
            let sum: f32 = out.iter().sum();
            assert_eq!(
                sum,
                results.iter().sum(),
                "at {first}: nothing else is written"
            );
        }
    }
}
