//! A model on a device whose tower is computed by the processor: rows of images are uploaded with the batch that has them.

use super::SharedArithmetic;
use super::weights::{PackedModel, load_progress};
use crate::failure::Failure;
use crate::model_files::FittingTower;
use cpu::{Tower, TowerAlone};
use kernels::{Isa, Pool};
use model::{
    AdvanceBlock, Ahead, Batch, Capabilities, Dims, Encode, ExportPages, Forward, ForwardError,
    PageId, Predict,
};
use server::LoadProgress;
use std::sync::Arc;

/// Loads a tower for a model that was loaded to a device. Its threads compute while the engine encodes, and else sleep.
///
/// # Errors
/// A tensor of the tower is missing or invalid.
pub(super) fn with_tower(
    packed: PackedModel,
    tower: FittingTower,
    (isa, mut pool): (Isa, Pool),
    report: &mut dyn FnMut(LoadProgress),
) -> Result<PackedModel, Failure> {
    let FittingTower { files, config, .. } = tower;
    let tower = Tower::load(files, config, (isa, &mut pool), &mut |packed| {
        report(load_progress(packed));
    });
    let tower = tower.map_err(Failure::user)?;
    let (weights, scratch) = tower.bytes();
    let mut bytes = packed.bytes;
    bytes.weights += weights;
    bytes.scratch += scratch;
    let named = move |arithmetic: String| format!("{arithmetic}, images by {isa}");
    let arithmetic_now = packed.arithmetic_now.map(|now| -> SharedArithmetic {
        Arc::new(move || now().into_iter().map(named).collect())
    });
    Ok(PackedModel {
        model: Box::new(SeeingModel {
            model: packed.model,
            tower: TowerAlone::new(tower, pool),
        }),
        bytes,
        arithmetic: named(packed.arithmetic),
        arithmetic_now,
        device: packed.device,
        cache_writer: packed.cache_writer,
    })
}

/// A model, and the encoder whose rows it takes in place of tokens.
struct SeeingModel {
    model: Box<dyn Forward>,
    tower: TowerAlone,
}

impl Forward for SeeingModel {
    fn dims(&self) -> Dims {
        self.model.dims()
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

    fn mtp_head(&mut self) -> Option<&mut dyn Predict> {
        self.model.mtp_head()
    }

    fn encoder(&mut self) -> Option<&mut dyn Encode> {
        Some(&mut self.tower)
    }

    fn blocks(&mut self) -> Option<&mut dyn AdvanceBlock> {
        self.model.blocks()
    }

    fn recover(&mut self) -> Result<(), ForwardError> {
        self.model.recover()
    }

    fn page_export(&mut self) -> Option<&mut dyn ExportPages> {
        self.model.page_export()
    }
}
