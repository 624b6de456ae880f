//! Crates that must not come in, as `deny.toml` lists them, looked up in `Cargo.lock`.

use crate::shell::root;

/// Banned crates that the lock file names.
pub(crate) fn breaches() -> Result<Vec<String>, String> {
    let deny = read("deny.toml")?;
    let lock = read("Cargo.lock")?;
    let banned: Vec<&str> = deny.lines().filter_map(banned_name).collect();
    if banned.is_empty() {
        return Err("deny.toml lists no banned crate: has its form changed?".to_owned());
    }
    let locked = lock
        .lines()
        .filter_map(|line| quoted(line.strip_prefix("name = ")?));
    Ok(locked
        .filter(|name| banned.contains(name))
        .map(|name| format!("Cargo.lock holds the banned crate `{name}` (see deny.toml)"))
        .collect())
}

fn read(name: &str) -> Result<String, String> {
    std::fs::read_to_string(root().join(name)).map_err(|e| format!("{name}: {e}"))
}

/// The crate in a line `    { crate = "name", reason = "..." },`.
fn banned_name(line: &str) -> Option<&str> {
    quoted(line.trim().strip_prefix("{ crate = ")?)
}

fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('"')?.split('"').next()
}
