//! Lists of components, from a small `cargo metadata`.

use super::build::{Built, Kind};
use super::components::{Component, Components};
use super::{build, deb, licenses, sbom, wheel};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Ways to make an image, from the project's root.
const IMAGES: [&str; 3] = [
    "Dockerfile",
    "deploy/gpu.Dockerfile",
    "deploy/scratch.Dockerfile",
];

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
fn license_texts_cover_c_code_and_the_standard_library() {
    let root =
        std::env::temp_dir().join(format!("millrace-nested-licenses-{}", std::process::id()));
    let inner = root.join("c_src/library/v3");
    std::fs::create_dir_all(&inner).unwrap();
    std::fs::write(root.join("LICENSE"), "of the crate").unwrap();
    std::fs::write(inner.join("LICENSE"), "of the C library").unwrap();
    let component = Component {
        name: "sys".to_owned(),
        version: "1.0.0".to_owned(),
        license: Some("MIT".to_owned()),
        checksum: None,
        folder: root.clone(),
    };
    let listed = licenses::complete(&Components(vec![component]), build::STATIC).unwrap();
    std::fs::remove_dir_all(&root).unwrap();
    for text in [
        "of the crate",
        "of the C library",
        "Copyrights in the Rust Standard Library",
        "Rich Felker",
    ] {
        assert!(listed.contains(text), "{text}");
    }
    let html = "<html><head><title>x</title></head><body>\n<h1>A &amp; B</h1>\n\n\n<p>c &lt;d@e&gt;</p></body></html>";
    assert_eq!(licenses::text_of_html(html), "\nA & B\n\nc <d@e>\n");
}

#[test]
fn names_have_version_and_target() {
    for (kind, target, name) in [
        (
            Kind::Static,
            "x86_64-unknown-linux-musl",
            "millrace-0.1.0-x86_64-unknown-linux-musl",
        ),
        (
            Kind::Gpu,
            "x86_64-unknown-linux-gnu",
            "millrace-0.1.0-x86_64-unknown-linux-gnu-gpu",
        ),
    ] {
        let built = Built {
            binary: PathBuf::new(),
            target: target.to_owned(),
            version: "0.1.0".to_owned(),
            kind,
        };
        assert_eq!(built.package_name(), name);
    }
    assert_eq!(
        build::version_of("millrace 0.1.0\n").as_deref(),
        Ok("0.1.0")
    );
    assert!(build::version_of("0.1.0").is_err());
    let script = include_str!("../../../deploy/install.sh");
    let version = env!("CARGO_PKG_VERSION");
    for kind in ["musl", "gnu-gpu"] {
        let name = format!("millrace-{version}-$(uname -m)-unknown-linux-{kind}.tar.gz");
        assert!(script.contains(&name), "install.sh installs this version");
    }
    assert!(build::STATIC.starts_with(std::env::consts::ARCH));
}

#[test]
fn chart_and_unit_agree_with_the_project() {
    let version = format!("appVersion: \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(include_str!("../../../deploy/helm/millrace/Chart.yaml").contains(&version));
    let settings = include_str!("../../../docs/settings.md");
    assert!(
        settings.contains("| `server.drain_timeout_ms` | `20000` |"),
        "TimeoutStopSec of the unit is this and 25 s"
    );
    let unit = include_str!("../../../deploy/systemd/millrace.service");
    assert!(unit.contains("\nTimeoutStopSec=45\n"));
    assert!(
        settings.contains("| `server.engine_stall_s` | `300` |")
            && unit.contains("\nWatchdogSec=5min\n"),
        "one time after which an engine is stuck"
    );
    for image in IMAGES {
        let text = std::fs::read_to_string(crate::shell::root().join(image)).unwrap();
        for place in [
            "MODELS_DIRECTORIES",
            "JOURNAL_DIRECTORY",
            "MODELS_PACKED_CACHE_DIRECTORY",
            "CACHE_DISK_DIRECTORY",
        ] {
            assert!(
                text.contains(&format!("MILLRACE_{place}=/data/")),
                "{image}: {place} is not on the volume"
            );
        }
        let same = [
            "THIRD-PARTY-LICENSES.txt",
            "\n    MILLRACE_JOURNAL_DIRECTORY=/data/journal \\\n    XDG_DATA_HOME=/data\n",
            "ENV MILLRACE_SERVER_BIND=0.0.0.0:8420 ",
            "\nUSER 65532:65532\n",
            "\nVOLUME /data\n",
            "\nEXPOSE 8420\n",
            "\nSTOPSIGNAL SIGTERM\n",
            "\nHEALTHCHECK --interval=15s --timeout=12s --start-period=15m ",
            "CMD [\"/millrace\", \"health\", \"--quiet\"]\n",
            "\nENTRYPOINT [\"/millrace\"]\nCMD [\"serve\"]\n",
        ];
        if let Some(other) = same.iter().find(|line| !text.contains(*line)) {
            panic!("{image} has not {other:?}");
        }
    }
}

#[test]
fn oldest_library_is_that_of_the_newest_symbol() {
    let symbols = "1: 0 FUNC memcpy@GLIBC_2.14 (2)\n2: 0 FUNC x@GLIBC_2.4 (3)\n3: y@GLIBC_2.34\n4: z@GCC_3.0\n";
    assert_eq!(build::glibc_floor(symbols), Some((2, 34)));
    assert_eq!(build::glibc_floor("1: 0 FUNC z@GCC_3.0"), None);
}

#[test]
fn copyright_and_changelog_have_debians_formats() {
    let copyright = include_str!("../../../deploy/debian/copyright");
    let (_, terms) = include_str!("../../../LICENSE-MIT")
        .split_once("\n\n")
        .expect("a title");
    let words = |text: &str| -> Vec<String> {
        let words = text.split_whitespace().filter(|word| *word != ".");
        words.map(str::to_owned).collect()
    };
    let (_, expat) = copyright
        .split_once("\nLicense: Expat\n")
        .expect("the license");
    let (expat, _) = expat.split_once("\n\n").expect("another license");
    let (_, terms) = terms.split_once("\n\n").expect("a holder");
    assert_eq!(words(expat), words(terms), "the terms of LICENSE-MIT");
    let changelog = deb::debian_changelog("0.1.0", "Sat, 28 Nov 2026 19:00:00 +0000");
    assert!(
        changelog.starts_with("millrace (0.1.0) unstable; urgency=medium\n\n  * "),
        "{changelog}"
    );
    assert!(
        changelog.ends_with(">  Sat, 28 Nov 2026 19:00:00 +0000\n"),
        "{changelog}"
    );
}

#[test]
fn wheel_names_version_licenses_and_platforms() {
    let readme = "# Millrace\n\nA server.\n\n## Install\n\n[there](docs/install.md)\n";
    let metadata = wheel::metadata("millrace-server", "0.1.0", readme);
    assert!(
        metadata.contains("\nVersion: 0.1.0\n")
            && metadata.contains("\nLicense-File: LICENSE-MIT\n"),
        "{metadata}"
    );
    assert!(
        metadata.contains("\nName: millrace-server\n"),
        "`millrace` is a project of others: {metadata}"
    );
    assert!(
        metadata.contains("\n\n# Millrace\n\nA server.\n\n`millrace serve`")
            && !metadata.contains("docs/")
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

#[test]
fn workflows_and_image_are_pinned() {
    let root = crate::shell::root();
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
    let manifest = read(&root.join("Cargo.toml"));
    let oldest = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "));
    let toolchain = format!("{}.0", oldest.unwrap().trim_matches('"'));
    let mut actions = 0;
    for entry in std::fs::read_dir(root.join(".github/workflows")).unwrap() {
        let path = entry.unwrap().path();
        let text = read(&path);
        let shown = path.display();
        let pin = format!("\n  RUSTUP_TOOLCHAIN: {toolchain}\n");
        assert!(
            text.contains(&pin),
            "{shown} has not the toolchain {toolchain}"
        );
        let used = text.lines().filter_map(|line| line.split_once("uses: "));
        for (_, action) in used {
            let (name, pin) = action.split_once('@').expect("an action with a commit");
            let (commit, tag) = pin.split_once(" # v").expect("a commit and its tag");
            let is_commit = commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
            assert!(is_commit, "{shown}: {name} is not named by a commit: {pin}");
            let known = read(&root.join("RELEASING.md"));
            let row = format!("| {name} | v{tag} | `{commit}` |");
            assert!(known.contains(&row), "RELEASING.md has no row {row}");
            actions += 1;
        }
    }
    assert!(actions > 4, "{actions} actions");
    let image = read(&root.join("Dockerfile"));
    let base = format!("\nFROM docker.io/library/rust:{toolchain}-alpine3.23@sha256:");
    assert!(
        image.contains(&base) && image.contains(&format!("RUSTUP_TOOLCHAIN={toolchain}\n")),
        "{image}"
    );
    assert_eq!(
        image.matches("\nFROM ").count(),
        2,
        "a build and the empty image"
    );
    // Both bases are arguments, so that a digest can be given; without one, they are of this toolchain and of one Debian.
    let image = read(&root.join("deploy/gpu.Dockerfile"));
    for line in [
        format!("ARG BUILD_BASE=docker.io/library/rust:{toolchain}-trixie"),
        "ARG BASE=docker.io/library/debian:trixie-slim".to_owned(),
        "FROM ${BUILD_BASE} AS build".to_owned(),
        "FROM ${BASE}".to_owned(),
        format!("ENV RUSTUP_TOOLCHAIN={toolchain}"),
    ] {
        assert!(image.contains(&format!("\n{line}\n")), "no line {line}");
    }
    assert_eq!(image.matches("\nFROM ").count(), 2, "no other base");
}
