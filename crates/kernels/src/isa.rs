//! Instruction sets of the processor.
//!
//! An [`Isa`] is a permission: code that holds one may run instructions of that level. Values come only from
//! checks of the processor, so code downstream checks nothing.

use std::fmt;

/// Environment variable that selects a level.
pub const ISA_VARIABLE: &str = "MILLRACE_ISA";

/// An instruction set that the processor is proven to have.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Isa {
    level: Level,
    /// Whether AMX tiles (bf16 and int8) may be used in addition to the level.
    tiles: bool,
}

/// Levels of an architecture in rising order. Each includes those before it, but AVX-512 need not include AVX-VNNI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Level {
    /// Portable Rust: the reference implementation of each vector path.
    Scalar,
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX2, FMA, F16C and AVX-VNNI.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// AVX2, FMA and F16C with AVX-512 F, BW, DQ, VL and VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// NEON with FMA and conversions of f16: the baseline of AArch64.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// NEON with the dot products of bytes of Armv8.2 (`FEAT_DotProd`).
    #[cfg(target_arch = "aarch64")]
    NeonDotprod,
    /// NEON with dot products and with the products of byte matrices of Armv8.6 (`FEAT_I8MM`).
    #[cfg(target_arch = "aarch64")]
    NeonI8mm,
}

impl Isa {
    /// The level that `MILLRACE_ISA` (a [name](Isa::name)) selects, or else [`Isa::best`].
    ///
    /// # Panics
    /// With the text of [`IsaError`] where [`Isa::from_env`] returns an error. Programs call `from_env` first.
    pub fn detect() -> Self {
        match Self::from_env() {
            Ok(isa) => isa,
            Err(error) => panic!("{error}"),
        }
    }

    /// The level that `MILLRACE_ISA` selects, or else [`Isa::best`]; an error for an unknown or missing level.
    pub fn from_env() -> Result<Self, IsaError> {
        Self::from_env_or(Self::best())
    }

    /// As [`Isa::from_env`], with `default` where the variable is unset or empty.
    pub fn from_env_or(default: Self) -> Result<Self, IsaError> {
        match std::env::var_os(ISA_VARIABLE) {
            Some(wanted) if !wanted.is_empty() => Self::from_name(&wanted.to_string_lossy()),
            _ => Ok(default),
        }
    }

    /// The level called `name`, if this processor has that level. An empty name selects [`Isa::best`].
    pub fn from_name(name: &str) -> Result<Self, IsaError> {
        if name.is_empty() {
            return Ok(Self::best());
        }
        if let Some(isa) = Self::available().find(|isa| isa.name() == name) {
            return Ok(isa);
        }
        Err(IsaError {
            wanted: name.to_owned(),
        })
    }

    /// The fastest batch-invariant level of this processor.
    pub fn best() -> Self {
        Self::avx512()
            .or_else(Self::avx_vnni)
            .or_else(Self::avx2)
            .or_else(Self::neon_i8mm)
            .or_else(Self::neon_dotprod)
            .or_else(Self::neon)
            .unwrap_or(Self::scalar())
    }

    /// The fastest level of this processor, batch-invariant or not.
    pub fn fastest() -> Self {
        Self::amx().unwrap_or_else(Self::best)
    }

    /// All levels of this processor in rising order. Tests run each vector path through this list.
    pub fn available() -> impl Iterator<Item = Self> {
        [
            Some(Self::scalar()),
            Self::avx2(),
            Self::avx_vnni(),
            Self::avx512(),
            Self::amx(),
            Self::neon(),
            Self::neon_dotprod(),
            Self::neon_i8mm(),
        ]
        .into_iter()
        .flatten()
    }

    /// Portable code, present on every processor.
    pub const fn scalar() -> Self {
        Self::without_tiles(Level::Scalar)
    }

    const fn without_tiles(level: Level) -> Self {
        Self {
            level,
            tiles: false,
        }
    }

    /// AVX2 with FMA and F16C.
    pub fn avx2() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if has_avx2() {
            return Some(Self::without_tiles(Level::Avx2));
        }
        None
    }

    /// AVX-VNNI on top of [`Isa::avx2`], found in client processors without AVX-512.
    pub fn avx_vnni() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if has_avx2() && is_x86_feature_detected!("avxvnni") {
            return Some(Self::without_tiles(Level::AvxVnni));
        }
        None
    }

    /// AVX-512 F, BW, DQ, VL and VNNI, on top of [`Isa::avx2`].
    pub fn avx512() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if has_avx2() && has_avx512() {
            return Some(Self::without_tiles(Level::Avx512));
        }
        None
    }

    /// AMX on top of [`Isa::avx512`], where the operating system permits AMX. Not batch-invariant.
    pub fn amx() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if crate::arch::amx::is_amx_permitted() {
            let tiles = true;
            return Self::avx512().map(|isa| Self { tiles, ..isa });
        }
        None
    }

    /// NEON, the baseline of AArch64.
    pub fn neon() -> Option<Self> {
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            return Some(Self::without_tiles(Level::Neon));
        }
        None
    }

    /// Dot products of bytes (Armv8.2) on top of [`Isa::neon`].
    pub fn neon_dotprod() -> Option<Self> {
        #[cfg(target_arch = "aarch64")]
        if Self::neon().is_some() && std::arch::is_aarch64_feature_detected!("dotprod") {
            return Some(Self::without_tiles(Level::NeonDotprod));
        }
        None
    }

    /// Products of byte matrices (Armv8.6) on top of [`Isa::neon_dotprod`].
    pub fn neon_i8mm() -> Option<Self> {
        #[cfg(target_arch = "aarch64")]
        if Self::neon_dotprod().is_some() && std::arch::is_aarch64_feature_detected!("i8mm") {
            return Some(Self::without_tiles(Level::NeonI8mm));
        }
        None
    }

    /// Whether a row's results have the same bits whatever the other rows of a call, and the same bits as on
    /// every other batch-invariant level. AMX is not batch-invariant: its kernels round to bf16 or int8 and
    /// serve only calls of many rows.
    pub const fn is_batch_invariant(self) -> bool {
        !self.tiles
    }

    /// This level without AMX.
    pub const fn without_amx(self) -> Self {
        Self::without_tiles(self.level)
    }

    /// `scalar`, on x86-64 `avx2`, `avx_vnni`, `avx512` or `amx`, on AArch64 `neon`, `neon_dotprod` or `neon_i8mm`: the
    /// values of `MILLRACE_ISA`.
    pub const fn name(self) -> &'static str {
        match self.level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 if self.tiles => "amx",
            Level::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::AvxVnni => "avx_vnni",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            Level::Neon => "neon",
            #[cfg(target_arch = "aarch64")]
            Level::NeonDotprod => "neon_dotprod",
            #[cfg(target_arch = "aarch64")]
            Level::NeonI8mm => "neon_i8mm",
        }
    }

    /// The layout of weights that are packed for this level: bytes of one layout serve every level that has it. Today all
    /// levels have one.
    pub const fn packed_layout(self) -> &'static str {
        "panels of 16 rows"
    }

    /// The vector level to match on.
    pub(crate) const fn level(self) -> Level {
        self.level
    }

    /// f32 elements of a vector; those of the narrowest vectors where there are none.
    pub(crate) const fn vector_floats(self) -> usize {
        match self.level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => 16,
            _ => 8,
        }
    }

    /// Whether AMX may be used.
    pub(crate) const fn has_tiles(self) -> bool {
        self.tiles
    }

    /// Configures the AMX tiles of this thread, if AMX may be used.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn tiles(self) -> Option<crate::arch::amx::AmxTiles> {
        #[expect(unsafe_code, reason = "tiles need permission")]
        // SAFETY: an Isa with AMX is only made where the operating system permits AMX.
        self.tiles
            .then(|| unsafe { crate::arch::amx::AmxTiles::configure() })
    }
}

impl fmt::Debug for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Isa({})", self.name())
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The requested level is unknown or missing on this processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsaError {
    wanted: String,
}

impl fmt::Display for IsaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted } = self;
        write!(
            f,
            "instruction set {wanted:?} (from {ISA_VARIABLE}) is not available; this processor has:"
        )?;
        for isa in Isa::available() {
            write!(f, " {isa}")?;
        }
        Ok(())
    }
}

impl std::error::Error for IsaError {}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_found_by_name() {
        for isa in Isa::available() {
            assert_eq!(Isa::from_name(isa.name()), Ok(isa));
        }
        assert_eq!(Isa::from_name(""), Ok(Isa::best()));
    }

    #[test]
    fn available_levels_rise_from_scalar_to_the_best() {
        let levels: Vec<_> = Isa::available().map(Isa::level).collect();
        assert!(levels.is_sorted());
        let names: Vec<_> = Isa::available().map(Isa::name).collect();
        assert_eq!(names.first(), Some(&Isa::scalar().name()));
        assert_eq!(names.last(), Some(&Isa::fastest().name()));
        let steady = Isa::available().filter(|isa| isa.is_batch_invariant());
        assert_eq!(steady.last(), Some(Isa::best()));
    }

    #[test]
    fn unknown_level_is_rejected_with_the_available_levels() {
        let error = Isa::from_name("sse9")
            .expect_err("no such level")
            .to_string();
        assert!(
            error.contains("\"sse9\"") && error.contains("scalar"),
            "{error}"
        );
    }
}
