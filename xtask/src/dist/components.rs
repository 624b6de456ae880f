//! The crates that are compiled into the binary, from `cargo metadata` and `Cargo.lock`.

use crate::shell::{cargo, output, root};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A crate of others in the binary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Component {
    pub(super) name: String,
    pub(super) version: String,
    /// The license as an SPDX expression.
    pub(super) license: Option<String>,
    /// SHA-256 of the crate's archive.
    pub(super) checksum: Option<String>,
    /// The folder of the crate's sources.
    pub(super) folder: PathBuf,
}

/// All of them, by name and version.
pub(super) struct Components(pub(super) Vec<Component>);

impl Components {
    /// The crates of a binary for this target, with or without support of GPUs.
    pub(super) fn of(target: &str, has_gpu: bool) -> Result<Self, String> {
        let mut cargo = cargo();
        cargo.args(["metadata", "--format-version", "1", "--locked"]);
        cargo.args(["--filter-platform", target]);
        if has_gpu {
            cargo.args(["--features", "millrace/gpu"]);
        }
        let told = output(&mut cargo)?;
        let metadata = serde_json::from_slice(&told).map_err(|e| format!("cargo metadata: {e}"))?;
        let lock = root().join("Cargo.lock");
        let lock =
            std::fs::read_to_string(&lock).map_err(|e| format!("{}: {e}", lock.display()))?;
        Self::read(&metadata, &lock)
    }

    /// The crates of others that `millrace` is linked from: no build scripts, macros' own dependencies or tests.
    pub(super) fn read(metadata: &Value, lock: &str) -> Result<Self, String> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let packages: BTreeMap<String, Value> = list(&metadata["packages"])
            .into_iter()
            .map(|package| (text(&package["id"]), package))
            .collect();
        let nodes: BTreeMap<String, Value> = list(&metadata["resolve"]["nodes"])
            .into_iter()
            .map(|node| (text(&node["id"]), node))
            .collect();
        let is_binary =
            |package: &Value| package["name"] == "millrace" && package["source"].is_null();
        let start = packages.iter().find(|(_, package)| is_binary(package));
        let (start, _) = start.ok_or("cargo metadata has no package millrace")?;
        let mut reached = BTreeSet::new();
        let mut next = vec![start.clone()];
        while let Some(id) = next.pop() {
            if !reached.insert(id.clone()) {
                continue;
            }
            let edges = nodes
                .get(&id)
                .map(|node| list(&node["deps"]))
                .unwrap_or_default();
            let is_linked = |edge: &Value| {
                list(&edge["dep_kinds"])
                    .iter()
                    .any(|kind| kind["kind"].is_null())
            };
            next.extend(
                edges
                    .iter()
                    .filter(|edge| is_linked(edge))
                    .map(|edge| text(&edge["pkg"])),
            );
        }
        let sums = checksums(lock);
        let component = |package: &Value| {
            let (name, version) = (text(&package["name"]), text(&package["version"]));
            let manifest = PathBuf::from(text(&package["manifest_path"]));
            Component {
                checksum: sums.get(&(name.clone(), version.clone())).cloned(),
                license: package["license"].as_str().map(str::to_owned),
                folder: manifest.parent().map(PathBuf::from).unwrap_or_default(),
                name,
                version,
            }
        };
        let reached = reached.iter().filter_map(|id| packages.get(id));
        let of_others = reached.filter(|package| !package["source"].is_null());
        let mut found: Vec<_> = of_others.map(component).collect();
        found.sort();
        Ok(Self(found))
    }
}

/// Checksums of a lock file by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |block: &str, name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches(" = ").trim_matches('"').to_owned())
    };
    let blocks = lock.split("[[package]]");
    let found = blocks.filter_map(|block| {
        let (name, version) = (field(block, "name")?, field(block, "version")?);
        Some(((name, version), field(block, "checksum")?))
    });
    found.collect()
}
