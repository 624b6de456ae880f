//! Tensor formats of GGUF.

/// A tensor format of weights, as in GGUF (ggml's block layouts).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types)]
#[expect(missing_docs)]
pub enum Format {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    IQ3_S,
    IQ3_XXS,
    IQ2_S,
    IQ2_XS,
    IQ2_XXS,
    MXFP4,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 21] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2_K,
        Self::Q3_K,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::IQ4_NL,
        Self::IQ4_XS,
        Self::IQ3_S,
        Self::IQ3_XXS,
        Self::IQ2_S,
        Self::IQ2_XS,
        Self::IQ2_XXS,
        Self::MXFP4,
    ];

    /// Weights in one block.
    pub const fn block_weights(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q4_0
            | Self::Q4_1
            | Self::Q5_0
            | Self::Q5_1
            | Self::Q8_0
            | Self::IQ4_NL
            | Self::MXFP4 => 32,
            _ => 256,
        }
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2_K => 84,
            Self::Q3_K => 110,
            Self::Q4_K => 144,
            Self::Q5_K => 176,
            Self::Q6_K => 210,
            Self::IQ4_NL => 18,
            Self::IQ4_XS => 136,
            Self::IQ3_S => 110,
            Self::IQ3_XXS => 98,
            Self::IQ2_S => 82,
            Self::IQ2_XS => 74,
            Self::IQ2_XXS => 66,
            Self::MXFP4 => 17,
        }
    }

    /// Whether [`quantize`](crate::quantize) writes the format. Finding the patterns of the others takes a search that
    /// is not built.
    pub const fn is_written(self) -> bool {
        !matches!(
            self,
            Self::IQ3_S | Self::IQ3_XXS | Self::IQ2_S | Self::IQ2_XS | Self::IQ2_XXS
        )
    }
}
