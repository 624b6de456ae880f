//! Known names that are near an unknown one.

/// The most names that are shown.
const SHOWN: usize = 3;

/// The known names that differ from `name` in at most half of its letters, nearest first.
pub(super) fn nearest<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    let name = name.to_lowercase();
    let most = name.chars().count() / 2;
    let mut near: Vec<(usize, &str)> = known
        .iter()
        .map(|&other| (edits(&name, other), other))
        .filter(|(edits, _)| *edits <= most)
        .collect();
    near.sort_by_key(|(edits, _)| *edits);
    near.truncate(SHOWN);
    near.into_iter().map(|(_, other)| other).collect()
}

/// Letters to insert, delete or replace to turn one name into the other (Levenshtein's distance).
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_in_order() {
        let known = ["llama", "qwen2", "qwen3", "gemma3", "bert"];
        for (name, near) in [
            ("qwen35", &["qwen3", "qwen2"][..]),
            ("gemma4", &["gemma3"]),
            ("llama4", &["llama"]),
            ("LLAMA", &["llama"]),
            ("rwkv7", &[]),
            ("", &[]),
        ] {
            assert_eq!(nearest(name, &known), near, "{name}");
        }
    }

    #[test]
    fn edits_are_counted() {
        for (a, b, count) in [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3)] {
            assert_eq!(edits(a, b), count, "{a} {b}");
            assert_eq!(edits(b, a), count, "{b} {a}");
        }
    }
}
