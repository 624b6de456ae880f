//! Fast paths. Each has a scalar twin, and is entered only with an [`crate::Isa`] that allows it.
//!
//! [`lanes`] names the vector instructions once for AVX2 and AVX-512; the paths of the row-wise
//! operations and of attention are written over it, and [`by_isa`] chooses at run time.
#![allow(unsafe_code)] // Vector instructions and loads through pointers.

#[cfg(target_arch = "x86_64")]
pub(crate) mod attention;
#[cfg(target_arch = "x86_64")]
pub(crate) mod attention_ready;
#[cfg(target_arch = "x86_64")]
pub(crate) mod attention_tiles;
#[cfg(target_arch = "x86_64")]
mod block;
#[cfg(target_arch = "x86_64")]
pub(crate) mod codes;
#[cfg(target_arch = "x86_64")]
pub(crate) mod dots;
#[cfg(target_arch = "x86_64")]
pub(crate) mod lanes;
#[cfg(target_arch = "x86_64")]
pub(crate) mod matmul;
#[cfg(target_arch = "x86_64")]
pub(crate) mod prepare;
#[cfg(target_arch = "x86_64")]
pub(crate) mod probe;
#[cfg(target_arch = "x86_64")]
pub(crate) mod rowwise;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tiled;
#[cfg(target_arch = "x86_64")]
mod tiled_codes;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tiles;
#[cfg(target_arch = "x86_64")]
pub(crate) mod wide;

/// Asks for what will be read soon, all at once.
pub(crate) fn prefetch(what: &[u16]) {
    Ahead::new(what).finish();
}

/// Memory that will be read soon, asked for line by line in the course of other work: all at once would
/// fill the processor's few places for lines on their way, and the work's own loads would queue behind.
pub(crate) struct Ahead {
    at: *const u16,
    lines: usize,
}

impl Ahead {
    pub(crate) fn new(what: &[u16]) -> Self {
        Self {
            at: what.as_ptr(),
            lines: what.len().div_ceil(HALVES_PER_LINE),
        }
    }

    /// Asks for the next line, if there is one.
    #[inline(always)]
    pub(crate) fn line(&mut self) {
        if self.lines == 0 {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            // SAFETY: a prefetch reads nothing, and every x86-64 has it.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(self.at.cast()) };
        }
        self.at = self.at.wrapping_add(HALVES_PER_LINE);
        self.lines -= 1;
    }

    /// Asks for what is left.
    #[inline(always)]
    pub(crate) fn finish(&mut self) {
        while self.lines > 0 {
            self.line();
        }
    }
}

/// In a line of the cache.
const HALVES_PER_LINE: usize = 64 / size_of::<u16>();

/// Writes a function that takes an [`crate::Isa`] first and runs the scalar twin (the first path)
/// or an instance of the vector path (the second) for the level.
macro_rules! by_isa {
    (
        $scalar:path, $($vector:ident)::+;
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?
    ) => {
        $(#[$attribute])*
        #[allow(unsafe_code, reason = "entering a fast path; the Isa is the proof")]
        $visibility fn $name(isa: crate::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: compiled for AVX2, FMA and F16C.
                unsafe { $($vector)::+::<crate::arch::lanes::F32x8>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            fn avx512($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: compiled for AVX-512.
                unsafe { $($vector)::+::<crate::arch::lanes::F32x16>($($arg),*) }
            }
            match isa.level() {
                crate::isa::Level::Scalar => $scalar($($arg),*),
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the Isa proves the level.
                crate::isa::Level::Avx2 | crate::isa::Level::AvxVnni => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the Isa proves the level.
                crate::isa::Level::Avx512 => unsafe { avx512($($arg),*) },
            }
        }
    };
}
pub(crate) use by_isa;
