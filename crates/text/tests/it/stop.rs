//! Stop strings: labelled cases, the split law against a naive implementation, bounds.

use proptest::prelude::*;
use text::{StopHit, StopMatcher};

/// Naive implementation: of all matches the one that ends first, of those the longest, of equal strings the
/// first.
fn oracle(stops: &[String], text: &str) -> (String, Option<u16>) {
    for end in text.char_indices().map(|(at, c)| at + c.len_utf8()) {
        let mut best: Option<usize> = None;
        for (index, stop) in stops.iter().enumerate() {
            let longer = best.is_none_or(|best| stop.len() > stops[best].len());
            if !stop.is_empty() && longer && text[..end].ends_with(stop.as_str()) {
                best = Some(index);
            }
        }
        if let Some(index) = best {
            return (
                text[..end - stops[index].len()].to_owned(),
                Some(index as u16),
            );
        }
    }
    (text.to_owned(), None)
}

/// Output of a matcher for a text in these pieces.
fn streamed<'a>(
    stops: &[String],
    pieces: impl IntoIterator<Item = &'a str>,
) -> (String, Option<u16>) {
    let mut matcher = StopMatcher::new(stops);
    let mut out = String::new();
    let mut hit = None;
    for piece in pieces {
        let before = out.len();
        let now = matcher.push(piece, &mut out);
        assert!(
            hit.is_none() || (now == hit && out.len() == before),
            "a hit is final"
        );
        hit = now;
    }
    matcher.finish(&mut out);
    (out, hit.map(|StopHit { index }| index))
}

fn check(label: &str, stops: &[&str], pieces: &[&str], out: &str, hit: Option<u16>) {
    let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
    let expected = (out.to_owned(), hit);
    assert_eq!(
        streamed(&stops, pieces.iter().copied()),
        expected,
        "{label}"
    );
}

#[test]
fn earliest_ending_longest_match_wins() {
    check("no stop strings", &[], &["a", "b"], "ab", None);
    check("only empty ones", &["", ""], &["ab"], "ab", None);
    check(
        "an empty one has a number",
        &["", "b"],
        &["abc"],
        "a",
        Some(1),
    );
    check(
        "earliest end first",
        &["abcd", "bc"],
        &["abcd"],
        "a",
        Some(1),
    );
    check(
        "of equal ends the longest",
        &["c", "abc", "bc"],
        &["xab", "c"],
        "x",
        Some(1),
    );
    check(
        "of equal strings the first",
        &["x", "ab", "ab"],
        &["ab"],
        "",
        Some(1),
    );
    check(
        "inside a beginning",
        &["abcde", "c"],
        &["abc"],
        "ab",
        Some(1),
    );
}

#[test]
fn possible_prefixes_are_held_back() {
    check(
        "within a piece",
        &["END"],
        &["one END two"],
        "one ",
        Some(0),
    );
    check(
        "over three pieces",
        &["END"],
        &["one E", "N", "D two"],
        "one ",
        Some(0),
    );
    check(
        "held, then given",
        &["END"],
        &["one EN", "T"],
        "one ENT",
        None,
    );
    check("held at the end", &["END"], &["one EN"], "one EN", None);
    check(
        "falls back inside itself",
        &["aab"],
        &["aa", "aa", "b"],
        "aa",
        Some(0),
    );
    check(
        "characters of several bytes",
        &["é日"],
        &["né", "日本"],
        "n",
        Some(0),
    );
    check("a common first byte", &["é"], &["è"], "è", None);
    check(
        "nothing after the hit",
        &["x"],
        &["ax", "b", "c"],
        "a",
        Some(0),
    );
}

#[test]
fn unmatched_text_is_emitted_immediately() {
    let mut matcher = StopMatcher::new(&["\n\nUser:"]);
    let mut out = String::new();
    assert_eq!(matcher.push("a line\n", &mut out), None);
    assert_eq!(out, "a line");
    matcher.push("\nUsed", &mut out);
    assert_eq!(out, "a line\n\nUsed");
}

/// A matcher that restarted at each position would need 10^10 comparisons here.
#[test]
fn hostile_text_is_matched_in_linear_time() {
    let stop = "a".repeat(10_000) + "b";
    let text = "a".repeat(1_000_000);
    let (out, hit) = streamed(&[stop], [text.as_str(), "c"]);
    assert_eq!((out.len(), hit), (1_000_001, None));
}

#[test]
fn stop_matcher_does_not_allocate() {
    let mut matcher = StopMatcher::new(&["abcabcabd", "é日本", "zz"]);
    let mut out = String::with_capacity(1 << 20);
    let before = testing::heap::thread_allocations();
    for _ in 0..1000 {
        for piece in ["abcab", "c", "abcabcé", "日", "z", "plain"] {
            assert_eq!(matcher.push(piece, &mut out), None);
        }
    }
    assert_eq!(matcher.push("zz", &mut out), Some(StopHit { index: 2 }));
    assert_eq!(testing::heap::thread_allocations(), before);
}

/// Few letters, so that prefixes overlap; two letters share their first byte.
fn letters(len: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = String> {
    let letter = prop::sample::select(vec!['a', 'a', 'b', 'é', 'è', '日']);
    prop::collection::vec(letter, len).prop_map(String::from_iter)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn matches_are_independent_of_cuts(
        stops in prop::collection::vec(letters(0..5), 0..4),
        text in letters(0..24),
        cuts in prop::collection::vec(any::<bool>(), 24),
    ) {
        let expected = oracle(&stops, &text);
        let mut pieces = vec![String::new()];
        for (c, cut) in text.chars().zip(cuts) {
            if cut {
                pieces.push(String::new());
            }
            pieces.last_mut().unwrap().push(c);
        }
        prop_assert_eq!(&streamed(&stops, pieces.iter().map(String::as_str)), &expected);
        let mut one = [0; 4];
        let each: Vec<String> = text.chars().map(|c| c.encode_utf8(&mut one).to_owned()).collect();
        prop_assert_eq!(&streamed(&stops, each.iter().map(String::as_str)), &expected);
        prop_assert_eq!(&streamed(&stops, [text.as_str()]), &expected);
    }
}
