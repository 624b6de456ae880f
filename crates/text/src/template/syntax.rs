//! What chat templates are written in, beyond what the engine reads by itself.

use minijinja::syntax::SyntaxConfig;

/// jinja2's settings in `transformers`.
pub(super) fn settings() -> SyntaxConfig {
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .expect("the default delimiters are valid")
}

/// The source with `{% generation %}` and `{% endgeneration %}` written as `{% with %}` and
/// `{% endwith %}`, which print the same: training marks with them what the assistant said. Marks
/// of whitespace control stay. A tag that is only text (in a string or a raw block) is not told
/// from a real one.
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

const OPEN: &str = "{%";
