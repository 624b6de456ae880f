//! Files that may contain `unsafe`. Product modules stand in ARCHITECTURE.md, too.

use super::File;
use crate::masked_text::masked;

/// A file, or a folder (with a slash at the end), and the use of `unsafe` there. Counting allocators of tests need no entry.
const ALLOWED: [(&str, &str); 26] = [
    ("crates/stream/src/log.rs", "shared token slots"),
    ("crates/stream/src/wait.rs", "shared waker cell"),
    ("crates/stream/src/writer.rs", "shared token slots"),
    ("crates/weights/src/gguf/source.rs", "memory map"),
    (
        "crates/gpu/src/webgpu/device.rs",
        "shaders without checks of indices",
    ),
    ("crates/gpu/src/webgpu/adapters.rs", "sizes of memories"),
    ("crates/kernels/src/arch/", "vector and tile instructions"),
    ("crates/kernels/src/dispatch.rs", "calls into arch"),
    ("crates/kernels/src/isa.rs", "tile configuration"),
    ("crates/kernels/src/probe.rs", "calls into arch"),
    ("crates/kernels/src/layout/gemm.rs", "kernel types"),
    (
        "crates/kernels/src/layout/activation_block.rs",
        "plain bytes",
    ),
    ("crates/kernels/src/layout/tiles.rs", "plain bytes"),
    ("crates/kernels/src/memory.rs", "memory mapping"),
    ("crates/kernels/src/kv/region.rs", "memory mapping"),
    ("crates/kernels/src/kv.rs", "disjoint slices"),
    (
        "crates/kernels/src/activations.rs",
        "calls into arch, disjoint slices",
    ),
    ("crates/kernels/src/attention/dense.rs", "disjoint slices"),
    (
        "crates/kernels/src/attention/schedule.rs",
        "disjoint slices",
    ),
    ("crates/kernels/src/recurrent.rs", "disjoint slices"),
    ("crates/kernels/src/matrix.rs", "disjoint slices"),
    (
        "crates/kernels/src/matmul.rs",
        "kernel calls, disjoint slices",
    ),
    ("crates/kernels/src/matmul/amx_gemm.rs", "kernel calls"),
    ("crates/kernels/src/pool/partition.rs", "disjoint slices"),
    ("crates/kernels/src/pool/workers.rs", "erased lifetime"),
    ("crates/kernels/src/ops/tests.rs", "test: vector functions"),
];

/// Files with `unsafe` that are not listed, entries without `unsafe`, and entries that ARCHITECTURE.md lacks.
pub(crate) fn breaches(files: &[File]) -> Vec<String> {
    let architecture = files.iter().find(|file| file.path == "ARCHITECTURE.md");
    let documented = architecture.map_or("", |file| file.text.as_str());
    let users: Vec<&str> = files
        .iter()
        .filter(|file| file.path.ends_with(".rs") && has_unsafe(&file.text))
        .filter(|file| !is_counting_allocator(file))
        .map(|file| file.path.as_str())
        .collect();
    let unlisted = users
        .iter()
        .filter(|path| !ALLOWED.iter().any(|row| covers(row.0, path)))
        .map(|path| {
            format!("{path}: `unsafe` outside the list in xtask/src/tidy/unsafe_modules.rs")
        });
    let unused = ALLOWED
        .iter()
        .filter(|row| !users.iter().any(|path| covers(row.0, path)))
        .map(|row| format!("xtask/src/tidy/unsafe_modules.rs: no `unsafe` in {}", row.0));
    let undocumented = ALLOWED
        .iter()
        .filter(|row| !row.1.starts_with("test") && !documented.contains(&short_name(row.0)))
        .map(|row| {
            format!(
                "ARCHITECTURE.md: {} is missing in the list of `unsafe`",
                short_name(row.0)
            )
        });
    unlisted.chain(unused).chain(undocumented).collect()
}

fn covers(entry: &str, path: &str) -> bool {
    entry == path || entry.ends_with('/') && path.starts_with(entry)
}

/// The name of an entry in ARCHITECTURE.md: `kernels/matmul/gemm` for `crates/kernels/src/matmul/gemm.rs`.
fn short_name(entry: &str) -> String {
    let name = entry.trim_start_matches("crates/").replace("/src/", "/");
    format!("`{}`", name.trim_end_matches('/').trim_end_matches(".rs"))
}

/// Test files may implement `GlobalAlloc` to count allocations.
fn is_counting_allocator(file: &File) -> bool {
    let is_test = file.path.contains("/tests/") || file.path.starts_with("crates/testing/");
    is_test && file.text.contains("GlobalAlloc")
}

/// Whether the token `unsafe` occurs outside comments, strings and character literals.
fn has_unsafe(text: &str) -> bool {
    // The search in the text as it is comes first: few files have the word.
    text.contains("unsafe")
        && masked(text)
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|word| word == "unsafe")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyword_is_found_outside_comments_and_literals() {
        let rows = [
            ("block", "fn f() { unsafe { g() } }", true),
            ("first token", "unsafe impl Sync for X {}", true),
            (
                "after a lifetime",
                "fn f<'a>(x: &'a u8) { unsafe {} }",
                true,
            ),
            ("after a quote character", "let c = '\"'; unsafe {}", true),
            (
                "after an escaped character",
                r"let c = '\''; unsafe {}",
                true,
            ),
            ("after a string", r#"let s = "\""; unsafe {}"#, true),
            ("comment", "// unsafe\nfn f() {}", false),
            ("block comment", "/* unsafe */ fn f() {}", false),
            ("string", r#"let s = "script-src 'unsafe-inline'";"#, false),
            ("raw string", "let s = r#\"\" unsafe \"#;", false),
            ("longer word", "#![allow(unsafe_code)]", false),
        ];
        for (label, text, found) in rows {
            assert_eq!(has_unsafe(text), found, "{label}");
        }
    }

    #[test]
    fn file_outside_the_list_is_a_breach() {
        let file = |path: &str, text: &str| File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let files = [
            file("crates/engine/src/engine.rs", "unsafe {}"),
            file("crates/kernels/src/arch/gemv.rs", "unsafe {}"),
            file(
                "crates/engine/tests/a.rs",
                "unsafe impl GlobalAlloc for A {}",
            ),
        ];
        let found = breaches(&files);
        let outside: Vec<_> = found
            .iter()
            .filter(|breach| breach.contains("outside"))
            .collect();
        assert_eq!(outside.len(), 1, "{outside:?}");
        assert!(outside[0].starts_with("crates/engine/src/engine.rs"));
        assert!(
            found
                .iter()
                .any(|breach| breach.contains("no `unsafe` in crates/kernels/src/isa.rs"))
        );
        assert!(
            !found
                .iter()
                .any(|breach| breach.contains("no `unsafe` in crates/kernels/src/arch/"))
        );
    }
}
