//! One process for one test: for tests that measure their whole process.

use std::any::type_name;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Set in the environment of a child.
const CHILD: &str = "MILLRACE_TEST_CHILD";

/// Children run one after another: each may load the whole machine.
static TURN: Mutex<()> = Mutex::new(());

/// Runs `test` in a child process and returns true; in that child, returns false. To be the first line of the test:
/// `if run_in_child(this_test) { return; }`.
///
/// # Panics
/// When the test fails in its child, or was not found there.
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the child's output"
)]
pub fn run_in_child<F: Fn() + Copy>(_test: F) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return false;
    }
    let (_, name) = type_name::<F>()
        .split_once("::")
        .expect("a test has a crate and a path");
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let child = Command::new(std::env::current_exe().expect("a path of this binary"))
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("a child process");
    drop(turn);
    let output = String::from_utf8_lossy(&child.stdout);
    print!("{output}");
    eprint!("{}", String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "{name} failed in its process");
    assert!(output.contains("test result: ok. 1 passed"), "{name} ran");
    true
}
