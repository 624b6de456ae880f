//! Tensors of several states of the stream: Gemma 3n.

use super::error::SynthError;
use super::mix::Role;
use super::plan::{Fill, Planner};
use kernels::Format;
use weights::config::altup::{LAUREL_RANK, STATES};

/// Deviation of the coefficients, by which states mix: little in a deep model, so that rounding is amplified little.
fn mixing(layers: u32) -> f32 {
    if layers > 16 { 0.05 } else { 0.15 }
}

impl Planner<'_> {
    /// Projections between the embedding and the further states.
    pub(super) fn states(&mut self) -> Result<(), SynthError> {
        let dim = self.spec.dim;
        if self.traits.altup {
            for name in ["altup_proj.weight", "altup_unembd_proj.weight"] {
                let dims = [dim, dim, STATES as u32 - 1];
                self.stack(name.to_owned(), dims, Role::Plain, 1.0)?;
            }
        }
        Ok(())
    }

    /// Coefficients and low-rank path of one layer. Quantizers leave them as they are.
    pub(super) fn layer_states(&mut self, layer: u32) {
        if !self.traits.altup {
            return;
        }
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let (dim, states, rank) = (self.spec.dim, STATES as u32, LAUREL_RANK as u32);
        let mixing = mixing(self.spec.layers);
        let by_width = 1.0 / (dim as f32).sqrt();
        for (part, cols, rows, deviation) in [
            // The router's input is divided by the width.
            ("altup_router", dim, states, 1.0 / by_width),
            ("altup_predict_coef", states, states * states, mixing),
            ("altup_correct_coef", states, states, mixing),
            ("laurel_l", dim, rank, by_width),
            ("laurel_r", rank, dim, 1.0 / (rank as f32).sqrt()),
        ] {
            let format = Format::F32;
            let fill = Fill::Noise { format, deviation };
            let dims = vec![cols.into(), rows.into()];
            self.push(name(part), dims, format, fill);
        }
        for part in [
            "altup_router_norm",
            "altup_correct_scale",
            "laurel_post_norm",
        ] {
            self.norm(name(part), dim, 1.0);
        }
    }
}
