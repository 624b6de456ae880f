//! Programs of others that tests start, and tests that cannot run on this machine.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// A file for the tests that were skipped, one line each: the test, a tab, the reason. `cargo xtask test` sets the variable,
/// and shows the lines at its end.
const SKIPS: &str = "TEST_SKIPS";
/// `true` on machines that must have every program.
const CI: &str = "CI";

/// The program that `variable` names, or else the first of this name in `PATH` and in the folders of administrators. `None`:
/// the test is skipped, which was noted.
///
/// # Panics
/// Where there is none and `CI` is `true`.
pub fn find_program(name: &str, variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).collect::<Vec<_>>();
    places.extend(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let mut programs = places.into_iter().map(|place| place.join(name));
    let chosen = std::env::var_os(variable).map(PathBuf::from);
    let found = chosen.or_else(|| programs.find(|program| program.is_file()));
    if found.is_none() {
        let why = format!("there is no {name} in PATH, and {variable} is not set");
        let must_run = std::env::var_os(CI).is_some_and(|value| value == "true");
        assert!(!must_run, "{why}, but {CI} is true");
        note_skipped_test(&why);
    }
    found
}

/// Notes that the test of this thread does not run, and why.
#[expect(clippy::print_stderr, reason = "a skipped test must be seen")]
pub fn note_skipped_test(why: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test");
    eprintln!("SKIPPED: {name}: {why}");
    let Some(file) = std::env::var_os(SKIPS) else {
        return;
    };
    let file = OpenOptions::new().append(true).create(true).open(file);
    // One write for one line: several test programs append at one time.
    let line = format!("{name}\t{why}\n");
    let noted = file.and_then(|mut file| file.write_all(line.as_bytes()));
    noted.expect("the file of skipped tests can be written");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_found_by_its_name() {
        let found = find_program("sh", "MILLRACE_TEST_NO_SUCH_VARIABLE");
        assert!(found.is_some_and(|path| path.ends_with("sh")));
    }
}
