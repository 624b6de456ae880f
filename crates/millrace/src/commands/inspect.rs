//! `millrace inspect`: the content of a GGUF file or a directory of safetensors. Needs no memory for the weights, and
//! reads GGUF files of models that are not supported, too.

use crate::args::InspectArgs;
use crate::failure::Failure;
use crate::model_files::{ModelSource, TowerSearch, facts_of, has_safetensors};
use crate::model_lookup::{expect_directories, find_model};
use crate::packed_cache::PackedCache;
use media::{Detail, Size};
use serde_json::json;
use server::{ModelFacts, ModelTask, SamplingDefaults};
use std::collections::BTreeMap;
use std::io::Write;
use text::{BASE_MODEL, OWN_TEMPLATE};
use weights::encoder::{EncoderConfig, EncoderKind};
use weights::gguf::{Array, Gguf, Value};
use weights::vision::{VisionConfig, is_tower};
use weights::{ModelFiles, TensorEntry, safetensors};

/// Elements of an array, and characters of a string, that are shown.
const SHOWN_ELEMENTS: usize = 4;
const SHOWN_CHARS: usize = 72;

/// Shows a file's metadata, and a summary or the list of tensors.
pub(crate) fn inspect(args: &InspectArgs) -> Result<(), Failure> {
    let source = find_source(args)?;
    let files = source.open(None)?;
    let gguf = files.metadata();
    let mut out = std::io::stdout().lock();
    if args.json {
        let described = json!({
            "version": gguf.version(),
            "parts": gguf.parts(),
            "bytes": files.file_bytes(),
            "metadata": gguf.metadata().map(|(key, value)| (key.to_owned(), json_of(value)))
                .collect::<serde_json::Map<_, _>>(),
            "tensors": files.tensors().iter().map(json_of_tensor).collect::<Vec<_>>(),
        });
        writeln!(out, "{described:#}")?;
        return Ok(());
    }
    let (version, parts, bytes) = (gguf.version(), gguf.parts(), files.file_bytes());
    match &files {
        ModelFiles::Gguf(_) | ModelFiles::Embedded(_) => {
            writeln!(out, "GGUF v{version}, {parts} file(s), {bytes} bytes")?;
        }
        ModelFiles::Safetensors(_) => writeln!(out, "safetensors, {bytes} bytes; as GGUF's keys:")?,
    }
    for (key, value) in gguf.metadata() {
        writeln!(out, "  {key} = {}", shown_value(value))?;
    }
    print_tensors(&files, args.tensors, &mut out)?;
    print_verdict(gguf, &mut out)?;
    print_tower((&source, &files), args, &mut out)?;
    print_requests(&facts_of(&files, &source), args, &mut out)?;
    print_cached(&files, args, &mut out)
}

/// Prints how requests are understood that leave it open: turns of conversations, and sampling parameters.
fn print_requests(
    facts: &Result<ModelFacts, Failure>,
    args: &InspectArgs,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let Ok(facts) = facts else { return Ok(()) };
    if facts.task != ModelTask::Generation {
        return Ok(());
    }
    match facts.prompt_format {
        "" => {}
        OWN_TEMPLATE => writeln!(out, "conversations: the model's own chat template")?,
        BASE_MODEL => writeln!(
            out,
            "conversations: base model, without a chat template and without tokens for turns; ChatML in plain text"
        )?,
        format => writeln!(
            out,
            "conversations: no chat template; turns by the vocabulary, {format}"
        )?,
    }
    let config = args.library.settings().ok();
    let settings = config.map(|config| config.settings.sampling.defaults());
    let settings = settings.unwrap_or_default();
    let below = settings.or(facts.sampling);
    let origin = |name: &str| {
        let is_set = |defaults: SamplingDefaults| defaults.named_values().any(|row| row.0 == name);
        match (is_set(settings), is_set(facts.sampling)) {
            (true, _) => "settings",
            (false, true) => "the model's",
            (false, false) => "llama.cpp's",
        }
    };
    let values = below.or(SamplingDefaults::LLAMA_CPP).named_values();
    let values: Vec<_> = values
        .map(|(name, value)| format!("{name} {value} ({})", origin(name)))
        .collect();
    writeln!(out, "sampling defaults: {}", values.join(", "))?;
    Ok(())
}

/// Prints the files with packed weights of the model.
fn print_cached(
    files: &ModelFiles,
    args: &InspectArgs,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let config = args.library.settings().ok();
    let cache = config.and_then(|config| PackedCache::of(&config.settings));
    for path in cache.map(|cache| cache.files_of(files)).unwrap_or_default() {
        let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
        writeln!(
            out,
            "packed weights: {} MiB, {}",
            bytes >> 20,
            path.display()
        )?;
    }
    Ok(())
}

/// An existing path, or else a model of this machine.
fn find_source(args: &InspectArgs) -> Result<ModelSource, Failure> {
    let path = &args.path;
    if path.is_dir() && has_safetensors(path) {
        return Ok(ModelSource::of_file(
            String::new(),
            path.join(safetensors::CONFIG),
        ));
    }
    if path.is_file() {
        return Ok(ModelSource::of_file(String::new(), path.clone()));
    }
    let config = args.library.settings()?;
    expect_directories(&config)?;
    let mut settings = config.settings;
    settings.model.path = Some(path.clone());
    find_model(&settings)
}

/// Prints tensor counts by format, or with `all` every tensor.
fn print_tensors(files: &ModelFiles, all: bool, out: &mut impl Write) -> Result<(), Failure> {
    let mut kinds: BTreeMap<String, (usize, u64)> = BTreeMap::new();
    for tensor in files.tensors() {
        let kind = kinds.entry(tensor.kind.to_string()).or_default();
        kind.0 += 1;
        kind.1 += tensor.bytes;
        if all {
            writeln!(
                out,
                "  {:<40} {:>8} {:?}",
                tensor.name, tensor.kind, tensor.dims
            )?;
        }
    }
    writeln!(out, "{} tensors", files.tensors().len())?;
    for (kind, (count, bytes)) in kinds {
        writeln!(out, "  {kind:>8}: {count} tensors, {bytes} bytes")?;
    }
    Ok(())
}

/// Prints whether this program can run the model.
fn print_verdict(gguf: &Gguf, out: &mut impl Write) -> Result<(), Failure> {
    if let Some(kind) = EncoderKind::of(gguf) {
        return print_encoder(gguf, kind, out);
    }
    if is_tower(gguf) {
        return print_tower_verdict(gguf, out);
    }
    match weights::Config::from_gguf(gguf, None) {
        Ok(config) => {
            let heads = match config.heads {
                0 => "no attention".to_owned(),
                heads => format!("{heads}/{} heads of {}", config.kv_heads, config.head_dim),
            };
            writeln!(
                out,
                "runs here: {} with {} layers, {} wide, {heads}, context {}",
                config.architecture.name(),
                config.layers,
                config.dim,
                config.context_trained
            )?;
        }
        Err(why) => writeln!(out, "does not run here: {why}")?,
    }
    Ok(())
}

/// Prints whether this program can compute a tower.
fn print_tower_verdict(gguf: &Gguf, out: &mut impl Write) -> Result<(), Failure> {
    match VisionConfig::from_gguf(gguf) {
        Ok(config) => {
            writeln!(
                out,
                "runs here: {} (tower of models that are {} wide) with {} layers, {} wide, {} heads of {}",
                config.projector.name(),
                config.projection_dim,
                config.layers,
                config.dim,
                config.heads,
                config.head_dim()
            )?;
            print_rows(&config, out)
        }
        Err(why) => Ok(writeln!(out, "does not run here: {why}")?),
    }
}

/// Sizes of images for which the rows are shown.
const SHOWN_SIZES: [(u32, u32); 3] = [(256, 256), (1024, 768), (2048, 2048)];

/// Prints the tower in a model's files or next to them, or why there is none.
fn print_tower(
    (source, files): (&ModelSource, &ModelFiles),
    args: &InspectArgs,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let search = TowerSearch::of_model(source, files);
    for (path, why) in &search.refused {
        writeln!(out, "not its tower: {}: {why}", path.display())?;
    }
    let Some(tower) = search.found else {
        return Ok(());
    };
    let tower = match args.library.settings() {
        Ok(config) => tower.with_settings(&config.settings.vision),
        Err(_) => tower,
    };
    let facts = tower.facts();
    let (file, projector, mib) = (&facts.file, &facts.projector, facts.file_bytes >> 20);
    let inside = if tower.is_own { " (its own files)" } else { "" };
    writeln!(
        out,
        "sees images: {file}{inside}, projector {projector}, {mib} MiB"
    )?;
    print_rows(&tower.config, out)
}

/// Prints rows of images of some sizes.
fn print_rows(config: &VisionConfig, out: &mut impl Write) -> Result<(), Failure> {
    let rows = SHOWN_SIZES.iter().filter_map(|&(width, height)| {
        let plan = config.recipe.plan(Size::new(width, height), Detail::Auto);
        Some(format!("{} ({width} x {height})", plan.ok()?.rows))
    });
    let rows = rows.collect::<Vec<_>>().join(", ");
    writeln!(out, "rows of an image: {rows}")?;
    Ok(())
}

fn print_encoder(gguf: &Gguf, kind: EncoderKind, out: &mut impl Write) -> Result<(), Failure> {
    match EncoderConfig::from_gguf(gguf, kind, None) {
        Ok(config) => writeln!(
            out,
            "runs here: {} (encoder) with {} layers, {} wide, {} heads of {}, context {}",
            kind.name(),
            config.layers,
            config.dim,
            config.heads,
            config.head_dim,
            config.context_trained
        )?,
        Err(why) => writeln!(out, "does not run here: {why}")?,
    }
    Ok(())
}

/// One line for a value.
fn shown_value(value: Value<'_>) -> String {
    match value {
        Value::String(text) => shorten_text(&format!("{:?}", text.to_lossy())),
        Value::Array(array) => shown_array(array),
        other => json_of(other).to_string(),
    }
}

fn shown_array(array: Array<'_>) -> String {
    let first: Vec<_> = array
        .values()
        .take(SHOWN_ELEMENTS)
        .map(shown_value)
        .collect();
    let more = if array.len() > SHOWN_ELEMENTS {
        ", …"
    } else {
        ""
    };
    format!(
        "[{}{more}] ({} of {:?})",
        first.join(", "),
        array.len(),
        array.kind()
    )
}

fn shorten_text(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

fn json_of(value: Value<'_>) -> serde_json::Value {
    match value {
        Value::F32(v) => json!(v),
        Value::F64(v) => json!(v),
        Value::Bool(v) => json!(v),
        Value::String(text) => json!(text.to_lossy()),
        Value::Array(array) => array.values().map(json_of).collect(),
        Value::U64(v) => json!(v),
        integer => json!(integer.integer().and_then(|v| i64::try_from(v).ok())),
    }
}

fn json_of_tensor(tensor: &TensorEntry<'_>) -> serde_json::Value {
    json!({
        "name": tensor.name,
        "kind": tensor.kind.to_string(),
        "dims": tensor.dims,
        "bytes": tensor.bytes,
    })
}
