//! A list of token ids to text. Tokens that are still being generated go through the output pipeline instead.

use std::sync::Arc;
use text::{Decoder, Tokenizer};

/// Options of detokenizing a list of ids.
#[derive(Clone, Copy, Debug)]
pub struct DetokenizeOptions {
    /// Whether the first id begins a text.
    pub at_text_start: bool,
    /// Whether the texts of control tokens are included.
    pub control_texts: bool,
    /// Bytes of the longest text.
    pub bytes_max: usize,
}

/// The text of a prompt's ids, without control tokens.
pub fn prompt_text(tokenizer: &Arc<Tokenizer>, ids: &[u32]) -> String {
    let options = DetokenizeOptions {
        at_text_start: true,
        control_texts: false,
        bytes_max: usize::MAX,
    };
    detokenize(tokenizer, ids, options).unwrap_or_default()
}

/// The text of these ids; `None` if the text is longer than `bytes_max`.
pub fn detokenize(
    tokenizer: &Arc<Tokenizer>,
    ids: &[u32],
    options: DetokenizeOptions,
) -> Option<String> {
    let mut decoder = Decoder::new(Arc::clone(tokenizer), options.at_text_start);
    if options.control_texts {
        let is_control = |id: &u32| tokenizer.is_control(*id);
        let mut shown: Vec<u32> = ids.iter().copied().filter(is_control).collect();
        shown.sort_unstable();
        shown.dedup();
        decoder = decoder.showing(shown.into());
    }
    let mut text = String::new();
    for &id in ids {
        decoder.push(id, &mut text);
        if text.len() > options.bytes_max {
            return None;
        }
    }
    decoder.finish(&mut text);
    Some(text)
}
