//! Ids, times, seeds and odds made equal.

/// Digits of an id, at least.
const ID_DIGITS_MIN: usize = 24;
/// Numbers that are times or random seeds.
const TIMES: [&str; 10] = [
    "\"seed\":",
    "\"created\":",
    "\"created_at\":",
    "\"completed_at\":",
    "_duration\":",
    "_time_ms\":",
    "_per_sec\":",
    "_ms\":",
    "_per_second\":",
    "per_token_ms\":",
];
/// Times as text.
const STAMPS: [&str; 2] = ["\"created_at\":\"", "\"started_at\":\""];

/// The text with what differs each time made equal.
pub(crate) fn fixed(text: &str) -> String {
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    let mut text = ids(text);
    for before in TIMES {
        text = cut(&text, before, is_digit, "0");
    }
    for before in STAMPS {
        text = cut(&text, before, |c| c != '"', "T");
    }
    odds(&text)
}

/// After each `before`, what `is_part` becomes `put`, if there is any.
fn cut(text: &str, before: &str, is_part: impl Fn(char) -> bool, put: &str) -> String {
    let mut parts = text.split(before);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| {
        let rest = part.trim_start_matches(&is_part);
        let put = if rest.len() < part.len() { put } else { "" };
        out + before + put + rest
    })
}

/// Runs of hexadecimal digits.
fn ids(text: &str) -> String {
    let is_part = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    runs(text, is_part, |run| run.len() >= ID_DIGITS_MIN, "X")
}

/// Log-probabilities that are no whole numbers.
fn odds(text: &str) -> String {
    let is_part = |c: char| matches!(c, '0'..='9' | '-' | '.' | 'e');
    let is_odd = |run: &str| {
        run.starts_with('-') && run.contains('.') && run.parse::<f64>().is_ok_and(|x| x < 0.0)
    };
    runs(text, is_part, is_odd, "N")
}

/// Longest runs of such characters; those that are meant become `put`.
fn runs(
    text: &str,
    is_part: impl Fn(char) -> bool,
    is_meant: impl Fn(&str) -> bool,
    put: &str,
) -> String {
    let (mut out, mut run) = (String::new(), String::new());
    for c in text.chars().map(Some).chain([None]) {
        if let Some(c) = c.filter(|&c| is_part(c)) {
            run.push(c);
            continue;
        }
        out.push_str(if is_meant(&run) { put } else { &run });
        run.clear();
        out.extend(c);
    }
    out
}

#[test]
fn only_ids_and_times_are_made_equal() {
    for (text, want) in [
        ("\"msg_0123456789abcdef01234567\"", "\"msg_X\""),
        ("\"created\":123,\"n\":7", "\"created\":0,\"n\":7"),
        ("\"created_at\":\"2026-01-01T\"", "\"created_at\":\"T\""),
        ("\"created_at\":5", "\"created_at\":0"),
        (
            "\"logprob\":-1.5e-3,\"a\":-2,\"b\":0",
            "\"logprob\":N,\"a\":-2,\"b\":0",
        ),
        ("deadline", "deadline"),
    ] {
        assert_eq!(fixed(text), want);
    }
}
