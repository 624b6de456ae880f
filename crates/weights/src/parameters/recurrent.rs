//! The weights of a recurrent layer.

use super::delta::DeltaNet;
use super::linear::Names;
use super::mamba::Mamba;
use super::short_conv::ShortConv;
use super::tensors::{KernelPacking, Packing, Tensors};
use crate::Config;
use crate::LoadError;
use crate::config::{RecurrentConfig, RecurrentPart};
use kernels::ScanRule;

/// A recurrent layer, by its kind.
pub enum Recurrent<P: Packing = KernelPacking> {
    Delta(DeltaNet<P>),
    Mamba(Mamba<P>),
    Convolution(ShortConv<P>),
}

impl<P: Packing> Recurrent<P> {
    pub(super) fn load<T: Tensors<Packing = P>>(
        tensors: &mut T,
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

    pub(super) fn matrices(&self) -> Vec<&P::Matrix> {
        match self {
            Self::Delta(layer) => layer.matrices(),
            Self::Mamba(layer) => layer.matrices(),
            Self::Convolution(layer) => layer.matrices(),
        }
    }
}
