//! The tower that a model is loaded with, by the settings, and what prompts with images need of it.

use crate::config::{MmprojChoice, Settings};
use crate::failure::Failure;
use crate::model_files::{
    FittingTower, ModelPurpose, ModelSource, PartsDigest, TowerSearch, weights_digest,
};
use generate::images::{ImageMarks, Vision};
use weights::ModelFiles;

/// The tower of the settings for a model; `None`: the model reads text only.
///
/// # Errors
/// The settings name a file that is no tower of this model.
pub(super) fn find_tower(
    source: &ModelSource,
    model: &ModelFiles,
    settings: &Settings,
) -> Result<Option<FittingTower>, Failure> {
    let is_causal = ModelPurpose::of(model).is_causal;
    let found = match &settings.model.mmproj {
        MmprojChoice::Off => Ok(None),
        MmprojChoice::File(path) if is_causal => {
            let tower = FittingTower::open(path, (&source.name, model));
            let tower = tower.and_then(expect_marks);
            tower
                .map(Some)
                .map_err(|why| Failure::user(format!("model.mmproj: {why}")))
        }
        MmprojChoice::File(path) => Err(Failure::user(format!(
            "model.mmproj {}: {} generates no text about images",
            path.display(),
            source.name
        ))),
        MmprojChoice::Auto if !is_causal => Ok(None),
        MmprojChoice::Auto => Ok(find_unnamed(source, model)),
    };
    Ok(found?.map(|tower| tower.with_settings(&settings.vision)))
}

/// The tower of a model. One that does not fit is no error, since the user has not named it.
fn find_unnamed(source: &ModelSource, model: &ModelFiles) -> Option<FittingTower> {
    let search = TowerSearch::of_model(source, model);
    let found = match search.found.map(expect_marks) {
        None => None,
        Some(Ok(tower)) => Some(tower),
        Some(Err(why)) => {
            tracing::warn!("{}: reads text only: {why}", source.name);
            None
        }
    };
    for (path, why) in &search.refused {
        if found.is_none() {
            tracing::warn!("{}: reads text only: {why}", source.name);
        } else {
            tracing::debug!(path = %path.display(), "another tower: {why}");
        }
    }
    found
}

/// The marks of a tower's projector are known.
fn expect_marks(tower: FittingTower) -> Result<FittingTower, Failure> {
    let projector = tower.config.marks_name();
    match ImageMarks::of_projector(projector) {
        Some(_) => Ok(tower),
        None => Err(Failure::user(format!(
            "{}: images of the projector {projector} have no known place in prompts",
            tower.path.display()
        ))),
    }
}

/// Parts of a tower that prompts need.
pub(super) fn vision_of(tower: &FittingTower, settings: &Settings) -> Option<Vision> {
    let recipe = tower.config.recipe.clone();
    let mut fingerprint = PartsDigest::new();
    fingerprint
        .add(weights_digest(&tower.files).as_bytes())
        .add(&recipe.fingerprint());
    // Rows of a converted tower are others.
    if let Some(format) = tower.config.quantize {
        fingerprint.add(format!("{format:?}").as_bytes());
    }
    Some(Vision {
        marks: ImageMarks::of_projector(tower.config.marks_name())?,
        recipe,
        images_max: settings.vision.images_max,
        limits: settings.vision.limits(),
        fingerprint: fingerprint.bytes(),
    })
}
