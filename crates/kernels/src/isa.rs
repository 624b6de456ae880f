//! Which instructions this processor has. (Stub: the kernels owner completes it.)

/// Holding a value proves that the processor can run that path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(pub(crate) Level);

/// Levels in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Scalar,
}

impl Isa {
    /// The best this processor has, or what `MILLRACE_ISA` (scalar, avx2, avx512) asks for.
    pub fn detect() -> Self {
        Self(Level::Scalar)
    }
}
