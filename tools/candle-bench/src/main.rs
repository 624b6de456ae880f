//! candle's quantised Llama on a GGUF file, timed: a rival for `cargo xtask rivals`.
//!
//! `candle-bench MODEL PROMPT GEN CONTEXT`: one JSON line with tokens per second of a prompt of
//! PROMPT tokens and of GEN tokens after CONTEXT, the load's milliseconds and the resident bytes.
//! Threads: `RAYON_NUM_THREADS` and `CANDLE_NUM_THREADS`.

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::time::Instant;

/// Ids that every vocabulary has.
const IDS: u32 = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, prompt, generated, context] = args.as_slice() else {
        return Err("usage: candle-bench MODEL PROMPT GEN CONTEXT".into());
    };
    let (prompt, generated): (usize, usize) = (prompt.parse()?, generated.parse()?);
    let context: usize = context.parse()?;
    let start = Instant::now();
    let mut reader = BufReader::new(File::open(path)?);
    let content = Content::read(&mut reader)?;
    let mut model = ModelWeights::from_gguf(content, &mut reader, &Device::Cpu)?;
    let load_ms = start.elapsed().as_secs_f64() * 1e3;
    step(&mut model, 8, 0)?;
    let start = Instant::now();
    step(&mut model, prompt, 0)?;
    let prefill = prompt as f64 / start.elapsed().as_secs_f64();
    step(&mut model, context, 0)?;
    let start = Instant::now();
    for i in 0..generated {
        step(&mut model, 1, context + i)?;
    }
    let decode = generated as f64 / start.elapsed().as_secs_f64();
    let rss = resident_bytes()?;
    println!(
        r#"{{"prefill":{prefill},"decode":{decode},"load_ms":{load_ms},"resident_bytes":{rss}}}"#
    );
    Ok(())
}

/// Runs `tokens` tokens from `position` on, and takes the logits out, so that they are computed.
fn step(model: &mut ModelWeights, tokens: usize, position: usize) -> Result<(), Box<dyn Error>> {
    let ids: Vec<u32> = (0..tokens as u32).map(|i| i * 37 % IDS).collect();
    let input = Tensor::new(ids.as_slice(), &Device::Cpu)?.unsqueeze(0)?;
    model
        .forward(&input, position)?
        .flatten_all()?
        .to_vec1::<f32>()?;
    Ok(())
}

/// Resident memory of this process, from `/proc`.
fn resident_bytes() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 = line
        .and_then(|rest| rest.split_whitespace().next())
        .ok_or("no VmRSS in /proc/self/status")?
        .parse()?;
    Ok(kib << 10)
}
