//! Software prefetching.

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
fn prefetch_second(at: *const u8) {
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
