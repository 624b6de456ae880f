//! Prompts as transformers' processors write them: `tools/oracle/vision_prompts.py` asked these.

use std::collections::HashMap;

/// Texts by the names of cases, with «N» for N rows of the image.
pub(super) fn texts() -> HashMap<&'static str, String> {
    let lines = include_str!("processors.tsv").lines();
    let pairs = lines.filter_map(|line| line.split_once('\t'));
    pairs
        .map(|(label, text)| (label, serde_json::from_str(text).expect("a text")))
        .collect()
}

/// A prompt as [`super::shown`], where runs that follow each other are one, and have no name.
pub(super) fn joined(shown: &str) -> String {
    let mut text = String::new();
    let mut rows = 0;
    for part in shown.split('«') {
        let Some((run, after)) = part.split_once('»') else {
            text += part;
            continue;
        };
        rows += run
            .rsplit(':')
            .next()
            .expect("rows")
            .parse::<usize>()
            .expect("a number");
        if !after.is_empty() {
            text += &format!("«{rows}»{after}");
            rows = 0;
        }
    }
    text
}
