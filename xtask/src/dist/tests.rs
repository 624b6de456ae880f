//! Lists of components, from a small `cargo metadata`.

use super::components::{Component, Components};
use super::{archive, build, deb, licenses, sbom, wheel};
use serde_json::{Value, json};
use std::path::PathBuf;

const LOCK: &str = r#"
[[package]]
name = "linked"
version = "1.2.0"
source = "registry+x"
checksum = "aa11"

[[package]]
name = "deep"
version = "0.3.0"
"#;

fn metadata() -> Value {
    let registry = json!("registry+x");
    let package = |id: &str, source: &Value| {
        json!({"id": id, "name": id, "version": if id == "linked" { "1.2.0" } else { "0.3.0" },
            "source": source, "license": "MIT/Apache-2.0", "manifest_path": format!("/crates/{id}/Cargo.toml")})
    };
    let edge = |id: &str, kind: Value| json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
    json!({
        "packages": [
            package("millrace", &Value::Null), package("server", &Value::Null), package("linked", &registry),
            package("deep", &registry), package("tested", &registry), package("built", &registry),
        ],
        "resolve": {"nodes": [
            {"id": "millrace", "deps": [edge("server", Value::Null), edge("tested", json!("dev"))]},
            {"id": "server", "deps": [edge("linked", Value::Null), edge("built", json!("build"))]},
            {"id": "linked", "deps": [edge("deep", Value::Null), edge("millrace", Value::Null)]},
            {"id": "tested", "deps": [edge("deep", Value::Null)]},
        ]},
    })
}

#[test]
fn components_are_the_linked_crates_of_others() {
    let found = Components::read(&metadata(), LOCK).unwrap();
    let names: Vec<_> = found.0.iter().map(|found| found.name.as_str()).collect();
    assert_eq!(
        names,
        ["deep", "linked"],
        "no test, no build script, no crate of the project"
    );
    assert_eq!(found.0[1].checksum.as_deref(), Some("aa11"));
    assert_eq!(found.0[0].checksum, None);
    assert_eq!(found.0[1].folder, PathBuf::from("/crates/linked"));
    assert!(Components::read(&json!({}), LOCK).is_err());
}

#[test]
fn sbom_names_each_component_with_license_and_hash() {
    let found = Components::read(&metadata(), LOCK).unwrap();
    let document: Value = serde_json::from_str(&sbom::document(&found, "0.1.0")).unwrap();
    assert_eq!(document["bomFormat"], "CycloneDX");
    assert_eq!(document["metadata"]["component"]["version"], "0.1.0");
    let linked = &document["components"][1];
    assert_eq!(linked["purl"], "pkg:cargo/linked@1.2.0");
    assert_eq!(linked["licenses"][0]["expression"], "MIT OR Apache-2.0");
    assert_eq!(linked["hashes"][0]["content"], "aa11");
    assert_eq!(document["components"][0]["hashes"], Value::Null);
}

#[test]
fn license_text_is_listed_once_with_its_crates() {
    let root = std::env::temp_dir().join(format!("millrace-licenses-{}", std::process::id()));
    let component = |name: &str, license: Option<&str>| Component {
        name: name.to_owned(),
        version: "1.0.0".to_owned(),
        license: license.map(str::to_owned),
        checksum: None,
        folder: root.join(name),
    };
    for (name, text) in [
        ("a", "the text\r\n"),
        ("b", "the text\n"),
        ("c", "another\n"),
    ] {
        std::fs::create_dir_all(root.join(name)).unwrap();
        std::fs::write(root.join(name).join("LICENSE-MIT"), text).unwrap();
        std::fs::write(root.join(name).join("license.rs"), "fn license()").unwrap();
    }
    let all = ["a", "b", "c", "bare"].map(|name| component(name, Some("MIT")));
    let listed = licenses::listing(&Components(all.to_vec())).unwrap();
    assert_eq!(listed.matches("the text").count(), 1, "{listed}");
    assert!(
        listed.contains("a 1.0.0, b 1.0.0\n\nthe text\n"),
        "{listed}"
    );
    assert!(
        listed.contains("bare 1.0.0: MIT (no text in its archive"),
        "{listed}"
    );
    assert!(!listed.contains("fn license"), "{listed}");
    let unlicensed = Components(vec![component("nothing", None)]);
    assert!(licenses::listing(&unlicensed).is_err());
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn names_have_version_and_target() {
    let name = archive::name("0.1.0", "x86_64-unknown-linux-musl");
    assert_eq!(name, "millrace-0.1.0-x86_64-unknown-linux-musl");
    assert_eq!(
        build::version_of("millrace 0.1.0\n").as_deref(),
        Ok("0.1.0")
    );
    assert!(build::version_of("0.1.0").is_err());
    let script = include_str!("../../../deploy/install.sh");
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        script.contains(&format!(
            "millrace-{version}-$(uname -m)-unknown-linux-musl.tar.gz"
        )),
        "install.sh installs this version"
    );
    assert!(build::STATIC.starts_with(std::env::consts::ARCH));
}

#[test]
fn chart_and_unit_agree_with_the_project() {
    let version = format!("appVersion: \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(include_str!("../../../deploy/helm/millrace/Chart.yaml").contains(&version));
    let settings = include_str!("../../../docs/settings.md");
    assert!(
        settings.contains("| `server.drain_timeout_ms` | `20000` |"),
        "TimeoutStopSec of the unit is this and 5 s"
    );
    let unit = include_str!("../../../deploy/systemd/millrace.service");
    assert!(unit.contains("\nTimeoutStopSec=25\n"));
}

#[test]
fn package_depends_on_the_newest_symbols_library() {
    let symbols = "1: 0 FUNC memcpy@GLIBC_2.14 (2)\n2: 0 FUNC x@GLIBC_2.4 (3)\n3: y@GLIBC_2.34\n4: z@GCC_3.0\n";
    assert_eq!(deb::glibc_floor(symbols), Some((2, 34)));
    assert_eq!(deb::glibc_floor("1: 0 FUNC z@GCC_3.0"), None);
    let control = deb::control_file("0.1.0", "amd64", "Depends: libc6 (>= 2.34)\n");
    assert!(
        control.contains("\nVersion: 0.1.0\n") && control.contains("\nDepends: libc6 (>= 2.34)\n")
    );
    let control = deb::control_file("0.1.0", "arm64", "");
    assert!(control.contains("\nArchitecture: arm64\n") && !control.contains("Depends"));
}

#[test]
fn wheel_names_version_licenses_and_platforms() {
    let metadata = wheel::metadata("0.1.0");
    assert!(
        metadata.contains("\nVersion: 0.1.0\n")
            && metadata.contains("\nLicense-File: LICENSE-MIT\n"),
        "{metadata}"
    );
    let platforms = ["manylinux_2_34_x86_64", "musllinux_1_1_x86_64"].map(str::to_owned);
    let tags = wheel::tags(&platforms);
    assert!(
        tags.ends_with(
            "\nTag: py3-none-manylinux_2_34_x86_64\nTag: py3-none-musllinux_1_1_x86_64\n"
        ),
        "{tags}"
    );
}
