//! How far two names are apart: for hints at the name that was meant.

/// Insertions, deletions and replacements of characters that make `b` of `a` (Levenshtein), ASCII case left out.
/// Time and memory grow with the product and the sum of the lengths: callers bound them.
pub fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    // Distances of the part of `a` so far to each beginning of `b`.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(!from.eq_ignore_ascii_case(to));
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::edit_distance;

    #[test]
    fn changes_are_counted() {
        let rows = [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "ABC", 0),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
            ("qwen3:0.6", "qwen3:0.6b", 1),
            ("é", "e", 1),
        ];
        for (a, b, want) in rows {
            assert_eq!(edit_distance(a, b), want, "{a} {b}");
            assert_eq!(edit_distance(b, a), want, "{b} {a}");
        }
    }
}
