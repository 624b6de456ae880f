//! `millrace config`: every setting, its value, and where the value came from.

use crate::args::ServeArgs;
use crate::failure::Failure;
use std::io::Write;

/// Prints the settings as YAML with each value's origin as a comment.
pub(crate) fn config(args: &ServeArgs) -> Result<(), Failure> {
    let config = args.settings()?;
    let tree = serde_json::to_value(&config.settings).map_err(Failure::bug)?;
    let mut out = std::io::stdout().lock();
    for (section, keys) in tree.as_object().into_iter().flatten() {
        writeln!(out, "{section}:")?;
        for (key, value) in keys.as_object().into_iter().flatten() {
            let origin = &config.origins[&format!("{section}.{key}")];
            writeln!(out, "  {:<40} # {origin}", format!("{key}: {value}"))?;
        }
    }
    Ok(())
}
