//! Texts of upstreams without the secrets that they may repeat: the key of the request, and what looks like one.

/// Replacement of a secret.
const HIDDEN: &str = "[hidden]";
/// Letters and digits in a row from which on a word may be a credential.
const CREDENTIAL_CHARS_MIN: usize = 20;
/// Beginnings of credentials.
const PREFIXES: [&str; 5] = ["sk-", "hf_", "ghp_", "eyJ", "mr-"];

/// The text on one line and without credentials: `key`, words after `Bearer`, and words that look like credentials.
pub(crate) fn without_secrets(text: &str, key: Option<&str>) -> String {
    let text = match key.filter(|key| !key.is_empty()) {
        Some(key) => text.replace(key, HIDDEN),
        None => text.to_owned(),
    };
    let (mut out, mut word, mut hides_next) =
        (String::with_capacity(text.len()), String::new(), false);
    for c in text.chars().chain([' ']) {
        if c.is_alphanumeric() || matches!(c, '_' | '-' | '*') {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            let is_secret = hides_next || is_credential(&word);
            hides_next = word.eq_ignore_ascii_case("bearer");
            out.push_str(if is_secret { HIDDEN } else { &word });
            word.clear();
        }
        out.push(if c.is_control() { ' ' } else { c });
    }
    out.pop();
    out
}

/// Whether a word looks like a key: by its beginning, or long and of letters and digits.
fn is_credential(word: &str) -> bool {
    let has = |is: fn(char) -> bool| word.chars().any(is);
    let is_long = word.chars().count() >= CREDENTIAL_CHARS_MIN;
    PREFIXES
        .iter()
        .any(|prefix| word.starts_with(prefix) && word.len() > prefix.len() + 3)
        || is_long && has(|c| c.is_ascii_digit()) && has(char::is_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_that_an_upstream_repeats_are_hidden() {
        for (text, want) in [
            ("model `m` does not exist", "model `m` does not exist"),
            (
                "status 401: no such key: k 1\n",
                "status 401: no such key: [hidden] ",
            ),
            (
                "authorization: Bearer abc",
                "authorization: Bearer [hidden]",
            ),
            (
                "Incorrect API key provided: sk-ab***yz.",
                "Incorrect API key provided: [hidden].",
            ),
            (
                "{\"key\":\"0123456789abcdef0123\"}",
                "{\"key\":\"[hidden]\"}",
            ),
            ("Qwen2.5-Coder-0.5B-Instruct", "Qwen2.5-Coder-0.5B-Instruct"),
        ] {
            assert_eq!(without_secrets(text, Some("k 1")), want);
        }
        assert_eq!(without_secrets("a", Some("")), "a");
    }
}
