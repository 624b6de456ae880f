//! Software prefetches of memory that is read soon.

/// Asks for what will be read soon, all at once.
pub(crate) fn prefetch_all(what: &[u16]) {
    Prefetcher::new(what).remaining_lines();
}

/// Memory that will be read soon, asked for line by line in the course of other work: all at once would
/// fill the processor's few places for lines on their way, and the work's own loads would queue behind.
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

    /// Asks for the next line, if there is one.
    #[inline(always)]
    pub(crate) fn next_line(&mut self) {
        if self.lines == 0 {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            // SAFETY: a prefetch reads nothing, and every x86-64 has it.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(self.at.cast()) };
        }
        self.at = self.at.wrapping_add(ELEMENTS_PER_LINE);
        self.lines -= 1;
    }

    /// Asks for what is left.
    #[inline(always)]
    pub(crate) fn remaining_lines(&mut self) {
        while self.lines > 0 {
            self.next_line();
        }
    }
}

/// In a line of the cache.
const ELEMENTS_PER_LINE: usize = 64 / size_of::<u16>();
