//! The choice of a GPU, and the loading of a model to it.

use super::super::adapters::OpenedAdapters;
use super::super::weights::{PackedModel, load_on_processor, load_options, load_progress};
use super::fallback::{FallbackModel, reported};
use crate::clock::now;
use crate::config::{DeviceChoice, Interface, Settings};
use crate::failure::Failure;
use crate::model_files::ModelSource;
use bench::limits::read_bandwidth;
use cpu::ModelBytes;
use gpu::{Absent, Device, Kind, LoadError, PrepareError, Selection};
use kernels::{Isa, KvKind, Pool};
use model::Forward;
use server::{LoadProgress, ModelIdentity};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use weights::encoder::EncoderKind;
use weights::{Adapter, ModelFiles};

/// `auto` takes a GPU that reads memory at least this many times as fast as the processor: weights are read once for each
/// step, and integrated GPUs read the memory that the processor reads.
const BANDWIDTH_RATIO_MIN: f64 = 1.5;

/// Fewest pages of a KV cache that is made smaller to fit: 4,096 positions.
const PAGES_MIN: usize = 4096 / cpu::PAGE_TOKENS;

/// A panic of a driver's library.
#[derive(Debug, thiserror::Error)]
#[error("the driver, or its library, failed in a way that it should not")]
pub(crate) struct DriverPanicked;

/// Does something with drivers: wgpu panics where one does what it never should.
pub(crate) fn with_drivers<T>(work: impl FnOnce() -> T) -> Result<T, DriverPanicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| DriverPanicked)
}

/// Why a GPU does not compute a model.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Device(#[from] Absent),
    #[error("an encoder is computed on the CPU only")]
    Encoder,
    #[error("{device}: {why}")]
    Load {
        device: String,
        why: LoadError,
        /// Whether the driver had no memory for it.
        is_full: bool,
    },
    #[error("{device}: {why}")]
    Failed { device: String, why: PrepareError },
    #[error("{device} {speeds}")]
    Slow { device: String, speeds: Speeds },
    #[error("{0}")]
    Panicked(#[from] DriverPanicked),
    #[error("the files changed while the model was loaded")]
    Changed,
    #[error("{0}")]
    Files(String),
}

/// Bytes that are read in a second.
#[derive(Clone, Copy, Debug)]
struct Speeds {
    device: f64,
    processor: f64,
}

impl fmt::Display for Speeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [device, processor] = [self.device, self.processor].map(|read| read / 1e9);
        write!(f, "reads {device:.0} GB/s, the processor {processor:.0}")
    }
}

impl Refusal {
    /// Whether the device may have what it refused when another model was unloaded.
    fn is_lack_of_memory(&self) -> bool {
        match self {
            Self::Load { is_full, .. } => *is_full,
            // The words of drivers differ; one that has no memory left may open no further device, either.
            Self::Device(absent) => matches!(absent, Absent::Refused { .. }),
            _ => false,
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Files(failure.to_string())
    }
}

/// Loads a model to the GPU of the settings, `seen`: a tower gives it up to so many vectors of
/// an image in place of tokens. `None`: the processor computes
/// it, because the settings say so, or because `auto` found no GPU for it.
///
/// # Errors
/// A GPU that the settings name cannot compute the model.
pub(in super::super) fn load_on_gpu(
    source: &ModelSource,
    (files, adapters, seen): (&ModelFiles, &[Adapter], Option<usize>),
    isa: Isa,
    settings: &Settings,
    report: &mut dyn FnMut(LoadProgress),
) -> Result<Option<PackedModel>, Failure> {
    let choice = settings.model.device;
    let DeviceChoice::Gpu { .. } = choice else {
        return Ok(match choice {
            DeviceChoice::Cpu => None,
            _ => load_auto(source, (files, adapters, seen), isa, settings, report),
        });
    };
    let loaded = load(source, (files, adapters, seen), settings, report);
    let (model, _) = loaded.map_err(|why| {
        let words = format!("model.device = {choice}: {why}");
        if why.is_lack_of_memory() {
            Failure::DeviceMemory(words)
        } else {
            Failure::user(words)
        }
    })?;
    let mut packed = packed(model, settings);
    packed.model = Box::new(FallbackModel::without_reserve(packed.model));
    Ok(Some(packed))
}

/// The model on a GPU that is worth it, with the processor's in reserve.
fn load_auto(
    source: &ModelSource,
    (files, adapters, seen): (&ModelFiles, &[Adapter], Option<usize>),
    isa: Isa,
    settings: &Settings,
    report: &mut dyn FnMut(LoadProgress),
) -> Option<PackedModel> {
    let (model, speeds) = match load(source, (files, adapters, seen), settings, report) {
        Ok(loaded) => loaded,
        Err(why) => {
            tracing::info!("model.device = auto: the processor computes the model: {why}");
            return None;
        }
    };
    let name = device_name(&model.device());
    let why = speeds.map_or_else(String::new, |speeds| format!(", which {speeds}"));
    tracing::info!("model.device = auto: the model is computed on {name}{why}");
    let (source, owned, stamps) = (source.clone(), settings.clone(), files.stamps());
    let open = move || -> Result<PackedModel, Failure> {
        let files = source.open(owned.model.quantize)?;
        if files.stamps() != stamps {
            return Err(Failure::user(Refusal::Changed));
        }
        let opened = OpenedAdapters::open(&files, &owned)?;
        load_on_processor((files, &opened.adapters, None), isa, &owned, &mut |_| {})
    };
    let mut packed = packed(model, settings);
    let now = Arc::new(Mutex::new(packed.arithmetic.clone()));
    let reported_now = (Arc::clone(&now), Arc::clone(&packed.device));
    packed.model = Box::new(FallbackModel::new(
        packed.model,
        reported_now,
        Box::new(open),
    ));
    packed.arithmetic_now = Some(reported(&now));
    Some(packed)
}

/// Everything that decides the bits of a model on a GPU.
fn arithmetic([name, driver]: [&str; 2], is_exact: bool, settings: &Settings) -> String {
    let rows = if is_exact {
        "exact"
    } else {
        ModelIdentity::TILES
    };
    let kv = match settings.model.kv_type.into() {
        KvKind::F16 => String::new(),
        kind => format!(", kv {kind}"),
    };
    format!("{}, {name}, {driver}, {rows}{kv}", gpu::ARITHMETIC)
}

/// A model that is on a GPU.
fn packed(model: gpu::Model, settings: &Settings) -> PackedModel {
    let device = model.device();
    let facts = device.facts();
    let is_exact = settings.model.deterministic || device.distrusts_tiles();
    PackedModel {
        bytes: model_bytes(model.bytes()),
        arithmetic: arithmetic([&facts.name, &facts.driver], is_exact, settings),
        arithmetic_now: None,
        device: Arc::new(Mutex::new(device_name(&device))),
        cache_writer: None,
        model: Box::new(model),
    }
}

/// Bytes of a model on a GPU, as those of a model on the processor are shown.
pub(super) fn model_bytes(place: gpu::Place) -> ModelBytes {
    let bytes = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    ModelBytes {
        weights: bytes(place.weights),
        kv: bytes(place.kv),
        states: bytes(place.states),
        scratch: bytes(place.scratch),
    }
}

/// Opens the device and loads the model to it. With `auto`, the bandwidths for which the device was chosen come along.
fn load(
    source: &ModelSource,
    (files, adapters, seen): (&ModelFiles, &[Adapter], Option<usize>),
    settings: &Settings,
    report: &mut dyn FnMut(LoadProgress),
) -> Result<(gpu::Model, Option<Speeds>), Refusal> {
    with_drivers(|| load_with_driver(source, (files, adapters, seen), settings, report))?
}

fn load_with_driver(
    source: &ModelSource,
    (files, adapters, seen): (&ModelFiles, &[Adapter], Option<usize>),
    settings: &Settings,
    report: &mut dyn FnMut(LoadProgress),
) -> Result<(gpu::Model, Option<Speeds>), Refusal> {
    if EncoderKind::of(files.metadata()).is_some() {
        return Err(Refusal::Encoder);
    }
    let started = now();
    let selection = selection(settings.model.device);
    let device = Device::open(&selection)?;
    let speeds = match selection.kind {
        Kind::Auto => expect_fast(&device)?,
        _ => None,
    };
    let (name, driver) = (device.facts().name.clone(), device.facts().driver.clone());
    let named = device_name(&device);
    let of_device = |(why, is_full)| Refusal::Load {
        device: named.clone(),
        why,
        is_full,
    };
    let opened = source.open(settings.model.quantize)?;
    if opened.stamps() != files.stamps() {
        return Err(Refusal::Changed);
    }
    let options = gpu_options(files, seen, settings)?;
    let model = load_fitting(
        (&Arc::new(opened), adapters),
        Arc::new(device),
        options,
        settings,
        report,
    )
    .map_err(of_device)?;
    for kernel in model.device().replaced_kernels() {
        tracing::warn!("{named}: a simpler kernel replaces {kernel}");
    }
    let bytes = model.bytes();
    tracing::info!(
        device = name,
        driver,
        weights_mib = bytes.weights >> 20,
        kv_mib = bytes.kv >> 20,
        states_mib = bytes.states >> 20,
        scratch_mib = bytes.scratch >> 20,
        context = model.dims().context_max,
        "loaded to the GPU in {:.2} s",
        (now() - started).as_secs_f64()
    );
    Ok((model, speeds))
}

/// Name and driver.
fn device_name(device: &Device) -> String {
    let facts = device.facts();
    format!("{} ({})", facts.name, facts.driver)
}

fn gpu_options(
    files: &ModelFiles,
    seen: Option<usize>,
    settings: &Settings,
) -> Result<gpu::Options, Failure> {
    let options = load_options(files, settings)?;
    let config = files.config(settings.model.context);
    let config = config.map_err(Failure::user)?;
    Ok(gpu::Options {
        context_max: options.context_max,
        page_tokens: options.page_tokens,
        pages: options.pages,
        rows_max: options.rows_max,
        logit_rows_max: options.logit_rows_max,
        spans_max: settings.engine.sequences_max.min(options.rows_max),
        // Each sequence draws once, and rows that the processor draws from are draws, too.
        draws_max: settings.engine.sequences_max + options.logit_rows_max,
        kv: options.kv,
        states: options.states,
        block_rows: seen.filter(|_| config.has_blocks()).unwrap_or(0),
        mtp: options.mtp,
        vectors: seen.is_some(),
        exact: settings.model.deterministic,
    })
}

/// Loads the model. Where `model.kv_mib` does not say how large the KV cache is, its default follows the memory of the
/// machine, which may be more than the device has: the cache is halved until the model fits. A device whose driver had no
/// memory is opened again for that.
///
/// # Errors
/// The model is not loaded; the second value is whether the driver had no memory for it.
fn load_fitting(
    (files, adapters): (&Arc<ModelFiles>, &[Adapter]),
    mut device: Arc<Device>,
    mut options: gpu::Options,
    settings: &Settings,
    report: &mut dyn FnMut(LoadProgress),
) -> Result<gpu::Model, (LoadError, bool)> {
    loop {
        let loaded = gpu::Model::load_adapted(
            (Arc::clone(files), adapters),
            Arc::clone(&device),
            &options,
            &mut |packed| report(load_progress(packed)),
        );
        let can_shrink = settings.model.kv_mib.is_none() && options.pages > PAGES_MIN;
        match loaded {
            Err(LoadError::TooLarge(why)) if can_shrink => {
                options.pages = (options.pages / 2).max(PAGES_MIN);
                let context = options.pages * options.page_tokens;
                options.context_max = options.context_max.map(|most| most.min(context));
                tracing::debug!("{why}: again with {} pages", options.pages);
                if device.is_out_of_memory() {
                    device = match device.reopen() {
                        Ok(device) => Arc::new(device),
                        Err(_) => return Err((why.into(), true)),
                    };
                }
            }
            done => return done.map_err(|why| (why, device.is_out_of_memory())),
        }
    }
}

/// The device of the crate `gpu` that a setting means.
pub(crate) fn selection(choice: DeviceChoice) -> Selection {
    let (kind, index) = match choice {
        DeviceChoice::Auto => (Kind::Auto, None),
        DeviceChoice::Cpu => (Kind::Cpu, None),
        DeviceChoice::Gpu { interface, index } => {
            let kind = match interface {
                Interface::Any => Kind::Gpu,
                Interface::Vulkan => Kind::Vulkan,
                Interface::Metal => Kind::Metal,
                Interface::Dx12 => Kind::Dx12,
            };
            (kind, index)
        }
    };
    Selection { kind, index }
}

/// Refuses a device that reads memory no faster than the processor. `None`: that of the processor cannot be measured.
fn expect_fast(device: &Device) -> Result<Option<Speeds>, Refusal> {
    let begun = now();
    let device_read = device.read_bandwidth(|| now() - begun);
    let device_read = device_read.map_err(|why| Refusal::Failed {
        device: device_name(device),
        why,
    })?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut pool = Pool::new(processors);
    let Ok(processor_read) = read_bandwidth(Isa::fastest(), &mut pool) else {
        return Ok(None);
    };
    let speeds = Speeds {
        device: device_read,
        processor: processor_read,
    };
    if device_read >= processor_read * BANDWIDTH_RATIO_MIN {
        return Ok(Some(speeds));
    }
    Err(Refusal::Slow {
        device: device_name(device),
        speeds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KvType;

    #[test]
    fn tiles_are_named_with_every_type_of_keys() {
        for kv_type in [KvType::F16, KvType::Q8, KvType::Q4] {
            for is_exact in [false, true] {
                let mut settings = Settings::default();
                settings.model.kv_type = kv_type;
                // A driver's name may have the separator of terms.
                let device = ["llvmpipe (LLVM 19.1, 256 bits)", "Mesa"];
                let identity = ModelIdentity {
                    arithmetic: arithmetic(device, is_exact, &settings),
                    ..ModelIdentity::default()
                };
                let is_equal = identity.computes_as(&identity);
                assert_eq!(is_equal, is_exact, "{identity:?}");
            }
        }
    }
}
