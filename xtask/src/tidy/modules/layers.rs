//! Layers inside a crate: a module may name items of its own layer and of those below.

use super::Arrows;
use super::tree::ModuleTree;

/// Crate, and its top-level modules from the lowest layer up. Modules that are not listed are on the highest layer;
/// the crate's root file is on none.
const LAYERS: [(&str, &[&[&str]]); 1] = [("gateway", &GATEWAY)];

const GATEWAY: [&[&str]; 5] = [
    &[
        "admission",
        "id_generator",
        "job_names",
        "lifetime_stats",
        "notify_waker",
        "response_limits",
        "stream_clocks",
    ],
    &["keys", "latency_sampler"],
    &[
        "durability",
        "limits",
        "metrics",
        "models",
        "owners_slot",
        "streams",
        "workflows",
    ],
    &[
        "ended",
        "ended_response",
        "fair_lru",
        "generation",
        "launch",
        "lifecycle",
        "mailbox",
        "offload",
        "response_record",
        "response_store",
        "stored_completions",
        "stored_note",
        "stored_snapshot",
        "stream_follower",
        "webhooks",
    ],
    &["handles", "pending_generation"],
];

/// Arrows that run up today, one `from -> to` a line; the list may only shrink.
const EXCEPTIONS: &str = include_str!("exceptions.txt");

/// Arrows that run up and are not listed, and listed ones that are gone.
pub(super) fn breaches(name: &str, tree: &ModuleTree, arrows: &Arrows) -> Vec<String> {
    let Some((_, layers)) = LAYERS.iter().find(|row| row.0 == name) else {
        return Vec::new();
    };
    let up = upward(layers, tree, arrows);
    let folder = format!("crates/{name}/");
    let listed: Vec<&str> = EXCEPTIONS
        .lines()
        .filter(|line| line.starts_with(&folder))
        .collect();
    let unlisted = up
        .iter()
        .filter(|arrow| !listed.contains(&arrow.as_str()))
        .map(|arrow| format!("runs up a layer: {arrow}"));
    let gone = listed
        .iter()
        .filter(|listed| !up.iter().any(|arrow| arrow == *listed))
        .map(|arrow| format!("is gone, take it from exceptions.txt: {arrow}"));
    unlisted.chain(gone).collect()
}

fn upward(layers: &[&[&str]], tree: &ModuleTree, arrows: &Arrows) -> Vec<String> {
    let layer = |module: usize| layer_of(layers, &tree.modules[module].name);
    let mut up = Vec::new();
    for (from, targets) in arrows.iter().enumerate() {
        for &to in targets {
            if let (Some(low), Some(high)) = (layer(from), layer(to))
                && low < high
            {
                up.push(format!("{} -> {}", tree.path(from), tree.path(to)));
            }
        }
    }
    up
}

/// `None` for the crate's root file.
fn layer_of(layers: &[&[&str]], name: &[String]) -> Option<usize> {
    let top = name.first()?;
    let listed = layers
        .iter()
        .position(|layer| layer.contains(&top.as_str()));
    Some(listed.unwrap_or(layers.len()))
}
