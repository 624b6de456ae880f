//! Which crate may depend on which: the drawing in ARCHITECTURE.md, as data.

use crate::shell::metadata;
use serde_json::Value;

/// Crate, what it may depend on, and what its tests may use beyond that.
const DRAWN: [(&str, &[&str], &[&str]); 26] = [
    ("journal", &["private_files"], &["testing"]),
    ("page", &[], &["testing"]),
    ("private_files", &[], &["testing"]),
    ("stream", &[], &["testing"]),
    ("kernels", &[], &["testing"]),
    ("media", &[], &["testing"]),
    ("model", &[], &[]),
    ("weights", &["kernels", "media", "model"], &["testing"]),
    (
        "cpu",
        &["kernels", "media", "model", "weights"],
        &["synth", "testing"],
    ),
    (
        "gpu",
        &["kernels", "model", "weights"],
        &["cpu", "engine", "stream", "synth", "testing"],
    ),
    ("synth", &["kernels", "weights"], &[]),
    (
        "engine",
        &["kernels", "model", "private_files", "stream"],
        &["testing"],
    ),
    ("text", &[], &["testing"]),
    (
        "workflow",
        &["engine", "generate", "stream", "text"],
        &["model", "testing"],
    ),
    (
        "generate",
        &["engine", "media", "stream", "text"],
        &["model", "testing"],
    ),
    (
        "wire",
        &["engine", "generate", "media", "stream", "text"],
        &["testing"],
    ),
    ("admission", &["engine", "generate"], &["stream", "testing"]),
    ("http_client", &[], &["testing"]),
    (
        "gateway",
        &[
            "admission",
            "cluster",
            "engine",
            "generate",
            "http_client",
            "journal",
            "stream",
            "text",
            "wire",
            "workflow",
        ],
        &["testing"],
    ),
    (
        "server",
        &[
            "admission",
            "cluster",
            "engine",
            "gateway",
            "generate",
            "http_client",
            "page",
            "stream",
            "text",
            "upstream",
            "wire",
            "workflow",
        ],
        &["journal", "model", "testing"],
    ),
    (
        "cluster",
        &["engine", "generate", "journal", "model", "stream", "text"],
        &["testing"],
    ),
    (
        "upstream",
        &["engine", "generate", "http_client", "stream", "text"],
        &["model", "testing"],
    ),
    ("bench", &["cpu", "kernels", "model", "weights"], &["synth"]),
    (
        "millrace",
        &[
            "bench",
            "cluster",
            "cpu",
            "engine",
            "generate",
            "gpu",
            "http_client",
            "journal",
            "kernels",
            "media",
            "model",
            "private_files",
            "server",
            "stream",
            "synth",
            "text",
            "upstream",
            "weights",
            "wire",
            "workflow",
        ],
        &["testing"],
    ),
    ("testing", &["text"], &[]),
    ("xtask", &[], &[]),
];

/// Edges that are not drawn, and crates that are not in the drawing.
pub(crate) fn breaches() -> Result<Vec<String>, String> {
    let metadata = metadata()?;
    let packages = metadata["packages"]
        .as_array()
        .ok_or("cargo metadata has no packages")?;
    let ours: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    Ok(packages
        .iter()
        .flat_map(|package| breaches_of(package, &ours))
        .collect())
}

fn breaches_of(package: &Value, ours: &[&str]) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let Some((_, uses, tests_use)) = DRAWN.iter().find(|row| row.0 == name) else {
        return vec![format!(
            "crate `{name}` is not in the drawing (xtask/src/tidy/edges.rs)"
        )];
    };
    let dependencies = package["dependencies"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    dependencies
        .iter()
        .filter_map(|dependency| Some((dependency["name"].as_str()?, dependency["kind"].as_str())))
        .filter(|(to, _)| ours.contains(to))
        .filter(|(to, kind)| {
            !(uses.contains(to) || (*kind == Some("dev") && tests_use.contains(to)))
        })
        .map(|(to, _)| format!("edge {name} -> {to} is not drawn"))
        .collect()
}
