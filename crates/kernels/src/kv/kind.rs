//! Storage formats of keys and values.

use std::fmt;

/// Storage format of keys and values (cache type).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvKind {
    /// As f16: 2 bytes per element.
    #[default]
    F16,
    /// int8 with an f16 scale for each 32 elements of a head: 1.0625 bytes per element.
    Q8_0,
    /// 4 bits with an f16 scale for each 32 elements of a head: 0.5625 bytes per element.
    Q4_0,
}

impl KvKind {
    /// All storage formats.
    pub const ALL: [Self; 3] = [Self::F16, Self::Q8_0, Self::Q4_0];

    /// `f16`, `q8_0` or `q4_0`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        }
    }

    /// Whether elements are quants with scales.
    pub const fn is_quantized(self) -> bool {
        !matches!(self, Self::F16)
    }

    /// The storage format called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for KvKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
