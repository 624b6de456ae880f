//! Production lines of a Rust file: non-blank, non-comment, without tests.

use crate::masked_text::masked;

/// What one file has of production code, and which files it declares as tests.
#[derive(Default)]
pub(super) struct Production {
    pub(super) lines: usize,
    /// Lines that begin a `use` or `mod` item.
    pub(super) imports: usize,
    pub(super) test_modules: Vec<TestModule>,
}

/// A module that is compiled for tests only; its files are tests.
#[derive(Debug, PartialEq)]
pub(super) struct TestModule {
    pub(super) name: String,
    /// The value of `#[path = "…"]`.
    pub(super) path: Option<String>,
}

impl Production {
    pub(super) fn of(text: &str) -> Self {
        let code = masked(text);
        let code: Vec<&str> = code.lines().map(str::trim).collect();
        let mut found = Self::default();
        let mut at = 0;
        while at < code.len() {
            if is_test_attribute(code[at]) {
                let end = item_end(&code, at);
                let written = text.lines().skip(at).take(end - at);
                found.test_modules.extend(declared(written));
                at = end;
                continue;
            }
            found.lines += usize::from(!code[at].is_empty());
            found.imports += usize::from(is_import(code[at]));
            at += 1;
        }
        found
    }
}

/// Whether an item is compiled for tests only. `any(test, …)` is production code, too.
fn is_test_attribute(line: &str) -> bool {
    line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test,")
}

/// The line after an item that begins at `from` with its attributes: the item ends with a line on which all brackets are
/// closed and whose last character ends an item, a field or a variant.
fn item_end(code: &[&str], from: usize) -> usize {
    let mut depth = 0_usize;
    for (number, line) in code.iter().enumerate().skip(from) {
        for c in line.chars() {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        if depth == 0 && line.ends_with([';', '}', ',']) {
            return number + 1;
        }
    }
    code.len()
}

fn is_import(line: &str) -> bool {
    let item = without_visibility(line);
    item.starts_with("use ") || item.starts_with("mod ")
}

fn without_visibility(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else {
        return line;
    };
    let rest = match rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
        Some((_, rest)) => rest,
        None => rest,
    };
    rest.strip_prefix(' ').unwrap_or(line)
}

/// The module that the lines of an item declare, if the item is one.
fn declared<'a>(lines: impl Iterator<Item = &'a str>) -> Option<TestModule> {
    let mut path = None;
    for line in lines.map(str::trim) {
        let value = line.strip_prefix("#[path = \"");
        if let Some(value) = value.and_then(|v| v.strip_suffix("\"]")) {
            path = Some(value.to_owned());
        }
        let item = line.strip_prefix("#[cfg(test)] ").unwrap_or(line);
        if let Some(name) = without_visibility(item).strip_prefix("mod ") {
            let name = name.trim_end_matches([';', '{', '}', ' ']).to_owned();
            return Some(TestModule { name, path });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn production_lines_leave_out_blanks_comments_and_tests() {
        let rows = [
            (
                "comments",
                "//! A.\n\n/// B.\nfn f() {} // c\n/* d\n e */\n",
                1,
                0,
            ),
            (
                "imports",
                "use a::b;\npub(crate) mod c;\npub use d::{\n    e,\n};\n",
                5,
                3,
            ),
            ("string", "const A: &str = \"one\n  // two\n\n{\";\n", 3, 0),
            (
                "test item",
                "fn f() {}\n#[cfg(test)]\n#[expect(\n    a,\n)]\n// b\nfn g(\n    a: u8,\n) {\n    \"}\"\n}\nfn h() {}\n",
                2,
                0,
            ),
            (
                "test import",
                "#[cfg(test)]\nuse a::{\n    b,\n};\nfn f() {}\n",
                1,
                0,
            ),
            (
                "test field",
                "struct S {\n    #[cfg(test)]\n    a: Vec<u8>,\n    b: u8,\n}\n",
                3,
                0,
            ),
            (
                "test on one line",
                "#[cfg(test)] mod tests;\nfn f() {}\n",
                1,
                0,
            ),
            (
                "also production",
                "#[cfg(any(test, unix))]\nfn f() {}\n",
                2,
                0,
            ),
        ];
        for (label, text, lines, imports) in rows {
            let found = Production::of(text);
            assert_eq!((found.lines, found.imports), (lines, imports), "{label}");
        }
    }

    #[test]
    fn test_modules_are_found_with_their_paths() {
        let text = "#[cfg(test)]\nmod a;\n#[cfg(test)]\n#[path = \"b_tests.rs\"]\npub(crate) mod b;\n\
                    #[cfg(test)]\nmod c {\n    mod d;\n}\nmod e;\n#[cfg(test)] mod f;\n";
        let found = Production::of(text).test_modules;
        let found: Vec<_> = found
            .iter()
            .map(|module| (module.name.as_str(), module.path.as_deref()))
            .collect();
        assert_eq!(
            found,
            [
                ("a", None),
                ("b", Some("b_tests.rs")),
                ("c", None),
                ("f", None)
            ]
        );
    }
}
