//! A model on a GPU with the processor in reserve.
//!
//! The first time that the device fails, it is opened again. When it fails once more within [`BROKEN_TIME`], the model is loaded
//! for the processor, and streams continue there from their tokens. The engine recovers a device twice within ten minutes, so
//! the second recovery is the last one that may succeed. A GPU that the settings name has no processor in reserve.

use super::super::weights::PackedModel;
use super::super::{DeviceNow, SharedArithmetic};
use crate::clock::now;
use crate::failure::Failure;
use model::{
    AdvanceBlock, Ahead, Batch, Capabilities, DeviceFault, Dims, ExportPages, Forward,
    ForwardError, PageId, Predict,
};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A device that fails twice within this time is broken.
const BROKEN_TIME: Duration = Duration::from_mins(10);

/// Loads the model for the processor.
pub(super) type OpenModel = Box<dyn Fn() -> Result<PackedModel, Failure> + Send>;

/// The arithmetic that computes a model now: streams are recorded with it.
pub(super) type ArithmeticNow = Arc<Mutex<String>>;

/// The arithmetic of this moment, as the server records streams with it and the cluster announces it.
pub(super) fn reported(arithmetic: &ArithmeticNow) -> SharedArithmetic {
    let arithmetic = Arc::clone(arithmetic);
    Arc::new(move || BTreeSet::from([lock(&arithmetic).clone()]))
}

fn lock(now: &Mutex<String>) -> MutexGuard<'_, String> {
    now.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The model for the processor, for the time when the GPU is broken.
struct Reserve {
    open: OpenModel,
    arithmetic: ArithmeticNow,
    device: DeviceNow,
}

/// A model that is computed on a GPU, or on the processor after the GPU failed.
pub(super) struct FallbackModel {
    model: Box<dyn Forward>,
    /// `None` once the processor computes, and where it never does.
    reserve: Option<Reserve>,
    /// Whether pages are exported: not where the processor may compute later, since their format changes with the device.
    exports: bool,
    /// Those of the model on the GPU; the engine keeps to them.
    dims: Dims,
    /// When the device was last opened again.
    recovered: Option<Instant>,
}

impl FallbackModel {
    pub(super) fn new(
        model: Box<dyn Forward>,
        (arithmetic, device): (ArithmeticNow, DeviceNow),
        reserve: OpenModel,
    ) -> Self {
        let reserve = Some(Reserve {
            open: reserve,
            arithmetic,
            device,
        });
        Self {
            reserve,
            exports: false,
            ..Self::without_reserve(model)
        }
    }

    /// A model that is computed on this GPU or not at all.
    pub(super) fn without_reserve(model: Box<dyn Forward>) -> Self {
        Self {
            dims: model.dims(),
            model,
            reserve: None,
            exports: true,
            recovered: None,
        }
    }

    /// Takes the model for the processor in place of the one on the GPU.
    fn fall_back(&mut self) -> Result<(), ForwardError> {
        let lost = ForwardError::Device(DeviceFault::Lost);
        let Some(reserve) = &self.reserve else {
            return Err(lost);
        };
        let packed = (reserve.open)().map_err(|why| {
            tracing::error!("the model cannot be loaded for the processor: {why}");
            lost.clone()
        })?;
        let model = packed.model;
        if !holds(model.dims(), self.dims) || model.capabilities() != self.model.capabilities() {
            tracing::error!("the model for the processor has no room for the sequences of the GPU");
            return Err(lost);
        }
        tracing::warn!("the GPU failed again: the processor computes the model from now on");
        *lock(&reserve.arithmetic) = packed.arithmetic;
        lock(&reserve.device).clone_from(&lock(&packed.device));
        self.reserve = None;
        release(std::mem::replace(&mut self.model, model));
        Ok(())
    }
}

/// Whether a model of `dims` computes all batches that one of `least` computes.
fn holds(dims: Dims, least: Dims) -> bool {
    (dims.vocab, dims.page_tokens) == (least.vocab, least.page_tokens)
        && dims.context_max >= least.context_max
        && dims.pages >= least.pages
        && dims.rows_max >= least.rows_max
        && dims.logit_rows_max >= least.logit_rows_max
}

/// Drops the model of a broken GPU on a thread of its own: a driver that gives no answer would block.
fn release(old: Box<dyn Forward>) {
    let thread = std::thread::Builder::new().name("gpu-release".to_owned());
    if let Err(why) = thread.spawn(move || drop(old)) {
        tracing::warn!("no thread for the release of the GPU: {why}");
    }
}

impl Forward for FallbackModel {
    fn dims(&self) -> Dims {
        self.dims
    }

    fn capabilities(&self) -> Capabilities {
        self.model.capabilities()
    }

    fn forward(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError> {
        self.model.forward(batch)
    }

    fn hidden(&self) -> &[f32] {
        self.model.hidden()
    }

    fn copy_page(&mut self, from: PageId, to: PageId) {
        self.model.copy_page(from, to);
    }

    fn ahead(&mut self) -> Option<&mut dyn Ahead> {
        self.model.ahead()
    }

    fn blocks(&mut self) -> Option<&mut dyn AdvanceBlock> {
        self.model.blocks()
    }

    fn mtp_head(&mut self) -> Option<&mut dyn Predict> {
        self.model.mtp_head()
    }

    fn recover(&mut self) -> Result<(), ForwardError> {
        let now = now();
        let is_recent = |then| now.saturating_duration_since(then) < BROKEN_TIME;
        let is_broken = self.reserve.is_some() && self.recovered.is_some_and(is_recent);
        if !is_broken {
            self.recovered = Some(now);
            match self.model.recover() {
                Ok(()) => {
                    tracing::warn!("the GPU failed and was opened again: streams continue");
                    return Ok(());
                }
                Err(why) => {
                    tracing::warn!("the GPU failed and cannot be opened again: {why}");
                    if self.reserve.is_none() {
                        return Err(why);
                    }
                }
            }
        }
        self.fall_back()
    }

    fn page_export(&mut self) -> Option<&mut dyn ExportPages> {
        if self.exports {
            self.model.page_export()
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIMS: Dims = Dims {
        vocab: 2,
        context_max: 8,
        page_tokens: 4,
        pages: 2,
        rows_max: 4,
        logit_rows_max: 1,
    };

    /// A model that is lost with each batch until it is opened again; `opens` is how often that works.
    struct Failing {
        opens: usize,
        dims: Dims,
    }

    impl Forward for Failing {
        fn dims(&self) -> Dims {
            self.dims
        }

        fn forward(&mut self, _: &Batch) -> Result<&mut [f32], ForwardError> {
            Err(ForwardError::Device(DeviceFault::Lost))
        }

        fn copy_page(&mut self, _: PageId, _: PageId) {}

        fn recover(&mut self) -> Result<(), ForwardError> {
            let lost = ForwardError::Device(DeviceFault::Lost);
            self.opens = self.opens.checked_sub(1).ok_or(lost)?;
            Ok(())
        }
    }

    struct Working;

    impl Forward for Working {
        fn dims(&self) -> Dims {
            DIMS
        }

        fn forward(&mut self, _: &Batch) -> Result<&mut [f32], ForwardError> {
            Ok(&mut [])
        }

        fn copy_page(&mut self, _: PageId, _: PageId) {}
    }

    fn fallback(opens: usize, dims: Dims) -> FallbackModel {
        let failing = Failing { opens, dims };
        let open: OpenModel = Box::new(|| {
            Ok(PackedModel {
                model: Box::new(Working),
                bytes: cpu::ModelBytes {
                    weights: 0,
                    kv: 0,
                    states: 0,
                    scratch: 0,
                },
                arithmetic: "processor".to_owned(),
                arithmetic_now: None,
                device: Arc::new(Mutex::new("cpu".to_owned())),
                cache_writer: None,
            })
        });
        let [arithmetic, device] =
            ["device", "card"].map(|name| Arc::new(Mutex::new(name.to_owned())));
        FallbackModel::new(Box::new(failing), (arithmetic, device), open)
    }

    #[test]
    fn second_failure_within_ten_minutes_moves_to_the_processor() {
        let mut model = fallback(9, DIMS);
        let reserve = model.reserve.as_ref().unwrap();
        let (arithmetic, device) = (reported(&reserve.arithmetic), Arc::clone(&reserve.device));
        let is_now = |wanted: &str| arithmetic() == BTreeSet::from([wanted.to_owned()]);
        model.recover().unwrap();
        assert!(model.forward(&Batch::default()).is_err(), "still the GPU");
        assert!(is_now("device") && *lock(&device) == "card");
        model.recover().unwrap();
        assert!(model.forward(&Batch::default()).is_ok());
        assert!(
            is_now("processor") && *lock(&device) == "cpu",
            "streams are recorded with what computes them"
        );
        assert!(model.recover().is_err(), "the processor is no device");
    }

    #[test]
    fn device_that_cannot_be_opened_is_replaced_at_once() {
        let mut model = fallback(0, DIMS);
        model.recover().unwrap();
        assert!(model.forward(&Batch::default()).is_ok());
    }

    #[test]
    fn named_device_is_opened_as_often_as_it_can_be() {
        let failing = Failing {
            opens: 3,
            dims: DIMS,
        };
        let mut model = FallbackModel::without_reserve(Box::new(failing));
        for opens in 0..5 {
            assert_eq!(model.recover().is_ok(), opens < 3, "{opens}");
        }
    }

    #[test]
    fn model_of_other_sizes_is_no_replacement() {
        let mut model = fallback(0, Dims { pages: 3, ..DIMS });
        assert_eq!(
            model.recover(),
            Err(ForwardError::Device(DeviceFault::Lost))
        );
    }
}
