//! Where a model is computed: on the processor, or on a GPU.

use super::weights::PackedModel;
use crate::config::{DeviceChoice, Settings};
use crate::failure::Failure;
use server::LoadProgress;
use weights::{Adapter, ModelFiles};

/// Loads a model to the GPU of the settings. `None`: the processor computes it, because the settings say so, or because
/// `auto` found no GPU for it.
///
/// # Errors
/// A GPU that the settings name cannot compute the model; this build has no GPU support.
#[cfg(not(feature = "gpu"))]
pub(super) fn load_on_gpu(
    _: &ModelFiles,
    _: &[Adapter],
    settings: &Settings,
    _: &mut dyn FnMut(LoadProgress),
) -> Result<Option<PackedModel>, Failure> {
    match settings.model.device {
        DeviceChoice::Auto | DeviceChoice::Cpu => Ok(None),
        choice @ DeviceChoice::Gpu { .. } => Err(Failure::user(format!(
            "model.device = {choice}: this program was built without support of GPUs (docs/devices.md says which package has it)"
        ))),
    }
}
