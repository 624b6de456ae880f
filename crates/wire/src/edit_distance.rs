//! Edit distance of two names, for "did you mean" hints.

/// Levenshtein distance: insertions, deletions and replacements of characters that turn `a` into `b`, without regard
/// to ASCII case. Time grows with the product of the lengths and memory with their sum; callers bound both.
pub fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    // Distances of the processed part of `a` to each prefix of `b`.
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
    fn edit_distance_counts_changes() {
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
