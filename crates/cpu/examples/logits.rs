//! Logits of a list of ids, for the oracle (`tools/oracle/oracle.py`).
//!
//! `logits MODEL CONTEXT IDS OUT [KV] [SCALE=ADAPTER ...]`: reads ids as text from the file IDS and writes f32 logits,
//! little-endian, shape `(ids, vocab)`, to the file OUT. MODEL is a GGUF or a folder of safetensors; KV is
//! the format of keys and values: f16, q8_0 or q4_0.

use cpu::{LoadOptions, Model, PAGE_TOKENS};
use kernels::{Isa, KvKind, Pool};
use model::{AdapterSet, Batch, Forward, SpanStates, Want};
use std::error::Error;
use std::io::Write;
use std::path::Path;
use weights::gguf::Gguf;
use weights::safetensors::Safetensors;
use weights::{Adapter, ModelFiles};

/// Rows of one batch; long prompts are divided into chunks.
const ROWS: usize = 64;
const THREADS: usize = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut adapted = Vec::new();
    while let Some((scale, file)) = args.last().and_then(|arg| arg.split_once('=')) {
        adapted.insert(0, (scale.parse::<f32>()?, file.to_owned()));
        args.pop();
    }
    let kv = match args.len() {
        5 => KvKind::from_name(&args.remove(4)).ok_or("KV is f16, q8_0 or q4_0")?,
        _ => KvKind::F16,
    };
    let [path, context, ids, out] = args.as_slice() else {
        return Err("usage: logits MODEL CONTEXT IDS OUT [KV] [SCALE=ADAPTER ...]".into());
    };
    let ids = std::fs::read_to_string(ids)?;
    let ids = ids
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<Vec<u32>, _>>()?;
    let context: usize = context.parse()?;
    let options = LoadOptions {
        context_max: Some(context),
        page_tokens: PAGE_TOKENS,
        pages: context.div_ceil(PAGE_TOKENS),
        kv,
        states: 2,
        rows_max: ROWS,
        logit_rows_max: ROWS,
        mtp: false,
    };
    let (isa, pool) = (Isa::detect(), Pool::new(THREADS));
    let files: ModelFiles = if Path::new(path).is_dir() {
        Safetensors::open(Path::new(path), None)?.into()
    } else {
        Gguf::open(path)?.into()
    };
    let config = files.config(options.context_max)?;
    let open = |(_, file): &(f32, String)| Adapter::open(Path::new(file), &files, &config);
    let adapters: Vec<Adapter> = adapted.iter().map(open).collect::<Result<_, _>>()?;
    let mut model = Model::load(files, isa, pool, &options, &mut |_| {})?;
    model.adapt(&adapters)?;
    let scales = adapted.iter().map(|(scale, _)| *scale).enumerate();
    let set = AdapterSet::new(scales).ok_or("too many adapters, or a scale that is none")?;
    let pages: Vec<u32> = (0..options.pages as u32).collect();
    let mut out = std::io::BufWriter::new(std::fs::File::create(out)?);
    let mut batch = Batch::default();
    for (chunk, ids) in ids.chunks(ROWS).enumerate() {
        batch.clear();
        batch.push_adapted(ids, chunk * ROWS, &pages, Want::All, set);
        batch.set_states(Some(SpanStates::alternating(0, chunk, chunk * ROWS)));
        for logit in model.forward(&batch)? {
            out.write_all(&logit.to_le_bytes())?;
        }
    }
    out.flush()?;
    Ok(())
}
