//! Syntax of chat templates beyond minijinja's.

use minijinja::syntax::SyntaxConfig;

/// jinja2's settings in `transformers`.
pub(super) fn settings() -> SyntaxConfig {
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .expect("the default delimiters are valid")
}

/// The source with `{% generation %}` and `{% endgeneration %}` replaced by `{% with %}` and `{% endwith %}`,
/// which render equal text (training uses these tags to find the assistant's text). Whitespace control is
/// kept. A tag inside a string or a raw block is replaced too.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut rewritten = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find(OPEN) {
        let (before, tag) = rest.split_at(at + OPEN.len());
        rewritten.push_str(before);
        rest = tag;
        let word_at = tag.len() - tag.trim_start_matches(['-', '+']).trim_start().len();
        let word = &tag[word_at..];
        let word = &word[..word
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(word.len())];
        let same = match word {
            "generation" => "with",
            "endgeneration" => "endwith",
            _ => continue,
        };
        rewritten.push_str(&tag[..word_at]);
        rewritten.push_str(same);
        rest = &tag[word_at + word.len()..];
    }
    rewritten.push_str(rest);
    rewritten
}

/// Bytes of the longest tag without delimiters. A delimiter in a string inside a tag ends the tag too early
/// here, and a delimiter in plain text begins a tag that ends with the next one; both are rare, and the bound
/// is wide.
pub(super) fn longest_tag(source: &str) -> usize {
    let (mut longest, mut open) = (0, None);
    for (at, pair) in source.as_bytes().windows(2).enumerate() {
        match (pair, open) {
            (b"{%" | b"{{", None) => open = Some(at + 2),
            (b"%}" | b"}}", Some(start)) => {
                longest = longest.max(at.saturating_sub(start));
                open = None;
            }
            _ => {}
        }
    }
    longest.max(open.map_or(0, |start| source.len() - start))
}

const OPEN: &str = "{%";
