//! The project's own chores.
//!
//! ```text
//! cargo xtask test      everything a change must pass (what CI runs)
//! cargo xtask tidy      crate edges, circles between files, layers, file and crate budgets, banned names and crates, kernels without a twin;
//!                       `tidy imports CRATE` lists the imports between the files of a crate
//! cargo xtask size      production lines of each crate and its budget (part of `tidy`); --small: lists files under 40 lines
//! cargo xtask spec      writes SPECIFICATION.md from comments of the tests
//! cargo xtask packages  installs what the suites below need (needs PyPI, npm, Debian)
//! cargo xtask chart     the Helm chart, rendered and checked (needs PyPI)
//! cargo xtask deny      advisories, licenses, bans and sources of all dependencies (needs PyPI and RustSec's list);
//!                       --offline: without advisories
//! cargo xtask clients   other people's clients against a running server (needs PyPI); --all: also those of embeddings and proxies;
//!                       --device NAME: with models on a device
//! cargo xtask arm       the kernels' tests for AArch64 under qemu, in a root of Debian sid (needs root, Debian; minutes);
//!                       --all: also those of model and engine; --check: the binary's code compiles
//! cargo xtask cluster   faults in a cluster of processes over NATS, with unmodified clients (needs PyPI, minutes);
//!                       --short: the main ones; --numbers: measurements (measurements/cluster.md)
//! cargo xtask page      the web page in a real browser (needs PyPI and Debian's chromium); --screenshots: its pictures;
//!                       --measure: its first paint, and the river's frames with a thousand lanes
//! cargo xtask dist      a release: archive with checksum (static, where the target is installed); --deb: Debian package
//!                       (--install: and installs it into a new Debian, needs root, Debian); --wheel: Python package (needs
//!                       PyPI); --gpu: archive or wheel with support of GPUs (needs PyPI); --folder: what an archive has.
//!                       Minutes
//! cargo xtask device-run  --pack: what a machine with a GPU is asked, as an archive; --try: with small shapes on this machine;
//!                       --rivals: with llama.cpp (needs npm)
//! cargo xtask book      the documentation as a site (needs mdbook: `cargo install mdbook --locked`)
//! cargo xtask docs      every command of README.md and docs/*.md, on the built-in model
//! cargo xtask conformance   other people's suites, unmodified; writes docs/conformance.md (needs PyPI, minutes);
//!                       `conformance jsonschemabench` writes measurements/jsonschemabench.md (needs a checkout);
//!                       `conformance autobahn` writes measurements/autobahn.md (needs root, Debian, PyPI)
//! cargo xtask soak      clients that come, stall, leave and come back, for ten minutes; nothing may be left.
//!                       --hostile: 100 of them, which also cut, reset, storm and send malformed bytes
//! cargo xtask rivals    our speed beside llama.cpp's and candle's (needs PyPI, minutes to build)
//! cargo xtask oracle    our logits and tokens against llama.cpp's (needs PyPI, minutes to build); --mtmd: towers of images
//! ```

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool"
)]

mod arm;
mod autobahn;
mod book;
mod chart;
mod clients;
mod cluster;
mod conformance;
mod debian_program;
mod debian_root;
mod deny;
mod device_run;
mod dist;
mod docs;
mod lavapipe;
mod links;
mod masked_text;
mod oracle;
mod packages;
mod page;
mod rivals;
mod shell;
mod size;
mod skipped_tests;
mod soak;
mod spec;
mod suite;
mod test_programs;
mod tidy;
mod watched_program;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let outcome = match args.next().as_deref() {
        Some("test") => suite::run(),
        Some("tidy") => tidy::run(&args.collect::<Vec<_>>()),
        Some("spec") => spec::run(),
        Some("size") => size::run(&args.collect::<Vec<_>>()),
        Some("arm") => arm::run(&args.collect::<Vec<_>>()),
        Some("book") => book::run(),
        Some("chart") => chart::run(&args.collect::<Vec<_>>()),
        Some("clients") => clients::run(&args.collect::<Vec<_>>()),
        Some("cluster") => cluster::run(&args.collect::<Vec<_>>()),
        Some("packages") => packages::run(),
        Some("page") => page::run(&args.collect::<Vec<_>>()),
        Some("deny") => deny::run(&args.collect::<Vec<_>>()),
        Some("device-run") => device_run::run(&args.collect::<Vec<_>>()),
        Some("dist") => dist::run(&args.collect::<Vec<_>>()),
        Some("docs") => docs::run(&args.collect::<Vec<_>>()),
        Some("conformance") => conformance::run(&args.collect::<Vec<_>>()),
        Some("soak") => soak::run(&args.collect::<Vec<_>>()),
        Some("oracle") => oracle::run(&args.collect::<Vec<_>>()),
        Some("rivals") => rivals::run(&args.collect::<Vec<_>>()),
        other => Err(format!(
            "unknown task {:?}: test, tidy, size, spec, arm, book, chart, packages, clients, cluster, deny, device-run, page, dist, docs, conformance, soak, rivals or oracle",
            other.unwrap_or("(none)")
        )),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}
