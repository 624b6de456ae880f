//! Storage formats of a model's tensors.

use super::error::SynthError;
use kernels::Format;

/// Formats of a model's matrices. Norms, biases and rope factors are always f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub enum Mix {
    /// One format for all matrices.
    Uniform(Format),
    /// Q4_K, with Q6_K where llama.cpp's rule of this name puts Q6_K.
    Q4_K_M,
    /// Q5_K, with Q6_K where llama.cpp's rule of this name puts Q6_K.
    Q5_K_M,
    /// Experts in MXFP4, the rest in Q8_0.
    MXFP4_MOE,
}

/// Role of a matrix, as far as the rules depend on the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The output matrix, or an embedding that is also the output.
    Output,
    /// Values of attention (or query, key and value in one), in layer `.0`.
    Value(u32),
    /// Down projection of the feed-forward block, in layer `.0`.
    Down(u32),
    /// Experts, except for their down projection.
    Expert,
    /// Down projection of experts, in layer `.0`.
    ExpertDown(u32),
    /// All other matrices.
    Plain,
}

/// Names, mixes, and llama.cpp's numbers of them (`general.file_type`, `llama_ftype` in `llama.h`).
const TABLE: &[(&str, Mix, u32)] = &[
    ("F32", Mix::Uniform(Format::F32), 0),
    ("F16", Mix::Uniform(Format::F16), 1),
    ("BF16", Mix::Uniform(Format::BF16), 32),
    ("Q4_0", Mix::Uniform(Format::Q4_0), 2),
    ("Q4_1", Mix::Uniform(Format::Q4_1), 3),
    ("Q5_0", Mix::Uniform(Format::Q5_0), 8),
    ("Q5_1", Mix::Uniform(Format::Q5_1), 9),
    ("Q8_0", Mix::Uniform(Format::Q8_0), 7),
    ("Q2_K", Mix::Uniform(Format::Q2_K), 10),
    ("Q3_K", Mix::Uniform(Format::Q3_K), 11),
    ("Q4_K", Mix::Uniform(Format::Q4_K), 14),
    ("Q5_K", Mix::Uniform(Format::Q5_K), 16),
    ("Q6_K", Mix::Uniform(Format::Q6_K), 18),
    ("IQ4_NL", Mix::Uniform(Format::IQ4_NL), 25),
    ("IQ4_XS", Mix::Uniform(Format::IQ4_XS), 30),
    ("IQ3_S", Mix::Uniform(Format::IQ3_S), 26),
    ("IQ3_XXS", Mix::Uniform(Format::IQ3_XXS), 23),
    ("IQ2_S", Mix::Uniform(Format::IQ2_S), 28),
    ("IQ2_XS", Mix::Uniform(Format::IQ2_XS), 20),
    ("IQ2_XXS", Mix::Uniform(Format::IQ2_XXS), 19),
    ("MXFP4", Mix::Uniform(Format::MXFP4), 38),
    ("MXFP4_MOE", Mix::MXFP4_MOE, 38),
    ("Q4_K_M", Mix::Q4_K_M, 15),
    ("Q5_K_M", Mix::Q5_K_M, 17),
];

impl Mix {
    /// All mixes.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.1)
    }

    /// The mix with this name, ignoring case (`q4_k_m`).
    pub fn from_name(name: &str) -> Option<Self> {
        let mut rows = TABLE.iter();
        let row = rows.find(|row| row.0.eq_ignore_ascii_case(name));
        row.map(|row| row.1)
    }

    /// Name of the mix.
    pub fn name(self) -> &'static str {
        self.row().map_or("", |row| row.0)
    }

    /// llama.cpp's number.
    pub(super) fn file_type(self) -> u32 {
        self.row().map_or(0, |row| row.2)
    }

    fn row(self) -> Option<&'static (&'static str, Self, u32)> {
        TABLE.iter().find(|row| row.1 == self)
    }

    /// The format of a matrix with rows of `cols` weights in a model of `layers` layers.
    pub(super) fn format(self, role: Role, layers: u32, cols: u64) -> Result<Format, SynthError> {
        let fits = |format: Format| cols.is_multiple_of(format.block_weights() as u64);
        let plain = match self {
            Self::Uniform(format) if fits(format) => return Ok(format),
            Self::Uniform(format) => return Err(SynthError::Blocks { cols, format }),
            Self::Q4_K_M => Format::Q4_K,
            Self::Q5_K_M => Format::Q5_K,
            Self::MXFP4_MOE => match role {
                Role::Expert | Role::ExpertDown(_) if fits(Format::MXFP4) => {
                    return Ok(Format::MXFP4);
                }
                _ if fits(Format::Q8_0) => return Ok(Format::Q8_0),
                _ => return Ok(Format::F16),
            },
        };
        let wanted = match role {
            Role::Output => Format::Q6_K,
            Role::Value(layer) | Role::Down(layer) | Role::ExpertDown(layer)
                if more_bits(layer, layers) =>
            {
                Format::Q6_K
            }
            _ => plain,
        };
        // As in llama.cpp where rows are no multiple of 256.
        let fallback = match wanted {
            Format::Q4_K => Format::Q5_0,
            Format::Q5_K => Format::Q5_1,
            _ => Format::Q8_0,
        };
        Ok([wanted, fallback]
            .into_iter()
            .find(|format| fits(*format))
            .unwrap_or(Format::F16))
    }
}

impl std::fmt::Display for Mix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// `use_more_bits` of llama.cpp's quantizer: the first and last eighths, and each third layer between.
fn more_bits(layer: u32, layers: u32) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q4_k_m_follows_the_rule() {
        let six: Vec<u32> = (0..16).filter(|&layer| more_bits(layer, 16)).collect();
        assert_eq!(six, [0, 1, 4, 7, 10, 13, 14, 15]);
        let format = |role, cols| Mix::Q4_K_M.format(role, 16, cols).unwrap();
        assert_eq!(format(Role::Output, 2048), Format::Q6_K);
        assert_eq!(format(Role::Value(0), 2048), Format::Q6_K);
        assert_eq!(format(Role::Down(2), 8192), Format::Q4_K);
        assert_eq!(format(Role::Plain, 64), Format::Q5_0);
        assert_eq!(format(Role::Plain, 40), Format::F16);
    }

    #[test]
    fn uniform_mix_keeps_the_format() {
        assert!(
            Mix::Uniform(Format::Q4_K)
                .format(Role::Plain, 2, 64)
                .is_err()
        );
    }

    #[test]
    fn names_round_trip() {
        let formats = Format::ALL.into_iter().map(Mix::Uniform);
        for mix in Mix::all().chain(formats) {
            assert_eq!(Mix::from_name(&mix.name().to_lowercase()), Some(mix));
        }
        assert_eq!(Mix::from_name("Q9"), None);
    }
}
