//! `millrace inspect`: what is in a GGUF file. Needs no memory for the weights and understands
//! files that cannot be run.

use crate::args::InspectArgs;
use crate::failure::Failure;
use model::gguf::{Array, Gguf, TensorInfo, Value};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;

/// Elements of an array, and characters of a string, that are shown.
const SHOWN_ELEMENTS: usize = 4;
const SHOWN_CHARS: usize = 72;

/// Shows a file's metadata, and a summary or the list of its tensors.
pub(crate) fn inspect(args: &InspectArgs) -> Result<(), Failure> {
    let gguf = Gguf::open(&args.path)
        .map_err(|why| Failure::user(format!("{}: {why}", args.path.display())))?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let described = json!({
            "version": gguf.version(),
            "parts": gguf.parts(),
            "bytes": gguf.file_bytes(),
            "metadata": gguf.metadata().map(|(key, value)| (key.to_owned(), json_of(value)))
                .collect::<serde_json::Map<_, _>>(),
            "tensors": gguf.tensors().map(|tensor| json_of_tensor(&tensor)).collect::<Vec<_>>(),
        });
        writeln!(out, "{described:#}")?;
        return Ok(());
    }
    let (version, parts, bytes) = (gguf.version(), gguf.parts(), gguf.file_bytes());
    writeln!(out, "GGUF v{version}, {parts} file(s), {bytes} bytes")?;
    for (key, value) in gguf.metadata() {
        writeln!(out, "  {key} = {}", shown(value))?;
    }
    tensors(&gguf, args.tensors, &mut out)?;
    verdict(&gguf, &mut out)
}

/// Counts by kind, and, if asked for, every tensor.
fn tensors(gguf: &Gguf, all: bool, out: &mut impl Write) -> Result<(), Failure> {
    let mut kinds: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for tensor in gguf.tensors() {
        let kind = kinds.entry(tensor.kind.to_string()).or_default();
        kind.0 += 1;
        kind.1 += tensor.bytes.len();
        if all {
            writeln!(
                out,
                "  {:<40} {:>8} {:?}",
                tensor.name, tensor.kind, tensor.dims
            )?;
        }
    }
    writeln!(out, "{} tensors", gguf.tensors_len())?;
    for (kind, (count, bytes)) in kinds {
        writeln!(out, "  {kind:>8}: {count} tensors, {bytes} bytes")?;
    }
    Ok(())
}

/// Whether this program could run it.
fn verdict(gguf: &Gguf, out: &mut impl Write) -> Result<(), Failure> {
    match model::Config::from_gguf(gguf, None) {
        Ok(config) => writeln!(
            out,
            "runs here: {} with {} layers, {} wide, {}/{} heads of {}, context {}",
            config.architecture.name(),
            config.layers,
            config.dim,
            config.heads,
            config.kv_heads,
            config.head_dim,
            config.context_trained
        )?,
        Err(why) => writeln!(out, "does not run here: {why}")?,
    }
    Ok(())
}

/// One line for a value.
fn shown(value: Value<'_>) -> String {
    match value {
        Value::String(text) => shorten(&format!("{:?}", text.to_lossy())),
        Value::Array(array) => shown_array(array),
        other => json_of(other).to_string(),
    }
}

fn shown_array(array: Array<'_>) -> String {
    let first: Vec<_> = array.values().take(SHOWN_ELEMENTS).map(shown).collect();
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

fn shorten(text: &str) -> String {
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

fn json_of_tensor(tensor: &TensorInfo<'_>) -> serde_json::Value {
    json!({
        "name": tensor.name,
        "kind": tensor.kind.to_string(),
        "dims": tensor.dims,
        "bytes": tensor.bytes.len(),
    })
}
