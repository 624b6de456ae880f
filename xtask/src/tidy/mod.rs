//! Rules about the tree that no lint knows.

mod bans;
mod budgets;
mod doc_openings;
mod edges;
mod gpu_kernels;
mod markdown;
mod modules;
mod names;
mod page_links;
mod unsafe_modules;

use crate::shell::{Outcome, output, root};
use crate::{size, spec};
use std::path::PathBuf;
use std::process::Command;

/// Checks all rules and reports every breach at once.
/// `imports CRATE` prints that crate's imports instead.
pub(crate) fn run(args: &[String]) -> Outcome {
    let files = tracked_files()?;
    if let [command, name] = args
        && command == "imports"
    {
        modules::print_imports(name, &files);
        return Ok(());
    }
    println!("\n== tidy");
    let mut breaches = edges::breaches()?;
    breaches.extend(budgets::breaches(&files));
    breaches.extend(names::breaches(&files));
    breaches.extend(markdown::breaches(&files));
    breaches.extend(page_links::breaches(&files));
    breaches.extend(doc_openings::breaches(&files));
    breaches.extend(modules::breaches(&files));
    breaches.extend(unsafe_modules::breaches(&files));
    breaches.extend(gpu_kernels::breaches(&files));
    breaches.extend(bans::breaches()?);
    breaches.extend(size::breaches(&files));
    breaches.extend(spec::breaches(&files));
    for breach in &breaches {
        eprintln!("tidy: {breach}");
    }
    match breaches.len() {
        0 => Ok(()),
        n => Err(format!("tidy found {n} breaches")),
    }
}

/// A file that git tracks (or would): its path from the root, and its text.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// All text files that git tracks or would track.
pub(crate) fn tracked_files() -> Result<Vec<File>, String> {
    let mut git = Command::new("git");
    git.current_dir(root()).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let list = output(&mut git)?;
    let paths = list.split(|b| *b == 0).filter(|p| !p.is_empty());
    Ok(paths
        .filter_map(|path| read_text(&String::from_utf8_lossy(path)))
        .collect())
}

fn read_text(path: &str) -> Option<File> {
    let full: PathBuf = root().join(path);
    let text = std::fs::read_to_string(full).ok()?;
    Some(File {
        path: path.to_owned(),
        text,
    })
}
