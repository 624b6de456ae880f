//! Synthetic adapters: random low-rank pairs for every projection of a synthetic model that an adapter may change.

use super::error::SynthError;
use super::rng::Rng;
use super::spec::SynthSpec;
use kernels::Format;
use std::io::Write;
use weights::adapters::is_projection;
use weights::gguf::{GgufWriter, TensorPlan};

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
