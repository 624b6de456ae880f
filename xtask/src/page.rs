//! The web page in a real browser: `tools/page`.

use crate::shell::{self, Outcome, python, root};
use std::path::PathBuf;
use std::process::Command;

/// Drive the browser, look for barriers, write an animated picture; pinned.
pub(crate) const PACKAGES: [&str; 3] = [
    "axe-playwright-python==0.1.7",
    "pillow==13.0.0",
    "playwright==1.65.2",
];
/// The browser, as Debian's package names it.
const CHROMIUM: &str = "chromium";
/// Where the pictures of the documentation are.
const PICTURES: &str = "docs/page";

/// Runs the checks, or those that are named. `--screenshots` takes the pictures of the documentation instead, `--measure` prints
/// the first paint and the river's frames; `--debug` takes the debug binary, `--binary PATH` one that is there already.
pub(crate) fn run(args: &[String]) -> Outcome {
    let Some(chromium) = chromium() else {
        println!(
            "\n== page: SKIPPED, {CHROMIUM} is not installed and cannot be installed with apt-get"
        );
        return Ok(());
    };
    let python = match python("page", &PACKAGES, &[]) {
        Ok(python) => python,
        Err(why) => {
            println!("\n== page: SKIPPED, Playwright cannot be installed: {why}");
            return Ok(());
        }
    };
    let mut command = Command::new(python);
    command.arg(root().join("tools/page/page_suite.py"));
    let (binary, mut checks) = shell::binary(args)?;
    let all = checks.len();
    checks.retain(|check| check != "--screenshots");
    let pictures = checks.len() < all;
    command.arg(binary).arg(chromium).args(checks);
    if pictures {
        command.arg("--screenshots").arg(root().join(PICTURES));
    }
    shell::run(&mut command)
}

/// The browser, which is installed where the caller may do that.
pub(crate) fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = || {
        let mut places = std::env::split_paths(&path).map(|place| place.join(CHROMIUM));
        places.find(|program| program.is_file())
    };
    find().or_else(|| {
        // Fresh machines have no lists of packages.
        let install = "apt-get install -y --no-install-recommends \"$0\"";
        let script = format!("{install} || {{ apt-get update && {install}; }}");
        let installed = shell::run(Command::new("bash").args(["-c", &script, CHROMIUM]));
        if let Err(why) = installed {
            println!("{why}");
        }
        find()
    })
}
