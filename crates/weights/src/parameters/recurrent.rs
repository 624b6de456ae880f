//! The weights of a recurrent layer.

use super::delta::DeltaNet;
use super::linear::Names;
use super::mamba::Mamba;
use super::short_conv::ShortConv;
use super::tensors::Tensors;
use crate::Config;
use crate::LoadError;
use crate::config::{RecurrentConfig, RecurrentPart};
use kernels::{Matrix, ScanRule};

/// A recurrent layer, by its kind.
pub enum Recurrent {
    Delta(DeltaNet),
    Mamba(Mamba),
    Convolution(ShortConv),
}

impl Recurrent {
    pub(super) fn load(
        tensors: &mut Tensors<'_>,
        config: &Config,
        recurrent: &RecurrentConfig,
        names: &Names,
    ) -> Result<Self, LoadError> {
        let taps = recurrent.taps;
        Ok(match &recurrent.part {
            RecurrentPart::Nothing(_) => {
                Self::Convolution(ShortConv::load(tensors, config.dim, taps, names)?)
            }
            RecurrentPart::Scan(heads) if heads.rule == ScanRule::Delta => {
                Self::Delta(DeltaNet::load(tensors, config, (heads, taps), names)?)
            }
            RecurrentPart::Scan(heads) => {
                Self::Mamba(Mamba::load(tensors, config, (heads, taps), names)?)
            }
        })
    }

    pub(super) fn matrices(&self) -> Vec<&Matrix> {
        match self {
            Self::Delta(layer) => layer.matrices(),
            Self::Mamba(layer) => layer.matrices(),
            Self::Convolution(layer) => layer.matrices(),
        }
    }
}
