//! `millrace synth`: a GGUF model of any shape with random weights.

use crate::args::{ShapeArgs, SynthArgs};
use crate::failure::Failure;
use model::Architecture;
use model::gguf::Gguf;
use model::synth::{ENCODER_PRESETS, EncoderSpec, Mix, PRESETS, SynthSpec};
use std::io::Write;
use std::path::Path;

/// Writes a synthetic model, or lists the presets.
pub(crate) fn synth(args: &SynthArgs) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let Some(path) = args.out.as_ref().filter(|_| !args.list) else {
        writeln!(out, "presets: {}", PRESETS.join(", "))?;
        writeln!(out, "encoders: {}", ENCODER_PRESETS.join(", "))?;
        writeln!(out, "quantizations: {}", mix_names())?;
        return Ok(());
    };
    if let Some(spec) = EncoderSpec::preset(&args.preset) {
        return write_encoder(spec, args, path, &mut out);
    }
    let mut spec = preset(&args.preset, &args.quant)?;
    spec.seed = args.seed;
    apply_shape(&mut spec, &args.shape)?;
    let vocabulary = args.vocab_from.as_ref().map(Gguf::open).transpose();
    let vocabulary = vocabulary.map_err(Failure::user)?;
    let bytes = spec
        .create(vocabulary.as_ref(), path)
        .map_err(Failure::user)?;
    let parameters = spec.parameters().map_err(Failure::user)?;
    writeln!(
        out,
        "{}: {bytes} bytes, {parameters} parameters",
        path.display()
    )?;
    Ok(())
}

fn write_encoder(
    mut spec: EncoderSpec,
    args: &SynthArgs,
    path: &Path,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let shape = &args.shape;
    let without_effect = [
        ("arch", shape.arch.is_some()),
        ("kv-heads", shape.kv_heads.is_some()),
        ("head-dim", shape.head_dim.is_some()),
        ("vocab", shape.vocab.is_some()),
        ("vocab-from", args.vocab_from.is_some()),
    ];
    if let Some((flag, _)) = without_effect.iter().find(|(_, given)| *given) {
        let why = format!("--{flag} has no effect on the preset {:?}", args.preset);
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
    let bytes = spec.to_bytes().map_err(Failure::user)?;
    std::fs::write(path, &bytes)?;
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
        Failure::user(format!(
            "no preset {name:?}; known are {}",
            [PRESETS, ENCODER_PRESETS].concat().join(", ")
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

fn apply_shape(spec: &mut SynthSpec, shape: &ShapeArgs) -> Result<(), Failure> {
    if let Some(name) = &shape.arch {
        spec.architecture = Architecture::from_name(name).ok_or_else(|| {
            let names = Architecture::ALL.map(Architecture::name).join(", ");
            Failure::user(format!("no architecture {name:?}; known are {names}"))
        })?;
        let tiny = SynthSpec::tiny(spec.architecture);
        (spec.experts, spec.differing) = (tiny.experts, tiny.differing);
        spec.recurrent = tiny.recurrent;
        if tiny.latent.is_some() {
            (spec.head_dim, spec.rope) = (tiny.head_dim, tiny.rope);
        }
        spec.latent = tiny.latent;
    }
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
    Ok(())
}
