//! Production lines of each crate, held under a budget.

mod production;

use crate::shell::Outcome;
use crate::tidy::{File, tracked_files};
use production::{Production, TestModule};
use std::collections::{BTreeMap, BTreeSet};

/// Crate, and the most production lines it may have: the count of today, rounded up to the next hundred. A commit that
/// makes a crate smaller lowers its budget.
const BUDGETS: [(&str, usize); 25] = [
    ("admission", 2_200),
    ("bench", 2_100),
    ("cluster", 10_300),
    ("cpu", 5_450),
    ("engine", 12_500),
    ("gateway", 17_120),
    ("generate", 8_130),
    ("gpu", 10_100),
    ("http_client", 800),
    ("journal", 4_200),
    ("kernels", 14_100),
    ("media", 4_300),
    ("millrace", 18_200),
    ("model", 700),
    ("page", 100),
    ("private_files", 200),
    ("server", 14_400),
    ("stream", 2_600),
    ("synth", 3_450),
    ("testing", 600),
    ("text", 15_300),
    ("upstream", 2_000),
    ("weights", 18_200),
    ("wire", 15_000),
    ("workflow", 4_400),
];

/// Production lines that all crates together are to come down to. Not enforced.
const TOTAL_AIM: usize = 128_000;

/// Files with fewer production lines are small: each may belong in a larger file of the same noun.
const SMALL_LINES: usize = 40;

/// Most production lines of a short file.
const SHORT_LINES_MAX: usize = 60;

/// Prints the counts and fails where a crate is over its budget. `--small` lists the small files instead.
pub(crate) fn run(args: &[String]) -> Outcome {
    let files = tracked_files()?;
    match args {
        [] => {}
        [flag] if flag == "--small" => {
            print_small(&sizes(&files));
            return Ok(());
        }
        _ => return Err(format!("unknown arguments {args:?}: --small or none")),
    }
    match breaches(&files).as_slice() {
        [] => Ok(()),
        found => Err(found.join("\nxtask: ")),
    }
}

/// Crates over their budgets. Prints all counts.
pub(crate) fn breaches(files: &[File]) -> Vec<String> {
    let sizes = sizes(files);
    let totals = totals(&sizes);
    print_totals(&totals, &sizes);
    over_budget(&totals, &BUDGETS)
}

/// Production code of one file.
struct FileSize<'a> {
    path: &'a str,
    lines: usize,
    imports: usize,
}

/// Production lines and files of one crate.
#[derive(Default)]
struct CrateTotal {
    lines: usize,
    files: usize,
}

/// Sizes of all files below `crates/*/src` that are no tests.
fn sizes(files: &[File]) -> Vec<FileSize<'_>> {
    let counted: Vec<(&File, Production)> = files
        .iter()
        .filter(|file| is_source(&file.path))
        .map(|file| (file, Production::of(&file.text)))
        .collect();
    let tests: BTreeSet<String> = counted
        .iter()
        .flat_map(|(file, found)| found.test_modules.iter().map(|m| test_root(&file.path, m)))
        .collect();
    counted
        .iter()
        .filter(|(file, _)| !is_below(&file.path, &tests))
        .map(|(file, found)| FileSize {
            path: &file.path,
            lines: found.lines,
            imports: found.imports,
        })
        .collect()
}

fn is_source(path: &str) -> bool {
    let within = path.strip_prefix("crates/").and_then(|p| p.split_once('/'));
    within.is_some_and(|(_, within)| within.starts_with("src/") && within.ends_with(".rs"))
}

/// Path of a module's file without `.rs`, which is also the folder of its child modules.
fn test_root(declaring_file: &str, module: &TestModule) -> String {
    let (folder, name) = declaring_file
        .rsplit_once('/')
        .unwrap_or(("", declaring_file));
    match (&module.path, name) {
        (Some(path), _) => format!("{folder}/{}", path.trim_end_matches(".rs")),
        (None, "lib.rs" | "main.rs" | "mod.rs") => format!("{folder}/{}", module.name),
        (None, name) => format!("{folder}/{}/{}", name.trim_end_matches(".rs"), module.name),
    }
}

/// Whether a file is one of the modules, or below one.
fn is_below(path: &str, roots: &BTreeSet<String>) -> bool {
    let module = path.trim_end_matches(".rs");
    let slashes = module.match_indices('/').map(|(at, _)| at);
    slashes
        .chain([module.len()])
        .any(|end| roots.contains(&module[..end]))
}

fn totals(sizes: &[FileSize<'_>]) -> BTreeMap<String, CrateTotal> {
    let mut totals: BTreeMap<String, CrateTotal> = BTreeMap::new();
    for size in sizes {
        let name = size.path.split('/').nth(1).unwrap_or_default();
        let total = totals.entry(name.to_owned()).or_default();
        total.lines += size.lines;
        total.files += 1;
    }
    totals
}

fn is_small(size: &FileSize<'_>) -> bool {
    size.lines < SMALL_LINES && !size.path.ends_with("/mod.rs")
}

fn print_totals(totals: &BTreeMap<String, CrateTotal>, sizes: &[FileSize<'_>]) {
    println!("\n== size: production lines, without blanks, comments and tests");
    for (name, total) in totals {
        let budget = BUDGETS.iter().find(|row| row.0 == name);
        let budget = budget.map_or_else(|| "none".to_owned(), |row| row.1.to_string());
        println!(
            "   {name:13} {:7} lines, budget {budget:>6}; {:4} files",
            total.lines, total.files
        );
    }
    let lines: usize = sizes.iter().map(|size| size.lines).sum();
    let imports: usize = sizes.iter().map(|size| size.imports).sum();
    let short = sizes.iter().filter(|size| size.lines <= SHORT_LINES_MAX);
    let small = sizes.iter().filter(|size| is_small(size));
    let permille = (imports * 1000).checked_div(lines).unwrap_or(0);
    println!(
        "   {:13} {lines:7} lines, aim {TOTAL_AIM:9}; {:4} files",
        "all",
        sizes.len()
    );
    println!(
        "   {} files have at most {SHORT_LINES_MAX} lines, {} have under {SMALL_LINES} (mod.rs not counted; `cargo xtask size --small`); \
         `use` and `mod`: {}.{} % of the lines",
        short.count(),
        small.count(),
        permille / 10,
        permille % 10
    );
}

fn print_small(sizes: &[FileSize<'_>]) {
    for size in sizes.iter().filter(|size| is_small(size)) {
        println!("{:3} {}", size.lines, size.path);
    }
}

/// Crates over their budgets, crates without one, and budgets without a crate.
fn over_budget(totals: &BTreeMap<String, CrateTotal>, budgets: &[(&str, usize)]) -> Vec<String> {
    let over = totals.iter().filter_map(|(name, total)| {
        let lines = total.lines;
        match budgets.iter().find(|row| row.0 == name) {
            Some((_, budget)) if lines <= *budget => None,
            Some((_, budget)) => Some(format!(
                "crate `{name}` has {lines} production lines, budget {budget}: write less, or raise the budget in \
                 xtask/src/size/mod.rs and give the reason in the commit"
            )),
            None => Some(format!(
                "crate `{name}` has {lines} production lines and no budget in xtask/src/size/mod.rs"
            )),
        }
    });
    let gone = budgets
        .iter()
        .filter(|row| !totals.contains_key(row.0))
        .map(|row| {
            format!(
                "crate `{}` is gone, take its budget from xtask/src/size/mod.rs",
                row.0
            )
        });
    over.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn tree() -> [File; 9] {
        [
            file(
                "crates/a/src/lib.rs",
                "//! A.\nmod b;\n#[cfg(test)]\nmod tests;\n",
            ),
            file(
                "crates/a/src/b.rs",
                "fn f() {}\n\n#[cfg(test)]\nmod tests;\n",
            ),
            file("crates/a/src/b/tests.rs", "fn g() {}\n"),
            file("crates/a/src/tests/mod.rs", "mod c;\n"),
            file("crates/a/src/tests/c.rs", "fn h() {}\n"),
            file("crates/a/src/tests_of_b.rs", "fn i() {}\nfn j() {}\n"),
            file("crates/a/tests/it/main.rs", "fn k() {}\n"),
            file(
                "crates/b/src/d/mod.rs",
                "#[cfg(test)]\n#[path = \"e_tests.rs\"]\nmod tests;\nfn l() {}\n",
            ),
            file("crates/b/src/d/e_tests.rs", "fn m() {}\n"),
        ]
    }

    #[test]
    fn files_of_tests_are_left_out_of_a_tree() {
        let tree = tree();
        let sizes = sizes(&tree);
        let lines: Vec<_> = sizes.iter().map(|size| (size.path, size.lines)).collect();
        let want = [
            ("crates/a/src/lib.rs", 1),
            ("crates/a/src/b.rs", 1),
            ("crates/a/src/tests_of_b.rs", 2),
            ("crates/b/src/d/mod.rs", 1),
        ];
        assert_eq!(lines, want);
        assert_eq!(sizes.iter().filter(|size| is_small(size)).count(), 3);
        assert_eq!(sizes.iter().map(|size| size.imports).sum::<usize>(), 1);
    }

    #[test]
    fn crate_over_its_budget_by_one_line_is_a_breach() {
        let tree = tree();
        let totals = totals(&sizes(&tree));
        assert_eq!(over_budget(&totals, &[("a", 4), ("b", 1)]), [""; 0]);
        let found = over_budget(&totals, &[("a", 3), ("c", 100)]);
        let beginnings = [
            "crate `a` has 4 production lines, budget 3:",
            "crate `b` has 1 production lines and no budget",
            "crate `c` is gone",
        ];
        assert_eq!(found.len(), beginnings.len());
        for (breach, beginning) in found.iter().zip(beginnings) {
            assert!(breach.starts_with(beginning), "{breach}");
        }
    }
}
