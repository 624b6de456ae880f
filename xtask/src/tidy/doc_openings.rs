//! First words of doc comments. A comment has a subject; a pronoun in its place needs the code above to be understood.

use super::File;

/// Openings without a subject, with the space after them.
const BANNED: [&str; 4] = ["It ", "Its ", "Who ", "The same "];

/// Crates with doc comments that still begin so, and how many. The numbers may only shrink.
const REMAINING: [(&str, usize); 0] = [];

/// Crates with more such comments than they may have.
pub(crate) fn breaches(files: &[File]) -> Vec<String> {
    let mut crates: Vec<&str> = files.iter().filter_map(crate_of).collect();
    crates.sort_unstable();
    crates.dedup();
    crates
        .into_iter()
        .flat_map(|name| breaches_of(name, files))
        .collect()
}

fn breaches_of(name: &str, files: &[File]) -> Vec<String> {
    let allowed = REMAINING.iter().find(|row| row.0 == name);
    let allowed = allowed.map_or(0, |row| row.1);
    let of_crate = files.iter().filter(|file| crate_of(file) == Some(name));
    let found: Vec<String> = of_crate.flat_map(openings).collect();
    if found.len() <= allowed {
        return Vec::new();
    }
    let summary = format!(
        "crate {name}: {} doc comments begin without a subject, at most {allowed} may",
        found.len()
    );
    std::iter::once(summary).chain(found).collect()
}

/// The crate of a file with production code.
fn crate_of(file: &File) -> Option<&str> {
    let (name, path) = file.path.strip_prefix("crates/")?.split_once("/src/")?;
    let is_test = path.contains("tests") || !path.ends_with(".rs");
    (!is_test).then_some(name)
}

/// Doc comments of a file that begin with one of [`BANNED`].
fn openings(file: &File) -> Vec<String> {
    let production = file.text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut in_comment = false;
    let mut found = Vec::new();
    for (line, number) in production.lines().zip(1..) {
        let text = comment(line.trim());
        let begins = text.filter(|_| !in_comment);
        if let Some(word) = begins.and_then(|text| BANNED.iter().find(|w| text.starts_with(**w))) {
            found.push(format!(
                "{}:{number}: a doc comment begins with `{}`: name its subject",
                file.path,
                word.trim()
            ));
        }
        in_comment = text.is_some();
    }
    found
}

/// The text of a line of a doc comment.
fn comment(line: &str) -> Option<&str> {
    let text = line
        .strip_prefix("///")
        .or_else(|| line.strip_prefix("//!"))?;
    Some(text.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_line_of_a_production_comment_counts() {
        let text = "/// Its name.\n/// It is short.\nfn a() {}\n//! The same again.\n\n/// Whole: fine.\n#[cfg(test)]\n/// Who?";
        let file = File {
            path: "crates/x/src/a.rs".to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(openings(&file).len(), 2);
        assert_eq!(breaches(&[file]).len(), 3);
    }
}
