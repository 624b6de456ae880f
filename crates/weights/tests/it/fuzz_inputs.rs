//! What the fuzz target of towers' keys checks of any bytes. Panics only for a fault.

use kernels::Pool;
use media::plan::ROWS_MAX;
use media::{Detail, Size};
use std::path::Path;
use weights::ModelFiles;
use weights::gguf::Gguf;
use weights::parameters::TowerWeights;
use weights::safetensors::Safetensors;
use weights::vision::{EmbeddedTower, VisionConfig, is_tower};

/// Bytes of an input: more is not tried.
const INPUT_BYTES_MAX: usize = 1 << 16;

/// Any bytes are a tower or an error that says something: a GGUF of a tower, a text's GGUF with a tower inside, or (from the
/// first byte `{` on) `config.json`, and behind a zero byte the image processor's file. `folder` is empty, and stays so.
pub(crate) fn mmproj_config(bytes: &[u8], folder: &Path) {
    if bytes.len() > INPUT_BYTES_MAX {
        return;
    }
    let found = if bytes.first() == Some(&b'{') {
        of_json(bytes, folder)
    } else {
        of_gguf(bytes)
    };
    match found {
        Ok(Some(files)) => match files.tower_config() {
            Ok(config) => check(&files, &config),
            Err(error) => assert!(!error.to_string().is_empty()),
        },
        Ok(None) => {}
        Err(error) => assert!(!error.is_empty()),
    }
}

fn of_gguf(bytes: &[u8]) -> Result<Option<ModelFiles>, String> {
    let gguf = Gguf::from_bytes(bytes.to_vec()).map_err(|error| error.to_string())?;
    if is_tower(&gguf) {
        return Ok(Some(gguf.into()));
    }
    let tower = EmbeddedTower::of(gguf).map_err(|error| error.to_string())?;
    Ok(tower.map(Into::into))
}

fn of_json(bytes: &[u8], folder: &Path) -> Result<Option<ModelFiles>, String> {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let names = ["config.json", "preprocessor_config.json"];
    for name in names {
        if let Some(part) = parts.next() {
            std::fs::write(folder.join(name), part).expect("a folder that can be written");
        }
    }
    let opened = Safetensors::open_tower(folder);
    for name in names {
        _ = std::fs::remove_file(folder.join(name));
    }
    let tower = opened.map_err(|error| error.to_string())?;
    Ok(tower.map(Into::into))
}

/// Checks of everything that the pass and the plans rely on.
fn check(files: &ModelFiles, config: &VisionConfig) {
    assert_eq!(config.head_dim() * config.heads, config.dim);
    assert!(config.merge > 0 && config.patch > 0 && config.row_width() >= config.projection_dim);
    assert!(config.deepstack.iter().all(|layer| *layer < config.layers));
    for size in [(1, 1), (640, 480), (3000, 20)] {
        for detail in [Detail::Low, Detail::Auto, Detail::High] {
            let plan = config.recipe.plan(Size::new(size.0, size.1), detail);
            if let Ok(plan) = plan {
                assert!((1..=ROWS_MAX).contains(&plan.rows), "{plan:?}");
            }
        }
    }
    if let Err(error) = TowerWeights::describe(files, config, &mut Pool::new(1)) {
        assert!(!error.to_string().is_empty());
    }
}
