//! The prompt cache on disk over a killed process: the next one reads the beginning of a prompt instead of computing it.

use crate::support::{Folder, Serving, millrace, stdout};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use testing::wait::wait_until;

/// Tokens of a file's run: eight pages of 32.
const RUN: u64 = 256;
/// Tokens of the prompt: two runs, and an end that is always computed.
const PROMPT: u64 = 2 * RUN + 20;

struct Served {
    _folder: Folder,
    model: String,
    directory: PathBuf,
}

impl Served {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let model = folder.0.join("tiny.gguf").display().to_string();
        let args = [
            "--preset",
            "tiny-qwen3",
            "--quant",
            "Q8_0",
            "--train-context",
            "1024",
        ];
        stdout(&millrace(&[&["synth", &model], &args[..]].concat()));
        Self {
            model,
            directory: folder.0.join("prompts"),
            _folder: folder,
        }
    }

    fn start(&self, gib: &str) -> Serving {
        self.start_with(gib, &[])
    }

    fn start_with(&self, gib: &str, vars: &[(&str, &str)]) -> Serving {
        let mut args = vec![
            "serve",
            &self.model,
            "--bind",
            "127.0.0.1:0",
            "--threads",
            "1",
        ];
        args.extend(["--cache-directory", self.directory.to_str().unwrap()]);
        args.extend(["--cache-disk-gib", gib]);
        Serving::start_with(&args, vars, Stdio::inherit())
    }

    /// The files of runs.
    fn runs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten();
        let paths = entries.flatten().map(|entry| entry.path());
        let is_run = |path: &PathBuf| path.extension().is_some_and(|end| end == "run");
        paths.filter(is_run).collect()
    }

    /// Sends the prompt twice, so that it is used before, and waits until its runs are on the disk.
    fn fill(&self, serving: &Serving) -> Answer {
        let first = answer(serving);
        assert_eq!(first.cached, 0);
        let second = answer(serving);
        assert!(
            second.cached >= 2 * RUN,
            "{} tokens in memory",
            second.cached
        );
        assert_eq!(first.text, second.text);
        wait_until("runs on the disk", || self.runs().len() == 2);
        first
    }
}

struct Answer {
    text: String,
    logprobs: Value,
    cached: u64,
}

/// The likeliest continuation of the prompt, with log-probabilities.
fn answer(serving: &Serving) -> Answer {
    let ids: Vec<u64> = (0..PROMPT).map(|i| 10 + (i * i + 7 * i) % 200).collect();
    let body = json!({
        "prompt": ids, "max_tokens": 12, "temperature": 0, "logprobs": 2, "ignore_eos": true,
    });
    let reply = serving.post("/v1/completions", &body.to_string());
    let (_, body) = reply.split_once("\r\n\r\n").expect("a body");
    let body: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{reply}"));
    let choice = &body["choices"][0];
    let cached = &body["usage"]["prompt_tokens_details"]["cached_tokens"];
    Answer {
        text: choice["text"].as_str().expect("a text").to_owned(),
        logprobs: choice["logprobs"].clone(),
        cached: cached.as_u64().unwrap_or(0),
    }
}

/// The value of a metric without labels.
fn metric(serving: &Serving, name: &str) -> f64 {
    let metrics = serving.get("/metrics");
    let line = metrics
        .lines()
        .find(|line| line.starts_with(&format!("{name} ")));
    let line = line.unwrap_or_else(|| panic!("no {name} in {metrics}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn killed_server_reads_the_prompt_back_with_equal_answers() {
    let served = Served::new("prompt-cache");
    let serving = served.start("1");
    let first = served.fill(&serving);
    drop(serving); // the drop kills
    assert_eq!(mode(&served.directory), 0o700);
    served
        .runs()
        .iter()
        .for_each(|run| assert_eq!(mode(run), 0o600));

    let serving = served.start("1");
    let again = answer(&serving);
    assert_eq!(again.cached, 2 * RUN);
    assert_eq!(
        (again.text, again.logprobs),
        (first.text.clone(), first.logprobs.clone())
    );
    let tokens = metric(&serving, "millrace_prompt_disk_hit_tokens_total");
    assert_eq!(tokens, (2 * RUN) as f64);
    assert_eq!(metric(&serving, "millrace_prompt_disk_damaged_total"), 0.0);
    drop(serving);

    // A damaged file is computed, and removed.
    for run in served.runs() {
        let mut bytes = std::fs::read(&run).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        std::fs::write(&run, bytes).unwrap();
    }
    let serving = served.start("1");
    let computed = answer(&serving);
    assert_eq!(computed.cached, 0);
    assert_eq!(
        (computed.text, computed.logprobs),
        (first.text, first.logprobs)
    );
    assert!(metric(&serving, "millrace_prompt_disk_damaged_total") > 0.0);
}

#[test]
fn size_0_writes_nothing_and_other_models_files_are_removed() {
    let served = Served::new("prompt-cache");
    let serving = served.start("0");
    answer(&serving);
    assert!(answer(&serving).cached >= 2 * RUN);
    drop(serving);
    assert!(!served.directory.exists());

    let serving = served.start("1");
    served.fill(&serving);
    drop(serving);
    // Keys and values of another type are another cache.
    let serving = served.start_with("1", &[("MILLRACE_MODEL_KV_TYPE", "q8_0")]);
    assert_eq!(answer(&serving).cached, 0);
    assert!(served.runs().is_empty());
}
