//! Keys of a tower from `config.json`'s `vision_config` and from the image processor's file.
//!
//! Fields and defaults are those of transformers' configuration classes; the keys are those of llama.cpp's converter.

use super::SafetensorsError;
use super::described::ModelDescription;
use super::family::Family;
use super::fields::Fields;
use super::limits::CONFIG_BYTES_MAX;
use super::nested;
use super::recurrent::RecurrentSaved;
use super::shards::read_bounded;
use super::vision_classes::TowerClass;
use crate::config::limits::LAYERS;
use crate::gguf::GgufWriter;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Files with the image processor's fields, the newer one first, and the object in it.
const PROCESSORS: [(&str, Option<&str>); 2] = [
    ("processor_config.json", Some("image_processor")),
    ("preprocessor_config.json", None),
];
/// The object of the tower's fields.
pub(super) const VISION: &str = "vision_config";
/// Keys that are not in [`TowerClass::numbers`], for errors.
const OTHERS: &[(&str, &str)] = &[
    ("layer_norm_eps", "attention.layer_norm_epsilon"),
    ("num_position_embeddings", "image_size"),
    ("out_hidden_size", "projection_dim"),
    ("deepstack_visual_indexes", "is_deepstack_layers"),
    ("scale_factor", "projector.scale_factor"),
];

/// Fields of the image processor.
struct ProcessorFile {
    path: PathBuf,
    object: Map<String, Value>,
}

/// A tower whose fields are being read.
struct TowerDraft<'a> {
    root: &'a Fields<'a>,
    vision: &'a Fields<'a>,
    processor: Option<Fields<'a>>,
    out: GgufWriter,
    deepstack: Vec<u32>,
}

/// Reads the fields of a folder's tower.
pub(super) fn describe(
    class: &'static TowerClass,
    root: &Fields<'_>,
    folder: &Path,
) -> Result<ModelDescription, SafetensorsError> {
    let Some(vision) = root.object(VISION)? else {
        return Err(root.missing(VISION));
    };
    let file = ProcessorFile::read(folder)?;
    let mut draft = TowerDraft {
        root,
        vision: &vision,
        processor: file.as_ref().map(ProcessorFile::fields),
        out: GgufWriter::new(),
        deepstack: Vec::new(),
    };
    draft.read(class)?;
    Ok(ModelDescription {
        family: Family::Tower(class),
        tied: true,
        is_embedding: true,
        is_nested: false,
        deepstack: draft.deepstack,
        vocab: 0,
        heads: 0,
        kv_heads: 0,
        padded_positions: 0,
        stacked_experts: 0,
        answers: None,
        recurrent: RecurrentSaved::default(),
        made: Vec::new(),
        keys: draft.out,
    })
}

/// The source field of a key.
pub(super) fn field_of(class: &TowerClass, key: &str) -> Option<&'static str> {
    let key = key.strip_prefix("clip.vision.")?;
    let numbers = class.numbers.iter().map(|(field, key, _)| (*field, *key));
    let mut all = numbers.chain(OTHERS.iter().copied());
    all.find(|(_, known)| *known == key).map(|(field, _)| field)
}

impl ProcessorFile {
    /// The first file that there is.
    fn read(folder: &Path) -> Result<Option<Self>, SafetensorsError> {
        for (name, inside) in PROCESSORS {
            let path = folder.join(name);
            if !path.exists() {
                continue;
            }
            let text = read_bounded(&path, CONFIG_BYTES_MAX)?;
            let mut object: Map<String, Value> =
                serde_json::from_slice(&text).map_err(SafetensorsError::json(&path))?;
            let object = match inside {
                None => object,
                // The file of older versions has fields of texts alone.
                Some(inside) => match object.remove(inside) {
                    Some(Value::Object(object)) => object,
                    _ => continue,
                },
            };
            return Ok(Some(Self { path, object }));
        }
        Ok(None)
    }

    fn fields(&self) -> Fields<'_> {
        Fields::new(&self.path, &self.object)
    }
}

impl TowerDraft<'_> {
    fn read(&mut self, class: &TowerClass) -> Result<(), SafetensorsError> {
        self.out.str("general.architecture", "clip");
        self.out.str("general.type", "mmproj");
        self.out.bool("clip.has_vision_encoder", true);
        self.out.str("clip.projector_type", class.projector);
        for (field, key, default) in class.numbers {
            let number = self.vision.number(field)?.unwrap_or(*default);
            self.number(key, number);
        }
        self.activation()?;
        let epsilon = self.vision.float("layer_norm_eps")?.unwrap_or(1e-6);
        self.out
            .f32("clip.vision.attention.layer_norm_epsilon", epsilon as f32);
        self.levels()?;
        match class.projector {
            "idefics3" => self.idefics3(),
            "gemma3" => self.gemma3(),
            _ => self.qwen3(),
        }
    }

    fn number(&mut self, key: &str, number: u32) {
        self.out.u32(&format!("clip.vision.{key}"), number);
    }

    /// The non-linearity of the feed-forward parts.
    fn activation(&mut self) -> Result<(), SafetensorsError> {
        const FIELD: &str = "hidden_act";
        match self.vision.text(FIELD)?.unwrap_or("gelu_pytorch_tanh") {
            "gelu_pytorch_tanh" => self.out.bool("clip.use_gelu", true),
            other => {
                let why = format!("is {other:.64}, must be gelu_pytorch_tanh");
                return Err(self.vision.wrong(FIELD, why));
            }
        };
        Ok(())
    }

    /// What turns levels of pixels into numbers.
    fn levels(&mut self) -> Result<(), SafetensorsError> {
        let Some(processor) = &self.processor else {
            return Ok(());
        };
        for field in ["image_mean", "image_std"] {
            if processor.get(field).is_some() {
                let numbers = processor.need_floats(field)?;
                if numbers.len() != 3 {
                    let why = format!("has {} numbers, must have 3", numbers.len());
                    return Err(processor.wrong(field, why));
                }
                self.out.f32s(&format!("clip.vision.{field}"), &numbers);
            }
        }
        Ok(())
    }

    /// A number inside of an object of the image processor.
    fn processor_number(&self, object: &str, field: &str) -> Result<Option<u32>, SafetensorsError> {
        match &self.processor {
            Some(processor) => match processor.object(object)? {
                Some(object) => object.number(field),
                None => Ok(None),
            },
            None => Ok(None),
        }
    }

    /// The width of the text's stream.
    fn text_width(&self) -> Result<u32, SafetensorsError> {
        nested::text_width(self.root)
    }

    fn idefics3(&mut self) -> Result<(), SafetensorsError> {
        let width = self.text_width()?;
        self.number("projection_dim", width);
        let merge = self.root.number("scale_factor")?.unwrap_or(2);
        self.number("projector.scale_factor", merge);
        let tile = self.vision.number("image_size")?.unwrap_or(224);
        self.same("max_image_size", "longest_edge", tile)?;
        if let Some(longest) = self.processor_number("size", "longest_edge")? {
            self.number("preproc_image_size", longest);
        }
        Ok(())
    }

    fn gemma3(&mut self) -> Result<(), SafetensorsError> {
        const TOKENS: &str = "mm_tokens_per_image";
        let width = self.text_width()?;
        self.number("projection_dim", width);
        let image = self.vision.number("image_size")?.unwrap_or(224);
        let patch = self.vision.number("patch_size")?.unwrap_or(16);
        for edge in ["height", "width"] {
            self.same("size", edge, image)?;
        }
        let tokens = self.root.number(TOKENS)?.unwrap_or(256);
        let across = tokens.isqrt();
        let patches = image.checked_div(patch).unwrap_or(0);
        if across == 0 || across * across != tokens || !patches.is_multiple_of(across) {
            let why = format!("is {tokens}, must be a square whose edge divides {patches} patches");
            return Err(self.root.wrong(TOKENS, why));
        }
        self.number("projector.scale_factor", patches / across);
        Ok(())
    }

    fn qwen3(&mut self) -> Result<(), SafetensorsError> {
        const LAYERS_FIELD: &str = "deepstack_visual_indexes";
        const PLACES: &str = "num_position_embeddings";
        let width = self.vision.number("out_hidden_size")?.unwrap_or(3584);
        self.number("projection_dim", width);
        let places = self.vision.number(PLACES)?.unwrap_or(2304);
        let patch = self.vision.number("patch_size")?.unwrap_or(16);
        let edge = places.isqrt();
        let Some(image) = edge.checked_mul(patch).filter(|_| edge * edge == places) else {
            let why = format!("is {places}, must be a square");
            return Err(self.vision.wrong(PLACES, why));
        };
        self.number("image_size", image);
        let depth = self.vision.number("depth")?.unwrap_or(27) as usize;
        let layers = self.vision.numbers(LAYERS_FIELD)?;
        let layers = layers.unwrap_or_else(|| vec![8, 16, 24]);
        let rises = layers.windows(2).all(|pair| pair[0] < pair[1]);
        if depth > LAYERS || !rises || layers.iter().any(|layer| *layer as usize >= depth) {
            let why = format!("is {layers:?}, must rise, below {}", depth.min(LAYERS));
            return Err(self.vision.wrong(LAYERS_FIELD, why));
        }
        let flags: Vec<bool> = (0..depth as u32).map(|at| layers.contains(&at)).collect();
        self.out.bools("clip.vision.is_deepstack_layers", &flags);
        self.deepstack = layers;
        self.pixels()
    }

    /// The least and the largest number of pixels, under the names of two versions.
    fn pixels(&mut self) -> Result<(), SafetensorsError> {
        for (old, new, key) in [
            ("min_pixels", "shortest_edge", "image_min_pixels"),
            ("max_pixels", "longest_edge", "image_max_pixels"),
        ] {
            let named = match &self.processor {
                Some(processor) => processor.number(old)?,
                None => None,
            };
            let named = match named {
                Some(pixels) => Some(pixels),
                None => self.processor_number("size", new)?,
            };
            if let Some(pixels) = named {
                self.number(key, pixels);
            }
        }
        Ok(())
    }

    /// The processor's edge must be the tower's.
    fn same(&self, object: &str, field: &str, wanted: u32) -> Result<(), SafetensorsError> {
        match (self.processor_number(object, field)?, &self.processor) {
            (Some(found), Some(processor)) if found != wanted => {
                let why = format!("is {found}, must be {wanted} as `image_size` of `{VISION}`");
                Err(processor.wrong(&format!("{object}.{field}"), why))
            }
            _ => Ok(()),
        }
    }
}
