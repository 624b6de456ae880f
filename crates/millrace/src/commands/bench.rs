//! `millrace bench`: a model's speed beside the machine's limits, and servers under load.

use super::synth::preset;
use crate::args::{BenchCommand, BenchModelArgs, BenchServeArgs};
use crate::config::DeviceChoice;
use crate::failure::Failure;
use crate::loading::{kernel_isa, measure_on_gpu};
use bench::load::{self, Arrivals, Endpoint, LatencyTargets};
use bench::speed;
use serde::Serialize;
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weights::gguf::Gguf;

/// Default requests per client of a closed loop.
const REQUESTS_PER_CLIENT: usize = 4;
/// Default seconds of arrivals of an open loop.
const ARRIVALS_S: f64 = 20.0;

/// Measures, and prints the report.
pub(crate) fn bench(command: &BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Model(args) => print_report(&bench_model(args)?, args.json),
        BenchCommand::Serve(args) => print_report(&bench_serve(args)?, args.json),
    }
}

fn print_report(report: &(impl Display + Serialize), json: bool) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if json {
        let text = serde_json::to_string(report).map_err(Failure::bug)?;
        writeln!(out, "{text}")?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(())
}

fn bench_model(args: &BenchModelArgs) -> Result<speed::SpeedReport, Failure> {
    let isa = kernel_isa(args.deterministic)?;
    let threads = match args.threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism()?.get(),
    };
    let options = speed::SpeedOptions {
        prompt: args.prompt,
        generate: args.generate,
        batches: args.batch.clone(),
        contexts: args.context.clone(),
        ahead: args.ahead,
        rounds: args.rounds,
        threads,
        kv: args.kv_type.into(),
        kv_bytes_max: args.kv_mib.saturating_mul(1 << 20),
    };
    let written = args
        .synth
        .as_deref()
        .map(SyntheticFile::synthetic)
        .transpose()?;
    let path = written
        .as_ref()
        .map(|written| &written.0)
        .or(args.model.as_ref());
    let path = path.ok_or_else(|| Failure::user("give --model FILE or --synth PRESET:FORMAT"))?;
    let gguf =
        Gguf::open(path).map_err(|why| Failure::user(format!("{}: {why}", path.display())))?;
    match args.device {
        DeviceChoice::Cpu => speed::measure(gguf, isa, &options).map_err(Failure::user),
        device => measure_on_gpu(gguf, device, args.deterministic, &options),
    }
}

/// A synthetic model in a temporary file, removed when dropped: loading is measured from a file, as in production.
struct SyntheticFile(PathBuf);

impl SyntheticFile {
    fn synthetic(name: &str) -> Result<Self, Failure> {
        let (shape, quant) = name.split_once(':').ok_or_else(|| {
            Failure::user(format!(
                "synth is {name:?}: PRESET:FORMAT is wanted, as llama-1b:Q8_0"
            ))
        })?;
        let spec = preset(shape, quant)?;
        let file = format!("millrace-bench-{}.gguf", std::process::id());
        let written = Self(std::env::temp_dir().join(file));
        spec.create(None, Path::new(&written.0))
            .map_err(Failure::user)?;
        Ok(written)
    }
}

impl Drop for SyntheticFile {
    fn drop(&mut self) {
        // A file that cannot be removed is in a temporary folder.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn bench_serve(args: &BenchServeArgs) -> Result<load::LoadReport, Failure> {
    let arrivals = match args.rate {
        Some(rate) => Arrivals::Poisson { rate },
        None => Arrivals::Clients(args.clients.unwrap_or(1)),
    };
    let (requests, warmup) = match arrivals {
        Arrivals::Clients(clients) => (clients.saturating_mul(REQUESTS_PER_CLIENT), clients),
        Arrivals::Poisson { rate } => ((rate * ARRIVALS_S).ceil() as usize, 1),
    };
    let bound = |ms: Option<u64>| ms.map(Duration::from_millis);
    load::run(load::LoadOptions {
        target: args.url.clone(),
        endpoint: if args.completions {
            Endpoint::Completions
        } else {
            Endpoint::Chat
        },
        model: args.model.clone(),
        api_key: args.api_key.clone(),
        prompt_tokens: args.prompt,
        max_tokens: args.generate,
        ignore_eos: args.ignore_eos,
        temperature: args.temperature,
        arrivals,
        requests: args.requests.unwrap_or(requests),
        warmup: args.warmup.unwrap_or(warmup),
        seed: args.seed,
        timeout: Duration::from_secs(args.timeout_s),
        targets: LatencyTargets {
            first_token: bound(args.slo_ttft_ms),
            between_tokens: bound(args.slo_itl_ms),
        },
        pid: args.pid,
    })
    .map_err(Failure::user)
}
