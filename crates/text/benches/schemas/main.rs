//! JSONSchemaBench: each schema compiled, each of its instances checked token by token.
//!
//! `cargo xtask conformance jsonschemabench` runs this program and writes its output to
//! `measurements/jsonschemabench.md`. `cargo bench -p text --bench schemas -- CHECKOUT --faults` instead
//! prints a line for each schema that is refused or misjudged; with `--written` only as the schema is written, with
//! `--unmasked` without computing bitmasks (and so without their bounds), and after the checkout may come names of schemas.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints"
)]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

mod report;
mod suite;
#[path = "../../tests/it/support/mod.rs"]
mod support;
mod verdict;

use report::Report;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use text::{GrammarCompiler, Tokenizer};
use verdict::{Engine, Verdict};

/// That of Llama 3, as in the published figures.
const VOCABULARY: &str = "llama-bpe";

fn main() -> ExitCode {
    // Cargo adds `--bench`.
    let args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let (flags, paths): (Vec<_>, Vec<_>) = args.partition(|arg| arg.starts_with("--"));
    let has = |name: &str| flags.iter().any(|flag| flag == name);
    let options = Options {
        prints_faults: has("--faults"),
        is_written_only: has("--written"),
        is_unmasked: has("--unmasked"),
        names: paths.iter().skip(1).cloned().collect(),
    };
    let Some(checkout) = paths.first() else {
        eprintln!("schemas: skipped, names no checkout of guidance-ai/jsonschemabench");
        return ExitCode::SUCCESS;
    };
    match run(Path::new(checkout), &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("schemas: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Which schemas are checked, and which lines are printed.
struct Options {
    prints_faults: bool,
    is_written_only: bool,
    is_unmasked: bool,
    /// Names of schemas; empty: all.
    names: Vec<String>,
}

fn run(checkout: &Path, options: &Options) -> Result<(), String> {
    let mut files = suite::files(checkout)?;
    files.retain(|file| {
        let name = file.file_stem().unwrap_or_default();
        options.names.is_empty() || options.names.iter().any(|one| name == one.as_str())
    });
    let folder = support::folder()
        .ok_or("set MILLRACE_TEST_VOCABULARIES to a folder with ggml-vocab-llama-bpe.gguf")?;
    let tokenizer = Tokenizer::from_vocab(support::spec(&folder, VOCABULARY))
        .map_err(|why| format!("the vocabulary {VOCABULARY}: {why}"))?;
    let tokenizer = Arc::new(tokenizer);
    let mut engine = Engine::new(
        GrammarCompiler::new(Arc::clone(&tokenizer), tokenizer.eos_ids()),
        tokenizer,
        !options.is_unmasked,
    );
    let mut reports = [("as written", false), ("objects closed", true)].map(|(mode, closes)| {
        let report = Report::new(mode);
        (report, closes)
    });
    for file in &files {
        let case = suite::read(file)?;
        for (report, closes) in &mut reports {
            if *closes && options.is_written_only {
                continue;
            }
            let checked = engine.check(&case, *closes);
            if options.prints_faults && checked.verdict != Verdict::Passes {
                println!("{}\t{}\t{}", report.mode, case.name, checked.verdict);
            }
            report.add(checked);
        }
    }
    if !options.prints_faults {
        report::print(&reports.map(|(report, _)| report), files.len());
    }
    Ok(())
}
