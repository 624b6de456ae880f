//! Why a model is not loaded on a device.

use crate::place::{Place, TooLarge};
use crate::supports::Unsupported;
use crate::{DeviceError, KernelError, PrepareError};
use model::DeviceFault;

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

impl LoadError {
    /// The refusal of a program that takes `place` on the device.
    pub(crate) fn of_program(error: PrepareError, place: Place) -> Self {
        match error {
            PrepareError::Device(error) => Self::Device(error).in_place(place),
            PrepareError::Kernel(error) if error.error == DeviceError::OutOfMemory => {
                Self::too_large(&error, place)
            }
            PrepareError::Kernel(error) => Self::Kernel(error),
            error @ (PrepareError::OutOfMemory { .. }
            | PrepareError::TooLarge { .. }
            | PrepareError::Workgroups { .. }) => Self::too_large(&error, place),
        }
    }

    /// Adds the sizes of the model to an error of a device that has no memory left.
    pub(crate) fn in_place(self, place: Place) -> Self {
        match self {
            Self::Device(error @ DeviceError::OutOfMemory) => Self::too_large(&error, place),
            other => other,
        }
    }

    pub(crate) fn too_large(why: &impl std::fmt::Display, place: Place) -> Self {
        let why = why.to_string();
        Self::TooLarge(TooLarge { place, why })
    }

    /// The fault of a device that does not take the model once more.
    pub(crate) fn fault(self) -> DeviceFault {
        match self {
            Self::Device(error) => error.into(),
            Self::TooLarge(_) => DeviceFault::OutOfMemory,
            _ => DeviceFault::Failed,
        }
    }
}
