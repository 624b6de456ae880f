//! Keys of a tower from `config.json`'s `vision_config` and from the image processor's file.
//!
//! Fields and defaults are those of transformers' configuration classes; the keys are those of llama.cpp's converter.

use super::SafetensorsError;
use super::described::ModelDescription;
use super::family::Family;
use super::fields::Fields;
use super::limits::CONFIG_BYTES_MAX;
use super::llava_towers;
use super::minicpm_towers;
use super::nested;
use super::shards::read_bounded;
use super::tower_class::TowerClass;
use crate::config::limits::LAYERS;
use crate::gguf::GgufWriter;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Files with the image processor's fields, the newer one first, and the object in it.
const PROCESSORS: [(&str, Option<&str>); 2] = [
    ("processor_config.json", Some("image_processor")),
    ("preprocessor_config.json", None),
];
/// A size for which Qwen2-VL has no field, and which no row depends on: that of llama.cpp's converter.
const QWEN2_IMAGE: u32 = 560;
/// The object of the tower's fields.
pub(super) const VISION: &str = "vision_config";
/// Epsilon of layer norms, and of RMS norms.
const LAYER_EPS: &str = "layer_norm_eps";
const RMS_EPS: &str = "rms_norm_eps";
/// Fields next to `vision_config`, for errors.
const OUTSIDE: [&str; 3] = ["scale_factor", "spatial_merge_size", "image_grid_pinpoints"];
/// Keys that are not in [`TowerClass::numbers`], for errors.
const OTHERS: &[(&str, &str)] = &[
    (LAYER_EPS, "attention.layer_norm_epsilon"),
    ("num_position_embeddings", "image_size"),
    ("image_grid_pinpoints", "image_grid_pinpoints"),
    ("rope_parameters.rope_theta", "rope.freq_base"),
    ("spatial_merge_size", "spatial_merge_size"),
    ("out_hidden_size", "projection_dim"),
    ("deepstack_visual_indexes", "is_deepstack_layers"),
    ("scale_factor", "projector.scale_factor"),
    ("fullatt_block_indexes", "n_wa_pattern"),
    ("mlp_ratio", "feed_forward_length"),
];

/// Fields of the image processor.
struct ProcessorFile {
    path: PathBuf,
    object: Map<String, Value>,
}

/// A tower whose fields are being read.
pub(super) struct TowerDraft<'a> {
    pub(super) folder: &'a Path,
    pub(super) root: &'a Fields<'a>,
    pub(super) vision: &'a Fields<'a>,
    pub(super) processor: Option<Fields<'a>>,
    pub(super) out: GgufWriter,
    deepstack: Vec<u32>,
    /// Heads whose rows of queries and keys are reordered; 0: the rows stay.
    pub(super) heads: u32,
    /// As [`ModelDescription::line_end`].
    pub(super) line_end: Option<u32>,
    /// As [`ModelDescription::needs`].
    pub(super) needs: Vec<String>,
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
        folder,
        root,
        vision: &vision,
        processor: file.as_ref().map(ProcessorFile::fields),
        out: GgufWriter::new(),
        deepstack: Vec::new(),
        heads: 0,
        line_end: None,
        needs: Vec::new(),
    };
    draft.read(class)?;
    Ok(ModelDescription {
        tied: true,
        is_embedding: true,
        deepstack: draft.deepstack,
        heads: draft.heads,
        line_end: draft.line_end,
        needs: draft.needs,
        ..ModelDescription::new(Family::Tower(class), draft.out)
    })
}

/// The source field of a key.
pub(super) fn field_of(class: &TowerClass, key: &str) -> Option<&'static str> {
    if let Some(field) = minicpm_towers::field_of(class.projector, key) {
        return Some(field);
    }
    let key = key.strip_prefix("clip.vision.")?;
    let numbers = class.numbers.iter().map(|(field, key, _)| (*field, *key));
    let mut all = numbers.chain(OTHERS.iter().copied());
    all.find(|(_, known)| *known == key).map(|(field, _)| field)
}

/// Whether a field is next to `vision_config`.
pub(super) fn is_outside(field: &str) -> bool {
    let mut of_minicpm = minicpm_towers::OUTSIDE.iter();
    OUTSIDE.contains(&field) || of_minicpm.any(|(known, _)| *known == field)
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
            let mut number = self.edge(field)?.unwrap_or(*default);
            match (class.projector, *field) {
                ("pixtral", "image_size") => number = self.longest_edge(number)?,
                ("resampler", "num_hidden_layers") => number = self.kept_layers(number)?,
                _ => {}
            }
            self.number(key, number);
        }
        self.activation(class)?;
        let is_siglip = class.model_type == llava_towers::SIGLIP;
        let epsilon = match class.projector {
            "pixtral" => llava_towers::PIXTRAL_EPS,
            "mlp" if !is_siglip => self.vision.float(LAYER_EPS)?.unwrap_or(1e-5),
            "gemma4v" | "gemma4uv" => self.vision.float(RMS_EPS)?.unwrap_or(1e-6),
            _ => self.vision.float(LAYER_EPS)?.unwrap_or(1e-6),
        };
        self.out
            .f32("clip.vision.attention.layer_norm_epsilon", epsilon as f32);
        self.levels(class)?;
        match class.projector {
            "idefics3" => self.idefics3(),
            "gemma3" => self.gemma3(),
            "internvl" => self.internvl(),
            "lfm2" => self.lfm2(),
            "qwen2vl_merger" => self.qwen2(),
            "qwen2.5vl_merger" => self.qwen25(),
            "mlp" => self.llava(is_siglip),
            "pixtral" => self.pixtral(),
            "gemma4v" => self.gemma4v(),
            "gemma4uv" => self.gemma4uv(),
            "resampler" => self.resampler(),
            "minicpmv4_6" => self.minicpm46(),
            _ => self.qwen3(),
        }
    }

    pub(super) fn number(&mut self, key: &str, number: u32) {
        self.out.u32(&format!("clip.vision.{key}"), number);
    }

    /// A number, or two equal ones in a list.
    pub(super) fn edge(&self, field: &str) -> Result<Option<u32>, SafetensorsError> {
        if !self.vision.get(field).is_some_and(Value::is_array) {
            return self.vision.number(field);
        }
        match self.vision.numbers(field)?.as_deref() {
            Some(&[height, width]) if height == width => Ok(Some(height)),
            _ => Err(self
                .vision
                .wrong(field, "must be one number, or two equal ones")),
        }
    }

    /// The non-linearity of the feed-forward parts, which is the default of the class.
    fn activation(&mut self, class: &TowerClass) -> Result<(), SafetensorsError> {
        const FIELD: &str = "hidden_act";
        let (field, usual, key) = match class.projector {
            "internvl" => (FIELD, "gelu", Some("clip.use_gelu")),
            "mlp" if class.model_type == llava_towers::SIGLIP => (FIELD, "gelu_pytorch_tanh", None),
            "qwen2vl_merger" | "mlp" => (FIELD, "quick_gelu", None),
            "qwen2.5vl_merger" | "pixtral" => (FIELD, "silu", Some("clip.use_silu")),
            "gemma4v" | "gemma4uv" => ("hidden_activation", "gelu_pytorch_tanh", None),
            _ => (FIELD, "gelu_pytorch_tanh", Some("clip.use_gelu")),
        };
        let default = match class.projector {
            "pixtral" => "gelu",
            _ => usual,
        };
        let found = self.vision.text(field)?.unwrap_or(default);
        if found != usual {
            let why = format!("is {found:.64}, must be {usual}");
            return Err(self.vision.wrong(field, why));
        }
        if let Some(key) = key {
            self.out.bool(key, true);
        }
        Ok(())
    }

    /// Means and deviations, which turn levels of pixels into numbers.
    fn levels(&mut self, class: &TowerClass) -> Result<(), SafetensorsError> {
        let Some(processor) = &self.processor else {
            return Ok(());
        };
        // The processor of Gemma 4 leaves levels as they are, unless the file says otherwise.
        let is_gemma4 = matches!(class.projector, "gemma4v" | "gemma4uv");
        if is_gemma4 && processor.flag("do_normalize")? != Some(true) {
            return Ok(());
        }
        let keys = ["image_mean", "image_std"];
        let fields = match class.projector {
            "resampler" => ["norm_mean", "norm_std"],
            _ => keys,
        };
        for (field, key) in fields.into_iter().zip(keys) {
            if processor.get(field).is_some() {
                let numbers = processor.need_floats(field)?;
                if numbers.len() != 3 {
                    let why = format!("has {} numbers, must have 3", numbers.len());
                    return Err(processor.wrong(field, why));
                }
                self.out.f32s(&format!("clip.vision.{key}"), &numbers);
            }
        }
        Ok(())
    }

    /// A number inside of an object of the image processor.
    pub(super) fn processor_number(
        &self,
        object: &str,
        field: &str,
    ) -> Result<Option<u32>, SafetensorsError> {
        let Some(processor) = &self.processor else {
            return Ok(None);
        };
        // Old files have one number in place of an object.
        if processor.get(object).is_some_and(Value::is_number) {
            return processor.number(object);
        }
        match processor.object(object)? {
            Some(object) => object.number(field),
            None => Ok(None),
        }
    }

    /// The width of the text's stream.
    pub(super) fn text_width(&self) -> Result<u32, SafetensorsError> {
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
        let class = self.root.texts("architectures")?.unwrap_or_default();
        // Qwen 3.5 has none, and no such field.
        let is_qwen35 = class.iter().any(|class| class.starts_with("Qwen3_5"));
        let usual = if is_qwen35 { vec![] } else { vec![8, 16, 24] };
        let layers = self.vision.numbers(LAYERS_FIELD)?.unwrap_or(usual);
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

    fn qwen2(&mut self) -> Result<(), SafetensorsError> {
        let width = self.vision.number("hidden_size")?.unwrap_or(3584);
        self.number("projection_dim", width);
        let dim = self.vision.number("embed_dim")?.unwrap_or(1280);
        let ratio = self.vision.float("mlp_ratio")?.unwrap_or(4.0);
        let hidden = f64::from(dim) * ratio;
        if !(1.0..=f64::from(u32::MAX)).contains(&hidden) {
            let why = format!("is {ratio}, must be a factor of the width {dim}");
            return Err(self.vision.wrong("mlp_ratio", why));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "within bounds, and cut as the implementation cuts it"
        )]
        self.number("feed_forward_length", hidden as u32);
        self.number("image_size", QWEN2_IMAGE);
        self.pixels()
    }

    fn qwen25(&mut self) -> Result<(), SafetensorsError> {
        const FULL: &str = "fullatt_block_indexes";
        let width = self.vision.number("out_hidden_size")?.unwrap_or(3584);
        self.number("projection_dim", width);
        self.number("image_size", QWEN2_IMAGE);
        let full = self.vision.numbers(FULL)?;
        let full = full.unwrap_or_else(|| vec![7, 15, 23, 31]);
        let depth = self.vision.number("depth")?.unwrap_or(32);
        let every = full.first().map_or(0, |first| first.saturating_add(1));
        let regular = (1..).map_while(|at: u32| at.checked_mul(every)?.checked_sub(1));
        let regular = regular.take_while(|layer| *layer < depth);
        if every == 0 || depth as usize > LAYERS || !regular.eq(full.iter().copied()) {
            let why = format!("is {full:?}, must be every so many layers of {depth}");
            return Err(self.vision.wrong(FULL, why));
        }
        self.number("n_wa_pattern", every);
        self.pixels()
    }

    fn internvl(&mut self) -> Result<(), SafetensorsError> {
        const RATIO: &str = "downsample_ratio";
        let width = self.text_width()?;
        self.number("projection_dim", width);
        let ratio = self.root.float(RATIO)?.unwrap_or(0.5);
        let merge = (1..=16).find(|merge| f64::from(*merge) * ratio == 1.0);
        let Some(merge) = merge else {
            let why = format!("is {ratio}, must be 1 divided by 1 to 16");
            return Err(self.root.wrong(RATIO, why));
        };
        self.number("projector.scale_factor", merge);
        self.is_usual(&["use_absolute_position_embeddings", "use_mean_pooling"])?;
        self.last_layer()?;
        for (field, key) in [
            ("min_patches", "preproc_min_tiles"),
            ("max_patches", "preproc_max_tiles"),
        ] {
            self.copied(field, key)?;
        }
        Ok(())
    }

    fn lfm2(&mut self) -> Result<(), SafetensorsError> {
        const PLACES: &str = "num_patches";
        const TOLERANCE: &str = "max_pixels_tolerance";
        let width = self.text_width()?;
        self.number("projection_dim", width);
        let merge = self.root.number("downsample_factor")?.unwrap_or(2);
        self.number("projector.scale_factor", merge);
        self.last_layer()?;
        let places = self.vision.number(PLACES)?.unwrap_or(256);
        let patch = self.vision.number("patch_size")?.unwrap_or(16);
        let edge = places.isqrt();
        let Some(image) = edge.checked_mul(patch).filter(|_| edge * edge == places) else {
            let why = format!("is {places}, must be a square");
            return Err(self.vision.wrong(PLACES, why));
        };
        self.number("image_size", image);
        let Some(processor) = &self.processor else {
            return Ok(());
        };
        if let Some(found) = processor.float(TOLERANCE)?.filter(|found| *found != 2.0) {
            return Err(processor.wrong(TOLERANCE, format!("is {found}, must be 2")));
        }
        let is_split = processor.flag("do_image_splitting")?.unwrap_or(true);
        self.copied("tile_size", "preproc_image_size")?;
        if is_split {
            self.copied("min_tiles", "preproc_min_tiles")?;
            self.copied("max_tiles", "preproc_max_tiles")?;
        } else {
            self.number("preproc_min_tiles", 1);
            self.number("preproc_max_tiles", 1);
        }
        let unit = patch.saturating_mul(merge);
        let pixels = unit.saturating_mul(unit);
        for (field, key) in [
            ("min_image_tokens", "image_min_pixels"),
            ("max_image_tokens", "image_max_pixels"),
        ] {
            if let Some(rows) = self
                .processor
                .as_ref()
                .map_or(Ok(None), |p| p.number(field))?
            {
                self.number(key, rows.saturating_mul(pixels));
            }
        }
        Ok(())
    }

    /// Copies a number of the image processor, if it is there.
    fn copied(&mut self, field: &str, key: &str) -> Result<(), SafetensorsError> {
        if let Some(processor) = &self.processor
            && let Some(number) = processor.number(field)?
        {
            self.number(key, number);
        }
        Ok(())
    }

    /// Flags of the tower that no other value is computed of.
    fn is_usual(&self, flags: &[&str]) -> Result<(), SafetensorsError> {
        for flag in flags {
            if self.vision.flag(flag)? == Some(false) {
                return Err(self.vision.wrong(flag, "is false, which is not supported"));
            }
        }
        Ok(())
    }

    /// The size of a head, which must be the width divided by the heads. `width`: the default of the class.
    pub(super) fn head_dim(
        &self,
        heads: u32,
        width: u32,
        usual: Option<u32>,
    ) -> Result<(), SafetensorsError> {
        const FIELD: &str = "head_dim";
        let width = self.vision.number("hidden_size")?.unwrap_or(width);
        let found = self.vision.number(FIELD)?.or(usual);
        match found.filter(|dim| dim.checked_mul(heads) != Some(width)) {
            None => Ok(()),
            Some(dim) => {
                let why =
                    format!("is {dim}, must be `hidden_size` {width} divided by {heads} heads");
                Err(self.vision.wrong(FIELD, why))
            }
        }
    }

    /// The base of the frequencies of a rope of this kind.
    pub(super) fn theta(&mut self, kind: &str) -> Result<(), SafetensorsError> {
        const THETA: &str = "rope_theta";
        let parameters = self.vision.object("rope_parameters")?;
        let theta = match &parameters {
            Some(parameters) => {
                if let Some(other) = parameters.text("rope_type")?
                    && ![kind, "default"].contains(&other)
                {
                    let why = format!("is {other:.64}, must be {kind}");
                    return Err(parameters.wrong("rope_type", why));
                }
                parameters.float(THETA)?
            }
            None => self.vision.float(THETA)?,
        };
        if let Some(theta) = theta {
            self.out.f32("clip.vision.rope.freq_base", theta as f32);
        }
        Ok(())
    }

    /// The projector takes the output of the last layer.
    fn last_layer(&self) -> Result<(), SafetensorsError> {
        const FIELD: &str = "vision_feature_layer";
        match self.root.get(FIELD) {
            Some(layer) if layer.as_i64() != Some(-1) => {
                Err(self.root.wrong(FIELD, format!("is {layer}, must be -1")))
            }
            _ => Ok(()),
        }
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
    pub(super) fn same(
        &self,
        object: &str,
        field: &str,
        wanted: u32,
    ) -> Result<(), SafetensorsError> {
        match (self.processor_number(object, field)?, &self.processor) {
            (Some(found), Some(processor)) if found != wanted => {
                let why = format!("is {found}, must be {wanted} as `image_size` of `{VISION}`");
                Err(processor.wrong(&format!("{object}.{field}"), why))
            }
            _ => Ok(()),
        }
    }
}
