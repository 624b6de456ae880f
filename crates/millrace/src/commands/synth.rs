//! `millrace synth`: a GGUF model of any shape with random weights.

use crate::args::{ShapeArgs, SynthArgs};
use crate::failure::Failure;
use std::io::Write;
use std::path::Path;
use synth::{ENCODER_PRESETS, EncoderSpec, Mix, SynthSpec, preset_names};
use weights::Architecture;
use weights::gguf::Gguf;

/// Bytes of an encoder's matrices, which are made in memory.
const ENCODER_BYTES_MAX: u64 = 4 << 30;

/// Writes a synthetic model, or lists the presets.
pub(crate) fn synth(args: &SynthArgs) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let Some(path) = args.out.as_ref().filter(|_| !args.list) else {
        let presets: Vec<String> = preset_names().collect();
        writeln!(out, "presets: {}", presets.join(", "))?;
        writeln!(out, "encoders: {}", ENCODER_PRESETS.join(", "))?;
        writeln!(out, "quantizations: {}", mix_names())?;
        return Ok(());
    };
    check_sizes(&args.shape)?;
    if path.exists() && !path.is_file() {
        let why = "is there, and is no regular file";
        return Err(Failure::user(format!("{}: {why}", path.display())));
    }
    let name = preset_name(args);
    if let Some(spec) = EncoderSpec::preset(&name) {
        return write_encoder((spec, &name), args, path, &mut out);
    }
    let mut spec = decoder(&name, args)?;
    spec.seed = args.seed;
    apply_sizes(&mut spec, &args.shape);
    let vocabulary = args.vocab_from.as_ref().map(Gguf::open).transpose();
    let vocabulary = vocabulary.map_err(Failure::user)?;
    let bytes = spec
        .create(vocabulary.as_ref(), path)
        .map_err(|why| Failure::user(format!("{}: {why}", path.display())))?;
    let parameters = spec.parameters().map_err(Failure::user)?;
    writeln!(
        out,
        "{}: {bytes} bytes, {parameters} parameters",
        path.display()
    )?;
    Ok(())
}

/// Sizes above their bounds are an error that names the flag and the bound. The bounds are above the sizes of the models there
/// are: a file of more would fill any disk, or the memory before.
fn check_sizes(shape: &ShapeArgs) -> Result<(), Failure> {
    for (flag, size, max) in [
        ("dim", shape.dim, 1 << 16),
        ("layers", shape.layers, 1024),
        ("heads", shape.heads, 1024),
        ("kv-heads", shape.kv_heads, 1024),
        ("head-dim", shape.head_dim, 4096),
        ("ffn", shape.ffn, 1 << 20),
        ("vocab", shape.vocab, 1 << 21),
        ("train-context", shape.train_context, 1 << 28),
    ] {
        if let Some(size) = size.filter(|&size| size > max) {
            let why = format!("--{flag} {size}: must be at most {max}");
            return Err(Failure::user(why));
        }
    }
    Ok(())
}

/// The preset: the one that is named, or else the tiny model of the architecture.
fn preset_name(args: &SynthArgs) -> String {
    match (&args.preset, &args.shape.arch) {
        (Some(name), _) => name.clone(),
        (None, Some(architecture)) => format!("tiny-{architecture}"),
        (None, None) => "tiny-llama".to_owned(),
    }
}

/// The decoder of a preset, in another architecture if one is given beside the preset.
fn decoder(name: &str, args: &SynthArgs) -> Result<SynthSpec, Failure> {
    let Some(architecture) = &args.shape.arch else {
        return preset(name, &args.quant);
    };
    let architecture = Architecture::from_name(architecture).ok_or_else(|| {
        let known = Architecture::all().map(Architecture::name).collect::<Vec<_>>().join(", ");
        Failure::user(format!(
            "no architecture {architecture:?}; known are {known}, and the encoders bert, nomic-bert and nomic-bert-moe"
        ))
    })?;
    Ok(match args.preset {
        None => preset(name, &args.quant)?,
        Some(_) => preset(name, &args.quant)?.in_architecture(architecture),
    })
}

fn write_encoder(
    (mut spec, preset): (EncoderSpec, &str),
    args: &SynthArgs,
    path: &Path,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let shape = &args.shape;
    let without_effect = [
        ("arch", shape.arch.is_some() && args.preset.is_some()),
        ("kv-heads", shape.kv_heads.is_some()),
        ("head-dim", shape.head_dim.is_some()),
        ("vocab", shape.vocab.is_some()),
        ("vocab-from", args.vocab_from.is_some()),
    ];
    if let Some((flag, _)) = without_effect.iter().find(|(_, given)| *given) {
        let why = format!("--{flag} has no effect on the preset {preset:?}");
        return Err(Failure::user(why));
    }
    spec.mix = mix(&args.quant)?;
    spec.seed = args.seed;
    for (size, given) in [
        (&mut spec.dim, shape.dim),
        (&mut spec.layers, shape.layers),
        (&mut spec.heads, shape.heads),
        (&mut spec.ffn, shape.ffn),
        (&mut spec.context, shape.train_context),
    ] {
        *size = given.unwrap_or(*size);
    }
    let (dim, ffn) = (u64::from(spec.dim), u64::from(spec.ffn));
    let bytes = 4 * u64::from(spec.layers) * dim * (4 * dim + 3 * ffn);
    if bytes > ENCODER_BYTES_MAX {
        return Err(Failure::user(format!(
            "--dim, --layers and --ffn make matrices of up to {bytes} bytes; an encoder is made in memory, of at most \
             {ENCODER_BYTES_MAX}"
        )));
    }
    let bytes = spec.to_bytes().map_err(Failure::user)?;
    std::fs::write(path, &bytes)
        .map_err(|why| Failure::user(format!("{}: {why}", path.display())))?;
    writeln!(out, "{}: {} bytes", path.display(), bytes.len())?;
    Ok(())
}

/// A synthetic model as the bytes of a file.
#[cfg(any(test, not(feature = "mini")))]
pub(crate) fn in_memory(name: &str, quant: &str) -> Result<Vec<u8>, Failure> {
    preset(name, quant)?.to_bytes().map_err(Failure::bug)
}

/// The synthetic model with a preset's shape and a quantization.
pub(crate) fn preset(name: &str, quant: &str) -> Result<SynthSpec, Failure> {
    let mut spec = SynthSpec::preset(name).ok_or_else(|| {
        let encoders = ENCODER_PRESETS.iter().map(|&name| name.to_owned());
        let known: Vec<String> = preset_names().chain(encoders).collect();
        Failure::user(format!(
            "no preset {name:?}; known are {}",
            known.join(", ")
        ))
    })?;
    spec.mix = mix(quant)?;
    Ok(spec)
}

fn mix(quant: &str) -> Result<Mix, Failure> {
    Mix::from_name(quant).ok_or_else(|| {
        Failure::user(format!(
            "no quantization {quant:?}; known are {}",
            mix_names()
        ))
    })
}

fn mix_names() -> String {
    Mix::all().map(Mix::name).collect::<Vec<_>>().join(", ")
}

fn apply_sizes(spec: &mut SynthSpec, shape: &ShapeArgs) {
    let sizes = [
        (&mut spec.dim, shape.dim),
        (&mut spec.layers, shape.layers),
        (&mut spec.heads, shape.heads),
        (&mut spec.kv_heads, shape.kv_heads),
        (&mut spec.head_dim, shape.head_dim),
        (&mut spec.ffn, shape.ffn),
        (&mut spec.vocab, shape.vocab),
        (&mut spec.context, shape.train_context),
    ];
    for (size, given) in sizes {
        *size = given.unwrap_or(*size);
    }
    if shape.head_dim.is_none() {
        spec.fit_heads();
    }
}
