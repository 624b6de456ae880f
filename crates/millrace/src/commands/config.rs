//! `millrace config`: every setting, its value, and the value's origin.

use crate::args::{ConfigArgs, ConfigCommand, ServeArgs};
use crate::config::{self, Config};
use crate::failure::Failure;
use serde_json::{Map, Value};
use std::io::Write;

/// Prints the settings, their schema or their table.
pub(crate) fn config(args: &ConfigArgs) -> Result<(), Failure> {
    match args.command {
        None => print_settings(&args.serve),
        Some(ConfigCommand::Schema) => print_schema(),
        Some(ConfigCommand::Table) => print_tables(),
    }
}

/// The settings as YAML with each value's origin as a comment.
fn print_settings(args: &ServeArgs) -> Result<(), Failure> {
    let config = args.settings()?;
    let tree = serde_json::to_value(&config.settings).map_err(Failure::bug)?;
    let mut out = std::io::stdout().lock();
    for (name, value) in tree.as_object().into_iter().flatten() {
        let Some(section) = value.as_object() else {
            setting_line(&mut out, &config, ("", name), name, value)?;
            continue;
        };
        writeln!(out, "{name}:")?;
        section_lines(&mut out, &config, ("  ", name), section)?;
    }
    Ok(())
}

fn section_lines(
    out: &mut impl Write,
    config: &Config,
    (indent, section): (&str, &str),
    settings: &Map<String, Value>,
) -> Result<(), Failure> {
    for (name, value) in settings {
        let key = format!("{section}.{name}");
        match value.as_object() {
            Some(inner) if !config.origins.contains_key(&key) => {
                writeln!(out, "{indent}{name}:")?;
                section_lines(out, config, (&format!("{indent}  "), &key), inner)?;
            }
            _ => setting_line(out, config, (indent, name), &key, value)?,
        }
    }
    Ok(())
}

fn setting_line(
    out: &mut impl Write,
    config: &Config,
    (indent, name): (&str, &str),
    key: &str,
    value: &Value,
) -> Result<(), Failure> {
    let origin = &config.origins[key];
    let width = 42 - indent.len();
    writeln!(
        out,
        "{indent}{:<width$} # {origin}",
        format!("{name}: {value}")
    )?;
    Ok(())
}

fn print_schema() -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(&config::schema()).map_err(Failure::bug)?;
    writeln!(std::io::stdout().lock(), "{text}")?;
    Ok(())
}

fn print_tables() -> Result<(), Failure> {
    write!(std::io::stdout().lock(), "{}", config::table())?;
    Ok(())
}
