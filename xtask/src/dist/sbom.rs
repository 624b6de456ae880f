//! The list of the crates in the binary (SBOM), in CycloneDX 1.5.

use super::components::{Component, Components};
use serde_json::{Value, json};

/// The document of a release; the same components give the same bytes.
pub(super) fn document(components: &Components, version: &str) -> String {
    let described = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "millrace",
                "name": "millrace",
                "version": version,
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
            },
        },
        "components": components.0.iter().map(described).collect::<Vec<_>>(),
        "dependencies": [{
            "ref": "millrace",
            "dependsOn": components.0.iter().map(reference).collect::<Vec<_>>(),
        }],
    });
    format!("{described:#}\n")
}

fn described(component: &Component) -> Value {
    let mut value = json!({
        "type": "library",
        "bom-ref": reference(component),
        "name": component.name,
        "version": component.version,
        "purl": reference(component),
    });
    if let Some(license) = &component.license {
        // Cargo's older spelling of `OR`.
        let expression = license.replace('/', " OR ").replace("  ", " ");
        value["licenses"] = json!([{"expression": expression}]);
    }
    if let Some(checksum) = &component.checksum {
        value["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    value
}

/// The package URL.
fn reference(component: &Component) -> String {
    format!("pkg:cargo/{}@{}", component.name, component.version)
}
