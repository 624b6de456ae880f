//! The systemd unit: what systemd itself says of it, where systemd is installed.

use super::{copy, create, empty_folder, folder};
use crate::shell::{Outcome, output, root};
use std::process::Command;

/// Exposure that `systemd-analyze security` may find, in tenths; 100 is none of its settings.
const EXPOSURE_TENTHS_MAX: u32 = 20;

/// Checks the unit against a root that has the files it names.
pub(super) fn check() -> Outcome {
    let version = Command::new("systemd-analyze").arg("--version").output();
    if !version.is_ok_and(|told| told.status.success()) {
        println!("\n== dist: the unit is NOT CHECKED, systemd-analyze is not installed");
        return Ok(());
    }
    let units = folder().join("units");
    empty_folder(&units)?;
    let name = "millrace.service";
    let unit = units.join(name);
    copy(&root().join("deploy/systemd").join(name), &unit)?;
    // `verify` wants the program to be there; its place in the unit is checked by the package.
    let text = std::fs::read_to_string(&unit).map_err(|e| format!("{}: {e}", unit.display()))?;
    create(&units.join("bin"))?;
    let program = units.join("bin/millrace");
    copy(&folder().join("millrace"), &program)?;
    let installed = text.replace("/usr/bin/millrace", &program.display().to_string());
    super::write(&unit, &installed)?;
    let verify = Command::new("systemd-analyze")
        .arg("verify")
        .arg("--man=no")
        .arg(&unit)
        .output();
    let verify = verify.map_err(|e| format!("systemd-analyze verify: {e}"))?;
    let said = String::from_utf8_lossy(&verify.stderr).into_owned();
    let about_it = said.lines().find(|line| line.contains(name));
    if let Some(line) = about_it {
        return Err(format!("systemd-analyze verify: {line}"));
    }
    let threshold = EXPOSURE_TENTHS_MAX.to_string();
    let security = output(
        Command::new("systemd-analyze")
            .args([
                "security",
                "--offline=yes",
                "--no-pager",
                "--threshold",
                &threshold,
            ])
            .arg(&unit),
    )?;
    let report = String::from_utf8_lossy(&security).into_owned();
    let overall = report
        .lines()
        .find(|line| line.contains("Overall exposure level"));
    let overall = overall.ok_or("systemd-analyze security named no level")?;
    println!("\n== {}", overall.trim());
    Ok(())
}
