//! Writing of a synthetic model, and of adapters: random low-rank pairs for every projection that an adapter may
//! change.

use super::blocks::{Rng, fill_row};
use super::error::SynthError;
use super::plan::{Fill, Planned};
use super::spec::SynthSpec;
use super::{keys, vocab};
use kernels::Format;
use std::fs::File;
use std::io;
use std::io::{BufWriter, Write};
use std::path::Path;
use weights::adapters::is_projection;
use weights::gguf::{Gguf, GgufWriter, TensorPlan, WriteError};

impl SynthSpec {
    /// Writes the model; returns the number of bytes. With `vocab_from`, the tokenizer is copied from that
    /// file, and the number of its tokens replaces [`SynthSpec::vocab`]. Buffers one row of one tensor at a
    /// time.
    ///
    /// # Errors
    /// See [`SynthError`]; an impossible shape is rejected before anything is written.
    pub fn write<W: Write>(
        &self,
        vocab_from: Option<&Gguf>,
        out: &mut W,
    ) -> Result<u64, SynthError> {
        let spec = self.with_vocab_of(vocab_from)?;
        spec.check()?;
        let plan = spec.plan()?;
        let mut writer = GgufWriter::new();
        keys::put(&spec, &mut writer);
        match vocab_from {
            Some(other) => vocab::put_from(other, &mut writer),
            None => vocab::put_bytes(spec.vocab, spec.task.adds_eos(), spec.marks, &mut writer),
        }
        Ok(write_planned(writer, &plan, spec.seed, out)?)
    }

    /// Writes the model to a file, which is renamed to `path` when complete.
    ///
    /// # Errors
    /// As [`SynthSpec::write`].
    pub fn create(&self, vocab_from: Option<&Gguf>, path: &Path) -> Result<u64, SynthError> {
        const BUFFER_BYTES: usize = 1 << 20;
        let mut partial = path.as_os_str().to_owned();
        partial.push(".tmp");
        let write = || {
            let file = File::create(&partial).map_err(WriteError::Io)?;
            let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
            let bytes = self.write(vocab_from, &mut out)?;
            out.into_inner()
                .map_err(|error| WriteError::Io(error.into_error()))?;
            std::fs::rename(&partial, path).map_err(WriteError::Io)?;
            Ok(bytes)
        };
        let written = write();
        if written.is_err() {
            _ = std::fs::remove_file(&partial); // the first error is the one to report
        }
        written
    }

    /// The model in memory, for tests and for the built-in model.
    ///
    /// # Errors
    /// As [`SynthSpec::write`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, SynthError> {
        let mut bytes = Vec::new();
        self.write(None, &mut bytes)?;
        Ok(bytes)
    }

    /// Number of weights, norms and biases included.
    ///
    /// # Errors
    /// As [`SynthSpec::check`].
    pub fn parameters(&self) -> Result<u64, SynthError> {
        self.check()?;
        Ok(self
            .plan()?
            .iter()
            .map(|planned| planned.tensor.dims.iter().product::<u64>())
            .sum())
    }

    fn with_vocab_of(&self, other: Option<&Gguf>) -> Result<Self, SynthError> {
        let vocab = match other {
            Some(other) => vocab::size_of(other)?,
            None => self.vocab,
        };
        Ok(Self {
            vocab,
            ..self.clone()
        })
    }
}

/// Writes a file of these tensors, whose keys the writer has.
pub(super) fn write_planned<W: Write>(
    mut writer: GgufWriter,
    plan: &[Planned],
    seed: u64,
    out: &mut W,
) -> Result<u64, WriteError> {
    for planned in plan {
        writer.tensor(planned.tensor.clone());
    }
    let (mut next, mut row) = (plan.iter(), Vec::new());
    writer.write(out, |_, sink| match next.next() {
        Some(planned) => planned.fill(seed, &mut row, sink),
        None => Ok(()),
    })
}

impl Planned {
    /// Writes the tensor's data row by row; `row` is a reused buffer.
    fn fill(&self, seed: u64, row: &mut Vec<u8>, out: &mut dyn Write) -> io::Result<()> {
        let name = &self.tensor.name;
        let cols = self.tensor.dims[0] as usize;
        match &self.fill {
            Fill::Values(values) => put_f32s(values.iter().copied(), out),
            Fill::Norm { mean } => {
                let mut rng = Rng::of_row(seed, name, 0);
                let len: u64 = self.tensor.dims.iter().product();
                put_f32s((0..len).map(|_| mean * (1.0 + 0.1 * rng.signed())), out)
            }
            Fill::Noise { format, deviation } => {
                row.resize(row_bytes(*format, cols), 0);
                for number in 0..self.tensor.dims[1..].iter().product() {
                    let mut rng = Rng::of_row(seed, name, number);
                    fill_row(*format, *deviation, &mut rng, row);
                    out.write_all(row)?;
                }
                Ok(())
            }
        }
    }
}

/// `cols` is a multiple of the block size, as the plan checked.
fn row_bytes(format: Format, cols: usize) -> usize {
    cols / format.block_weights() * format.block_bytes()
}

fn put_f32s(values: impl Iterator<Item = f32>, out: &mut dyn Write) -> io::Result<()> {
    let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    out.write_all(&bytes)
}

/// Description of a synthetic adapter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdapterSynth {
    /// Seed of the weights.
    pub seed: u64,
    /// Rank of every pair.
    pub rank: u32,
    /// `adapter.lora.alpha`: with the rank, a projection changes by about half of its deviation.
    pub alpha: f32,
}

/// Deviation of a pair's product, for inputs and a scale of 1.
const CHANGE: f32 = 0.5;

impl SynthSpec {
    /// The adapter as a GGUF in f32.
    ///
    /// # Errors
    /// As [`SynthSpec::write`].
    pub fn adapter_bytes(&self, adapter: &AdapterSynth) -> Result<Vec<u8>, SynthError> {
        self.check()?;
        let mut writer = GgufWriter::new();
        writer
            .str("general.type", "adapter")
            .str("general.architecture", self.architecture.name())
            .str("adapter.type", "lora")
            .f32("adapter.lora.alpha", adapter.alpha);
        for planned in self.plan()? {
            let tensor = &planned.tensor;
            if let (true, &[cols, rows]) = (is_projection(&tensor.name), &tensor.dims[..]) {
                let rank = u64::from(adapter.rank);
                for (end, dims) in [("a", vec![cols, rank]), ("b", vec![rank, rows])] {
                    writer.tensor(TensorPlan {
                        name: format!("{}.lora_{end}", tensor.name),
                        dims,
                        kind: Format::F32.into(),
                    });
                }
            }
        }
        let mut bytes = Vec::new();
        writer.write(&mut bytes, |plan, out| fill(adapter.seed, plan, out))?;
        Ok(bytes)
    }
}

fn fill(seed: u64, plan: &TensorPlan, out: &mut dyn Write) -> std::io::Result<()> {
    let gain = if plan.name.ends_with("b") {
        CHANGE
    } else {
        1.0
    };
    let deviation = gain / (plan.dims[0] as f32).sqrt();
    for row in 0..plan.dims[1] {
        let mut rng = Rng::of_row(seed, &plan.name, row);
        let numbers = (0..plan.dims[0]).flat_map(|_| (deviation * rng.normal()).to_le_bytes());
        out.write_all(&numbers.collect::<Vec<u8>>())?;
    }
    Ok(())
}
