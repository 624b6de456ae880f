//! Why a model is not loaded on a device.

use crate::place::TooLarge;
use crate::supports::Unsupported;
use crate::{DeviceError, KernelError};

/// Why a model is not loaded on a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The files do not describe a supported model, or an option is out of bounds: the CPU does not load it, either.
    #[error(transparent)]
    Files(#[from] weights::LoadError),
    /// The CPU runs the model, the device does not.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The model does not fit.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The driver does not compile a kernel.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A kernel does not run, or computes something else than its definition, on small shapes.
    #[error("kernel `{kernel}` fails its check on this device: {why}")]
    SelfTest {
        /// The kernel.
        kernel: String,
        /// Where the results differ.
        why: String,
    },
}

impl From<weights::ConfigError> for LoadError {
    fn from(error: weights::ConfigError) -> Self {
        Self::Files(error.into())
    }
}
