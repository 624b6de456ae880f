//! Devices and synthetic models for tests.

use gpu::{Device, LoadError, Options, Selection};
use kernels::{Format, Isa, KvKind, Pool, dequantize};
use model::{Batch, Forward, SpanStates, Want};
use std::io::Write as _;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use synth::{Mix, SynthSpec};
use weights::ModelFiles;
use weights::gguf::{Gguf, GgufWriter, TensorKind, TensorPlan};

/// Positions in a page: few, so that short prompts have several.
pub(crate) const PAGE: usize = 16;
pub(crate) const PAGES: usize = 32;
pub(crate) const ROWS: usize = 96;

/// The device of all tests, for one at a time: a processor would run them no faster together.
pub(crate) struct OneDevice {
    device: Arc<Device>,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for OneDevice {
    type Target = Arc<Device>;

    fn deref(&self) -> &Arc<Device> {
        &self.device
    }
}

/// A device, also a processor; `None`: there is no driver.
pub(crate) fn device() -> Option<OneDevice> {
    static DEVICE: OnceLock<Option<Arc<Device>>> = OnceLock::new();
    let device = DEVICE.get_or_init(open).clone()?;
    Some(turn(device))
}

/// A device that no other test uses.
pub(crate) fn own_device() -> Option<OneDevice> {
    Some(turn(open()?))
}

fn turn(device: Arc<Device>) -> OneDevice {
    static TURN: Mutex<()> = Mutex::new(());
    OneDevice {
        device,
        _turn: TURN.lock().unwrap_or_else(PoisonError::into_inner),
    }
}

fn open() -> Option<Arc<Device>> {
    let vulkan: Selection = "vulkan".parse().expect("the name of a kind of device");
    match Device::open(&vulkan) {
        Ok(device) => Some(Arc::new(device)),
        Err(absent) => {
            let must = std::env::var("MILLRACE_GPU_TESTS").is_ok_and(|value| value == "1");
            assert!(!must, "{absent}");
            _ = writeln!(std::io::stderr(), "{absent}: skipped");
            None
        }
    }
}

/// A preset with matrices of this mix.
pub(crate) fn spec(preset: &str, mix: &str) -> SynthSpec {
    let spec = SynthSpec::preset(preset).unwrap_or_else(|| panic!("{preset} is a preset"));
    let mix = Mix::from_name(mix).unwrap_or_else(|| panic!("{mix} is a mix"));
    SynthSpec { mix, ..spec }
}

pub(crate) fn options() -> Options {
    Options {
        context_max: None,
        page_tokens: PAGE,
        pages: PAGES,
        rows_max: ROWS,
        logit_rows_max: ROWS,
        spans_max: ROWS,
        draws_max: 2 * ROWS,
        kv: KvKind::F16,
        states: 8,
        block_rows: 0,
        mtp: false,
        vectors: true,
        exact: false,
    }
}

pub(crate) fn gguf(spec: &SynthSpec) -> Gguf {
    Gguf::from_bytes(spec.to_bytes().expect("a model")).expect("a file")
}

pub(crate) fn on_device(spec: &SynthSpec, device: &Arc<Device>) -> gpu::Model {
    load(gguf(spec), device, &options())
        .unwrap_or_else(|why| panic!("{}: {why}", spec.architecture))
}

pub(crate) fn load(
    files: impl Into<ModelFiles>,
    device: &Arc<Device>,
    options: &Options,
) -> Result<gpu::Model, LoadError> {
    gpu::Model::load(
        Arc::new(files.into()),
        Arc::clone(device),
        options,
        &mut |_| {},
    )
}

/// The file with all weights in f32, with the same values: what the processor computes from it has no quantized inputs.
pub(crate) fn in_floats(gguf: &Gguf) -> Gguf {
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata() {
        writer.value(key, value);
    }
    let mut contents = Vec::new();
    for tensor in gguf.tensors() {
        let mut weights = vec![0.0; tensor.elements()];
        let format = tensor.format().expect("a format that the kernels read");
        dequantize(format, tensor.bytes, &mut weights);
        writer.tensor(TensorPlan {
            name: tensor.name.to_owned(),
            dims: tensor.dims.to_vec(),
            kind: TensorKind::from(Format::F32),
        });
        contents.push(
            weights
                .into_iter()
                .flat_map(f32::to_le_bytes)
                .collect::<Vec<u8>>(),
        );
    }
    let (mut out, mut next) = (Vec::new(), contents.iter());
    let fill = |_: &TensorPlan, sink: &mut dyn std::io::Write| {
        sink.write_all(next.next().expect("contents of each tensor"))
    };
    writer.write(&mut out, fill).expect("a file");
    Gguf::from_bytes(out).expect("a file")
}

/// The model on the processor, in floats.
pub(crate) fn on_cpu(spec: &SynthSpec) -> cpu::Model {
    on_cpu_with(spec, KvKind::F16)
}

/// As [`on_cpu`], with keys and values of this kind, and the MTP head if the file has one.
pub(crate) fn on_cpu_with(spec: &SynthSpec, kv: KvKind) -> cpu::Model {
    let options = cpu::LoadOptions {
        context_max: None,
        page_tokens: PAGE,
        pages: PAGES,
        kv,
        states: 8,
        rows_max: ROWS,
        logit_rows_max: ROWS,
        mtp: spec.mtp,
    };
    let (isa, pool) = (Isa::detect(), Pool::new(1));
    cpu::Model::load(in_floats(&gguf(spec)), isa, pool, &options, &mut |_| {}).expect("a model")
}

/// A model in which the embedding of id 7 is not a number, so neither are its logits and hidden states.
pub(crate) fn poisoned(preset: &str, mix: &str) -> Gguf {
    // Else the embedding would be the last matrix, too, and a part of all logits.
    let spec = SynthSpec {
        tied: false,
        ..spec(preset, mix)
    };
    let mut bytes = spec.to_bytes().expect("a model");
    let found = Gguf::from_bytes(bytes.clone()).expect("a file");
    let embedding = found.tensor("token_embd.weight").expect("an embedding");
    let at = embedding.offset as usize + 7 * embedding.cols() * 4;
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    Gguf::from_bytes(bytes).expect("a file")
}

/// Pseudorandom ids below `vocab`.
pub(crate) fn ids(seed: u64, count: usize, vocab: usize) -> Vec<u32> {
    let mut state = seed;
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % vocab as u64) as u32
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Pages `first..` for a sequence of `positions`.
pub(crate) fn pages(first: usize, positions: usize) -> Vec<u32> {
    let pages = first..first + positions.div_ceil(PAGE);
    pages.map(|page| page as u32).collect()
}

/// Logits of all rows of a prompt, computed in chunks of these lengths.
pub(crate) fn logits(
    model: &mut dyn Forward,
    ids: &[u32],
    first_page: usize,
    chunks: &[usize],
) -> Vec<Vec<f32>> {
    let (vocab, table) = (model.dims().vocab, pages(first_page, ids.len()));
    let (mut batch, mut all, mut at) = (Batch::default(), Vec::new(), 0);
    for (turn, &chunk) in chunks.iter().enumerate() {
        batch.clear();
        batch.push(&ids[at..at + chunk], at, &table, Want::All);
        batch.set_states(Some(SpanStates::alternating(0, turn, at)));
        let rows = model.forward(&batch).expect("a batch");
        all.extend(rows.chunks(vocab).map(<[f32]>::to_vec));
        at += chunk;
    }
    assert_eq!(at, ids.len(), "chunks cover the prompt");
    all
}

/// The index of the largest element.
pub(crate) fn best(row: &[f32]) -> usize {
    let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]));
    best.expect("a vocabulary")
}

pub(crate) fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let product = |a: &[f32], b: &[f32]| -> f64 {
        a.iter()
            .zip(b)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum()
    };
    product(a, b) / (product(a, a) * product(b, b)).sqrt()
}
