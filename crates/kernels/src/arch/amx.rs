//! AMX (Advanced Matrix Extensions): detection, tile configuration, and the tile instructions of the kernels.
//!
//! The eight tile registers are per-thread state, but a thread has them only between loading a configuration
//! and releasing it: an [`AmxTiles`] is that interval. All tiles here have 16 rows of 64 bytes. Tiles 0 to 3
//! hold accumulators (C), tiles 4 and 5 activations (A), tiles 6 and 7 weights (B). The instructions are inline
//! assembly, since the intrinsics are unstable; the compiler itself never uses a tile register. Source: Intel's
//! Software Developer's Manual, volume 1, chapter 18, and volume 2 (`TDPBF16PS`, `TDPBSSD`).

use crate::memory::LINE;
use core::arch::asm;
use std::marker::PhantomData;

const _: () = assert!(TILE_BYTES == 1024, "what the assembly below adds");

/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 16;
/// Bytes of a tile.
pub(crate) const TILE_BYTES: usize = TILE_ROWS * LINE;

/// Whether the processor has AMX with int8 and bf16, and the operating system lets this process use AMX. The
/// operating system is queried at most once.
pub(crate) fn is_amx_permitted() -> bool {
    use std::sync::OnceLock;
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    *PERMITTED.get_or_init(|| cpu_has_amx() && os_saves_tiles() && request_permission())
}

/// CPUID leaf 7, bits 22 (AMX-BF16), 24 (AMX-TILE) and 25 (AMX-INT8).
fn cpu_has_amx() -> bool {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    const WANTED: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & WANTED == WANTED
}

/// Whether context switches save tiles and tile configuration: bits 17 and 18 of XCR0.
fn os_saves_tiles() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    if core::arch::x86_64::__cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    let (low, _high): (u32, u32);
    // SAFETY: OSXSAVE is set, so the instruction exists, and register 0 always exists.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _high, options(nomem, nostack));
    }
    low & (0b11 << 17) == 0b11 << 17
}

/// Requests tile state in the XSAVE area of each thread from Linux.
#[cfg(target_os = "linux")]
fn request_permission() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: a system call with two numbers, which touches no memory of the process.
    unsafe {
        libc::syscall(
            libc::SYS_arch_prctl,
            ARCH_REQ_XCOMP_PERM,
            XFEATURE_XTILEDATA,
        ) == 0
    }
}

/// Permission is only implemented for Linux.
#[cfg(not(target_os = "linux"))]
fn request_permission() -> bool {
    false
}

/// The configured tile registers of this thread. Not `Send`.
pub(crate) struct AmxTiles(PhantomData<*const ()>);

/// Operand of `ldtilecfg`: palette 1, then bytes per row and rows of each tile.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start: u8,
    reserved: [u8; 14],
    line_bytes: [u16; 16],
    lines: [u8; 16],
}

static CONFIG: TileConfig = TileConfig {
    palette: 1,
    start: 0,
    reserved: [0; 14],
    line_bytes: first_eight(LINE as u16),
    lines: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

const fn first_eight(value: u16) -> [u16; 16] {
    let mut all = [0; 16];
    let mut i = 0;
    while i < 8 {
        all[i] = value;
        i += 1;
    }
    all
}

impl AmxTiles {
    /// # Safety
    /// [`is_amx_permitted`] returned true.
    pub(crate) unsafe fn configure() -> Self {
        // SAFETY: permitted by the caller's contract; a valid configuration of 64 bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, readonly)) };
        Self(PhantomData)
    }
}

impl Drop for AmxTiles {
    fn drop(&mut self) {
        // SAFETY: tiles were configured on this thread. The release makes context switches cheap again.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Zeroes `M` by `N` accumulator tiles; accumulator (m, n) is tile register `2 m + n`.
///
/// # Safety
/// The thread holds [`AmxTiles`].
#[inline(always)]
pub(crate) unsafe fn zero_sums<const M: usize, const N: usize>() {
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!("tilezero tmm0", options(nostack));
        if N > 1 {
            asm!("tilezero tmm1", options(nostack));
        }
        if M > 1 {
            asm!("tilezero tmm2", options(nostack));
        }
        if M > 1 && N > 1 {
            asm!("tilezero tmm3", options(nostack));
        }
    }
}

/// Runs one instruction on each of `M` by `N` accumulators: tile register `2 m + n` and the tile `N m + n` in
/// memory from `sums` on.
macro_rules! each_sum_tile {
    ($sums:ident, $before:literal, $after:literal) => {
        // SAFETY: guaranteed by the caller.
        unsafe {
            each_sum_tile!(@ $before, "0", $after, $sums);
            if N > 1 {
                each_sum_tile!(@ $before, "1", $after, $sums.byte_add(TILE_BYTES));
            }
            if M > 1 {
                each_sum_tile!(@ $before, "2", $after, $sums.byte_add(N * TILE_BYTES));
            }
            if M > 1 && N > 1 {
                each_sum_tile!(@ $before, "3", $after, $sums.byte_add(3 * TILE_BYTES));
            }
        }
    };
    (@ $before:literal, $tile:literal, $after:literal, $at:expr) => {
        asm!(concat!($before, $tile, $after), at = in(reg) $at, by = in(reg) LINE, options(nostack))
    };
}

/// Loads f32 accumulators.
///
/// # Safety
/// The thread holds [`AmxTiles`], and `sums` points to `M` by `N` tiles.
#[inline(always)]
pub(crate) unsafe fn load_sums<const M: usize, const N: usize>(sums: *const f32) {
    each_sum_tile!(sums, "tileloadd tmm", ", [{at} + {by}*1]");
}

/// Stores f32 or i32 accumulators.
///
/// # Safety
/// As [`load_sums`].
#[inline(always)]
pub(crate) unsafe fn store_sums<const M: usize, const N: usize, T>(sums: *mut T) {
    each_sum_tile!(sums, "tilestored [{at} + {by}*1], tmm", "");
}

/// Stores f32 accumulators into a row-major matrix with rows of `row` elements: vertical neighbors are 16 rows
/// apart, horizontal neighbors 16 elements.
///
/// # Safety
/// The thread holds [`AmxTiles`], and the matrix has these rows and elements.
#[inline(always)]
pub(crate) unsafe fn store_sum_rows<const M: usize, const N: usize>(to: *mut f32, row: usize) {
    let (by, below) = (row * size_of::<f32>(), TILE_ROWS * row);
    macro_rules! store {
        ($tile:literal, $at:expr) => {
            asm!(concat!("tilestored [{at} + {by}*1], tmm", $tile), at = in(reg) $at, by = in(reg) by, options(nostack))
        };
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        store!("0", to);
        if N > 1 {
            store!("1", to.byte_add(LINE));
        }
        if M > 1 {
            store!("2", to.add(below));
        }
        if M > 1 && N > 1 {
            store!("3", to.add(below).byte_add(LINE));
        }
    }
}

/// Runs instructions on the tiles in memory at `x`, `w`, `x2` and `w2`.
macro_rules! on_tiles {
    ($at:ident: $($line:expr),*) => {
        asm!($($line),*, x = in(reg) $at[0], w = in(reg) $at[1], x2 = in(reg) $at[2], w2 = in(reg) $at[3],
            by = in(reg) LINE, options(nostack, readonly))
    };
}

/// Writes a function that adds the products of `M` A tiles with `N` B tiles to the accumulators.
macro_rules! tile_products {
    ($(#[$doc:meta])* $name:ident, $product:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The thread holds [`AmxTiles`], and the tiles are in bounds.
        #[inline(always)]
        pub(crate) unsafe fn $name<const M: usize, const N: usize>(
            x: *const u8,
            distance: usize,
            weights: *const u8,
        ) {
            let at = [x, weights, x.wrapping_add(distance), weights.wrapping_add(TILE_BYTES)];
            // SAFETY: guaranteed by the caller. Loads stand between products, which wait for the loads anyway.
            unsafe {
                match (M, N) {
                    (1, 1) => on_tiles!(at:
                        "tileloadd tmm4, [{x} + {by}*1]",
                        "tileloadd tmm6, [{w} + {by}*1]",
                        concat!($product, " tmm0, tmm4, tmm6"),
                        "/* {x2} {w2} */"
                    ),
                    (1, _) => on_tiles!(at:
                        "tileloadd tmm4, [{x} + {by}*1]",
                        "tileloadd tmm6, [{w} + {by}*1]",
                        concat!($product, " tmm0, tmm4, tmm6"),
                        "tileloadd tmm7, [{w2} + {by}*1]",
                        concat!($product, " tmm1, tmm4, tmm7"),
                        "/* {x2} */"
                    ),
                    (_, 1) => on_tiles!(at:
                        "tileloadd tmm4, [{x} + {by}*1]",
                        "tileloadd tmm6, [{w} + {by}*1]",
                        concat!($product, " tmm0, tmm4, tmm6"),
                        "tileloadd tmm5, [{x2} + {by}*1]",
                        concat!($product, " tmm2, tmm5, tmm6"),
                        "/* {w2} */"
                    ),
                    _ => on_tiles!(at:
                        "tileloadd tmm4, [{x} + {by}*1]",
                        "tileloadd tmm6, [{w} + {by}*1]",
                        concat!($product, " tmm0, tmm4, tmm6"),
                        "tileloadd tmm7, [{w2} + {by}*1]",
                        concat!($product, " tmm1, tmm4, tmm7"),
                        "tileloadd tmm5, [{x2} + {by}*1]",
                        concat!($product, " tmm2, tmm5, tmm6"),
                        concat!($product, " tmm3, tmm5, tmm7")
                    ),
                }
            }
        }
    };
}

tile_products! {
    /// bf16 product with f32 accumulation: A tiles are `distance` bytes apart, B tiles adjacent. A tiles are 16
    /// rows of 32 columns; B tiles are 16 column pairs by 16 rows of weights.
    multiply_bf16, "tdpbf16ps"
}

tile_products! {
    /// Exact int8 product with i32 accumulation: A tiles are `distance` bytes apart, B tiles adjacent. A tiles
    /// are 16 rows of 64 columns; B tiles are 16 groups of four columns by 16 rows of weights.
    multiply_int8, "tdpbssd"
}

/// Loads one or two A tiles, `distance` bytes apart, for [`multiply_loaded_bf16`].
///
/// # Safety
/// The thread holds [`AmxTiles`], and the tiles are in bounds.
#[inline(always)]
pub(crate) unsafe fn load_activations<const M: usize>(x: *const u8, distance: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!("tileloadd tmm4, [{at} + {by}*1]", at = in(reg) x, by = in(reg) LINE, options(nostack, readonly));
        if M > 1 {
            let x = x.add(distance);
            asm!("tileloadd tmm5, [{at} + {by}*1]", at = in(reg) x, by = in(reg) LINE, options(nostack, readonly));
        }
    }
}

/// Loads two adjacent B tiles for [`multiply_loaded_bf16`].
///
/// # Safety
/// As [`load_activations`].
#[inline(always)]
pub(crate) unsafe fn load_weights(weights: *const u8) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!(
            "tileloadd tmm6, [{at} + {by}*1]",
            "tileloadd tmm7, [{at} + {by}*1 + 1024]",
            at = in(reg) weights, by = in(reg) LINE, options(nostack, readonly)
        );
    }
}

/// Adds the bf16 products of the loaded `M` A tiles and two B tiles to the accumulators.
///
/// # Safety
/// As [`load_activations`].
#[inline(always)]
pub(crate) unsafe fn multiply_loaded_bf16<const M: usize>() {
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!(
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            options(nostack)
        );
        if M > 1 {
            asm!(
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                options(nostack)
            );
        }
    }
}
