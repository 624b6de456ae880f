//! `millrace bench model --device`: the speed of a model on a GPU.

use super::placement::{model_bytes, selection, with_drivers};
use crate::clock::now;
use crate::config::DeviceChoice;
use crate::failure::Failure;
use bench::speed::{KernelUse, SpeedDevice, SpeedOptions, SpeedReport, measure_on_device};
use gpu::{Device, LoadError, Model, Options};
use model::Batch;
use std::sync::Arc;
use weights::ModelFiles;
use weights::gguf::Gguf;

/// Measures a model on the device that `choice` names, or with `auto` on the first that is no processor.
///
/// # Errors
/// There is no such device, it does not compute the model, or the options are out of bounds.
pub(crate) fn measure_on_gpu(
    gguf: Gguf,
    choice: DeviceChoice,
    exact: bool,
    options: &SpeedOptions,
) -> Result<SpeedReport, Failure> {
    let device = with_drivers(|| Device::open(&selection(choice))).map_err(Failure::user)?;
    let device = Arc::new(device.map_err(Failure::user)?);
    let begun = now();
    let read = device.read_bandwidth(|| now() - begun);
    let facts = device.facts();
    let measured = SpeedDevice {
        name: format!("{} ({})", facts.name, facts.driver),
        read: read.map_err(Failure::user)?,
    };
    let load = |gguf: Gguf, options: &cpu::LoadOptions| {
        let options = Options {
            context_max: options.context_max,
            page_tokens: options.page_tokens,
            pages: options.pages,
            rows_max: options.rows_max,
            logit_rows_max: options.logit_rows_max,
            spans_max: options.logit_rows_max,
            draws_max: options.logit_rows_max,
            kv: options.kv,
            states: options.states,
            block_rows: 0,
            mtp: options.mtp,
            vectors: false,
            exact,
        };
        let files = Arc::new(ModelFiles::from(gguf));
        let model = Model::load(files, device, &options, &mut |_| {})?;
        let bytes = model_bytes(model.bytes());
        Ok::<_, LoadError>((model, bytes))
    };
    let time_step = |model: &mut Model, batch: &Batch| {
        let kernels = model.time_step(batch)?.map(|kernels| {
            let kernels = kernels.into_iter().map(|kernel| KernelUse {
                kernel: kernel.name,
                dispatches: kernel.dispatches,
                us: kernel.seconds * 1e6,
            });
            kernels.collect()
        });
        Ok(kernels)
    };
    measure_on_device(gguf, measured, options, load, time_step).map_err(Failure::user)
}
