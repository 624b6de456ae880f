//! Kernels of GPUs: each belongs to an operation, and each operation has a scalar twin and a case of the self-test that compares both.
//! A test of the crate `gpu` adds that the self-test compiles all kernels.

use super::File;
use crate::masked_text::masked;

/// The crate's sources.
const SOURCES: &str = "crates/gpu/src/";

/// Kernels of no operation: `Read` measures bandwidth, and its results are not used.
const APART: [&str; 1] = ["Read"];

/// Operations without a twin or a case, kernels that no operation uses, and files of kernels that are not compiled.
pub(crate) fn breaches(files: &[File]) -> Vec<String> {
    let code = |prefixes: &[&str]| -> String {
        let files = files.iter().filter(|file| {
            let path = file.path.strip_prefix(SOURCES).unwrap_or_default();
            path.ends_with(".rs") && prefixes.iter().any(|prefix| path.starts_with(prefix))
        });
        files.map(|file| masked(&file.text)).collect()
    };
    let [twins, cases] = ["twin", "cases"].map(|name| code(&[&format!("selftest/{name}")]));
    let used = code(&["webgpu/encode", "webgpu/draws.rs", "webgpu/sources.rs"]);
    let mut breaches = Vec::new();
    for operation in variants(&code(&["operation.rs"]), "Operation") {
        if !names(&twins, "Operation", &operation) {
            breaches.push(format!(
                "{SOURCES}operation.rs: {operation} has no scalar twin in selftest/twin"
            ));
        }
        // A pattern of a match has its brace closed on the line.
        if !cases.contains(&format!("Operation::{operation} {{\n")) {
            breaches.push(format!(
                "{SOURCES}operation.rs: no case in selftest/cases runs {operation}"
            ));
        }
    }
    for kernel in variants(&code(&["webgpu/sources.rs"]), "Kernel") {
        if !APART.contains(&kernel.as_str()) && !names(&used, "Kernel", &kernel) {
            breaches.push(format!(
                "{SOURCES}webgpu/sources.rs: no operation uses the kernel {kernel}"
            ));
        }
    }
    let sources = files
        .iter()
        .find(|file| file.path == format!("{SOURCES}webgpu/sources.rs"));
    let sources = sources.map_or("", |file| file.text.as_str());
    for file in files {
        let name = file.path.strip_prefix("crates/gpu/src/kernels/");
        if name.is_some_and(|name| !sources.contains(&format!("kernels/{name}\""))) {
            breaches.push(format!(
                "{}: not included by webgpu/sources.rs, so neither compiled nor compared with a twin",
                file.path
            ));
        }
    }
    breaches
}

/// The variants of an enum, as `rustfmt` writes them.
fn variants(code: &str, name: &str) -> Vec<String> {
    let body = code.split_once(&format!("enum {name} {{\n"));
    let body = body.map_or("", |(_, rest)| rest.split("\n}").next().unwrap_or(rest));
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    lines
        .filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()))
        .map(|line| word(line).to_owned())
        .collect()
}

/// Whether code names a variant.
fn names(code: &str, of: &str, variant: &str) -> bool {
    let path = format!("{of}::");
    let mut uses = code.split(&path).skip(1);
    uses.any(|rest| word(rest) == variant)
}

/// The letters and digits that a text begins with.
fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .next()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files in which nothing is missing, with one text changed.
    fn with(changed: &str, from: &str, to: &str) -> Vec<File> {
        let files = [
            (
                "operation.rs",
                "pub enum Operation {\n    /// A product.\n    Matmul {\n        add: bool,\n    },\n    Scan {\n        out: At,\n    },\n}\n",
            ),
            (
                "selftest/twin.rs",
                "Operation::Matmul { .. } => a(), Operation::Scan { .. } => b(),",
            ),
            (
                "selftest/cases/rows.rs",
                "push(Operation::Matmul {\n add }); push(Operation::Scan {\n out });",
            ),
            (
                "webgpu/sources.rs",
                "const A: &str = include_str!(\"../kernels/rows.wgsl\");\nenum Kernel {\n    Matmul {\n        rows: u32,\n    },\n    Scan,\n    Read,\n}\nf(Kernel::Matmul { rows });",
            ),
            ("webgpu/encode/recurrent.rs", "push(Kernel::Scan, 1)"),
            ("kernels/rows.wgsl", "fn main() {}"),
        ];
        let files = files.map(|(path, text)| File {
            path: format!("{SOURCES}{path}"),
            text: if path == changed {
                text.replace(from, to)
            } else {
                text.to_owned()
            },
        });
        files.into()
    }

    #[test]
    fn missing_twin_case_operation_and_file_are_found() {
        assert_eq!(breaches(&with("", "", "")), [""; 0]);
        let rows = [
            (
                "twin only in a comment",
                ("selftest/twin.rs", "Operation::Scan", "// Operation::Scan"),
                "Scan has no scalar twin",
            ),
            (
                "twin of a longer name",
                (
                    "selftest/twin.rs",
                    "Operation::Scan",
                    "Operation::ScanGates",
                ),
                "Scan has no scalar twin",
            ),
            (
                "case that only matches",
                (
                    "selftest/cases/rows.rs",
                    "Operation::Matmul {\n add }",
                    "Operation::Matmul { .. }",
                ),
                "no case in selftest/cases runs Matmul",
            ),
            (
                "new operation",
                ("operation.rs", "    Scan {", "    Sort {"),
                "Sort has no scalar twin",
            ),
            (
                "new kernel",
                ("webgpu/sources.rs", "    Read,", "    Read,\n    Sort,"),
                "no operation uses the kernel Sort",
            ),
            (
                "file that is not included",
                ("webgpu/sources.rs", "rows.wgsl", "old.wgsl"),
                "kernels/rows.wgsl: not included",
            ),
        ];
        for (label, (file, from, to), wanted) in rows {
            let found = breaches(&with(file, from, to));
            assert!(
                found.iter().any(|breach| breach.contains(wanted)),
                "{label}: {found:?}"
            );
        }
    }
}
