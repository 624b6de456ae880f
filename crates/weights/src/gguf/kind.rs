//! Tensor kinds: all of ggml's type ids, by name.

use kernels::Format;

/// A row of [`KNOWN`]: id, name, weights per block, bytes per block, and the kernels' format, if supported.
type Row = (u32, &'static str, u64, u64, Option<Format>);

/// Ids, names and block sizes of `ggml.h` and `ggml-common.h`. Missing ids were withdrawn (4, 5: Q4_2, Q4_3;
/// 31-33, 36-38: layouts repacked for one machine) or are newer.
const KNOWN: &[Row] = &[
    (0, "F32", 1, 4, Some(Format::F32)),
    (1, "F16", 1, 2, Some(Format::F16)),
    (2, "Q4_0", 32, 18, Some(Format::Q4_0)),
    (3, "Q4_1", 32, 20, Some(Format::Q4_1)),
    (6, "Q5_0", 32, 22, Some(Format::Q5_0)),
    (7, "Q5_1", 32, 24, Some(Format::Q5_1)),
    (8, "Q8_0", 32, 34, Some(Format::Q8_0)),
    (9, "Q8_1", 32, 36, None),
    (10, "Q2_K", 256, 84, Some(Format::Q2_K)),
    (11, "Q3_K", 256, 110, Some(Format::Q3_K)),
    (12, "Q4_K", 256, 144, Some(Format::Q4_K)),
    (13, "Q5_K", 256, 176, Some(Format::Q5_K)),
    (14, "Q6_K", 256, 210, Some(Format::Q6_K)),
    (15, "Q8_K", 256, 292, None),
    (16, "IQ2_XXS", 256, 66, Some(Format::IQ2_XXS)),
    (17, "IQ2_XS", 256, 74, Some(Format::IQ2_XS)),
    (18, "IQ3_XXS", 256, 98, Some(Format::IQ3_XXS)),
    (19, "IQ1_S", 256, 50, None),
    (20, "IQ4_NL", 32, 18, Some(Format::IQ4_NL)),
    (21, "IQ3_S", 256, 110, Some(Format::IQ3_S)),
    (22, "IQ2_S", 256, 82, Some(Format::IQ2_S)),
    (23, "IQ4_XS", 256, 136, Some(Format::IQ4_XS)),
    (24, "I8", 1, 1, None),
    (25, "I16", 1, 2, None),
    (26, "I32", 1, 4, None),
    (27, "I64", 1, 8, None),
    (28, "F64", 1, 8, None),
    (29, "IQ1_M", 256, 56, None),
    (30, "BF16", 1, 2, Some(Format::BF16)),
    (34, "TQ1_0", 256, 54, None),
    (35, "TQ2_0", 256, 66, None),
    (39, "MXFP4", 32, 17, Some(Format::MXFP4)),
    (40, "NVFP4", 64, 36, None),
    (41, "Q1_0", 128, 18, None),
];

/// Storage format of a tensor by ggml's number. Holds any number; name and block size are known for some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorKind(u32);

impl TensorKind {
    /// The kind with this number.
    pub const fn from_id(id: u32) -> Self {
        Self(id)
    }

    /// ggml's number.
    pub const fn id(self) -> u32 {
        self.0
    }

    /// ggml's name; `None` for unknown numbers.
    pub fn name(self) -> Option<&'static str> {
        self.row().map(|row| row.1)
    }

    /// Weights and bytes of a block; `None` for unknown numbers.
    pub fn block(self) -> Option<(u64, u64)> {
        self.row().map(|row| (row.2, row.3))
    }

    /// The kernels' format, if supported.
    pub fn format(self) -> Option<Format> {
        self.row()?.4
    }

    fn row(self) -> Option<&'static Row> {
        KNOWN
            .binary_search_by_key(&self.0, |row| row.0)
            .ok()
            .map(|at| &KNOWN[at])
    }
}

impl From<Format> for TensorKind {
    fn from(format: Format) -> Self {
        let row = KNOWN.iter().find(|row| row.4 == Some(format));
        Self(row.expect("a test finds each format").0)
    }
}

impl std::fmt::Display for TensorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "ggml type {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_table_equals_kernel_formats() {
        assert!(KNOWN.is_sorted_by(|a, b| a.0 < b.0));
        for &(id, name, weights, bytes, _) in KNOWN {
            let kind = TensorKind::from_id(id);
            if let Some(format) = kind.format() {
                assert_eq!(format!("{format:?}"), name);
                assert_eq!(TensorKind::from(format), kind, "{name}");
                assert_eq!(format.block_weights() as u64, weights, "{name}");
                assert_eq!(format.block_bytes() as u64, bytes, "{name}");
            }
        }
        for format in Format::ALL {
            assert_eq!(TensorKind::from(format).format(), Some(format));
        }
    }
}
