//! The test programs of the workspace, run two at a time: most of them wait for servers, clocks and sockets.

use crate::debian_program::{NATS_SERVER, debian_program};
use crate::lavapipe;
use crate::shell::{self, Outcome, cargo};
use crate::skipped_tests::SkippedTests;
use crate::watched_program::{self, TimeBounds};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

/// Programs at one time.
const LANES: usize = 2;
/// Failed tests of a program that are tried once more, alone.
const ALONE_MAX: usize = 3;

/// The longest test takes two minutes on two busy cores.
const BOUNDS: TimeBounds = TimeBounds {
    test_max: Duration::from_secs(300),
    silence_max: Duration::from_secs(600),
};

/// An executable with tests.
struct TestProgram {
    executable: PathBuf,
    /// The folder of its package, in which `cargo test` would run it, too.
    folder: PathBuf,
    name: String,
    bytes: u64,
}

/// Builds the test programs of these arguments of `cargo test`, and runs all of them, also after a failure.
pub(crate) fn run(arguments: &str, skipped: &SkippedTests) -> Outcome {
    let mut programs = build(arguments)?;
    let environment = environment(skipped)?;
    // Large programs have the most tests; the small ones fill what is left at the end.
    programs.sort_by_key(|program| std::cmp::Reverse(program.bytes));
    let waiting = Mutex::new(VecDeque::from(programs));
    let failed = Mutex::new(Vec::new());
    let take = || waiting.lock().ok()?.pop_front();
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some(program) = take() {
                    if let Err(tests) = program.passes(&environment, &[])
                        && let Ok(mut failed) = failed.lock()
                    {
                        failed.push((program, tests));
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap_or_default();
    failed.retain(|(program, tests)| !program.passes_alone(tests, &environment));
    if failed.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = failed
        .into_iter()
        .map(|(program, _)| program.name)
        .collect();
    Err(format!("tests failed in: {}", names.join(", ")))
}

/// Variables for tests: programs of others, which are unpacked where they are not installed, and where to note skipped tests.
fn environment(skipped: &SkippedTests) -> Result<Vec<(&'static str, PathBuf)>, String> {
    let mut variables = vec![("TEST_SKIPS", skipped.file().to_owned())];
    let nats_server = debian_program(NATS_SERVER)?;
    variables.extend(nats_server.map(|program| ("TEST_NATS_SERVER", program)));
    variables.extend(lavapipe::variables());
    Ok(variables)
}

fn build(arguments: &str) -> Result<Vec<TestProgram>, String> {
    println!("\n== cargo test {arguments} --no-run");
    let mut command = cargo();
    command
        .env("CARGO_INCREMENTAL", shell::incremental())
        .arg("test")
        .args(arguments.split(' '))
        .args(["--no-run", "--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit());
    let began = shell::now();
    let told = shell::output(&mut command)?;
    println!("== {} s", began.elapsed().as_secs());
    let lines = told.split(|byte| *byte == b'\n');
    let programs: Vec<_> = lines.filter_map(TestProgram::of_message).collect();
    if programs.is_empty() {
        return Err(format!("`cargo test {arguments}` built no test program"));
    }
    Ok(programs)
}

impl TestProgram {
    /// The program of a message of cargo (Cargo's reference, "External tools", artifact messages).
    fn of_message(line: &[u8]) -> Option<Self> {
        let message: Value = serde_json::from_slice(line).ok()?;
        if message["profile"]["test"] != true {
            return None;
        }
        let executable = PathBuf::from(message["executable"].as_str()?);
        let folder = PathBuf::from(message["manifest_path"].as_str()?)
            .parent()?
            .to_path_buf();
        let kind = message["target"]["kind"][0].as_str()?;
        let package = folder.file_name()?.to_string_lossy().into_owned();
        Some(Self {
            name: format!("{package} ({kind} {})", message["target"]["name"].as_str()?),
            bytes: std::fs::metadata(&executable).map_or(0, |file| file.len()),
            executable,
            folder,
        })
    }

    /// Whether a few tests that failed pass one at a time, without a second program beside them: then they depend on the
    /// machine's load, which is shown.
    fn passes_alone(&self, tests: &[String], environment: &[(&str, PathBuf)]) -> bool {
        if tests.is_empty() || tests.len() > ALONE_MAX {
            return false;
        }
        let mut arguments = vec!["--exact", "--test-threads", "1"];
        arguments.extend(tests.iter().map(String::as_str));
        let passes = self.passes(environment, &arguments).is_ok();
        if passes {
            let tests = tests.join(", ");
            println!("== UNSTEADY, failed under load and passed alone: {tests}");
        }
        passes
    }

    /// Runs the program, then shows what it wrote of failures and in the end.
    ///
    /// # Errors
    /// The tests that failed; none if the program did not end as it should.
    fn passes(
        &self,
        environment: &[(&str, PathBuf)],
        arguments: &[&str],
    ) -> Result<(), Vec<String>> {
        let began = shell::now();
        let mut command = Command::new(&self.executable);
        command
            .args(arguments)
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .envs(environment.iter().map(|(name, value)| (name, value)));
        let (passes, text) = match watched_program::run(&mut command, &BOUNDS) {
            Ok(ended) => (ended.passes, ended.shown),
            Err(error) => (false, format!("did not start: {error}")),
        };
        let seconds = began.elapsed().as_secs();
        println!("\n== {}: {seconds} s\n{}", self.name, text.trim_end());
        if passes {
            Ok(())
        } else {
            Err(failed_tests(&text))
        }
    }
}

/// Names of failed tests in libtest's output; none if the program was ended from outside.
fn failed_tests(text: &str) -> Vec<String> {
    if text.contains("KILLED: ") {
        return Vec::new();
    }
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    names.map(str::to_owned).collect()
}
