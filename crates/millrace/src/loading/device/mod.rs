//! Where a model is computed: on the processor, or on a GPU.
//!
//! With `auto`, everything that speaks against the GPU is a line in the log, and the processor computes the model. A GPU that the
//! settings name computes the model, or the reason is an error at start.

#[cfg(feature = "gpu")]
mod fallback;
#[cfg(feature = "gpu")]
mod measured;
#[cfg(feature = "gpu")]
mod placement;
#[cfg(feature = "gpu")]
pub(crate) use measured::measure_on_gpu;
#[cfg(feature = "gpu")]
pub(super) use placement::load_on_gpu;
#[cfg(feature = "gpu")]
pub(crate) use placement::selection as device_selection;
#[cfg(feature = "gpu")]
pub(crate) use placement::with_drivers;

#[cfg(not(feature = "gpu"))]
pub(super) use absent::load_on_gpu;
#[cfg(not(feature = "gpu"))]
pub(crate) use absent::measure_on_gpu;

/// A program that was built without support of GPUs.
#[cfg(not(feature = "gpu"))]
mod absent {
    use super::super::weights::PackedModel;
    use crate::config::{DeviceChoice, Settings};
    use crate::failure::Failure;
    use crate::model_files::ModelSource;
    use bench::speed::{SpeedOptions, SpeedReport};
    use kernels::Isa;
    use server::LoadProgress;
    use weights::gguf::Gguf;
    use weights::{Adapter, ModelFiles};

    /// `None`: the processor computes the model.
    ///
    /// # Errors
    /// The settings name a GPU.
    pub(in super::super) fn load_on_gpu(
        _: &ModelSource,
        _: (&ModelFiles, &[Adapter], Option<usize>),
        _: Isa,
        settings: &Settings,
        _: &mut dyn FnMut(LoadProgress),
    ) -> Result<Option<PackedModel>, Failure> {
        match settings.model.device {
            DeviceChoice::Auto | DeviceChoice::Cpu => Ok(None),
            choice @ DeviceChoice::Gpu { .. } => Err(without_gpus(choice)),
        }
    }

    /// Measures nothing.
    ///
    /// # Errors
    /// Always.
    pub(crate) fn measure_on_gpu(
        _: Gguf,
        choice: DeviceChoice,
        _: bool,
        _: &SpeedOptions,
    ) -> Result<SpeedReport, Failure> {
        Err(without_gpus(choice))
    }

    fn without_gpus(choice: DeviceChoice) -> Failure {
        Failure::user(format!(
            "model.device = {choice}: this program was built without support of GPUs; docs/devices.md says which package has it"
        ))
    }
}
