//! Tokens that end a generation.

use super::string_arena::StringArena;
use crate::TokenKind;

/// Well-known names of end-of-turn and end-of-text tokens, which count whatever the file says.
const KNOWN: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    // Fill-in-the-middle models begin the next file with these tokens.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<|file_sep|>",
];

/// Tokens that end a generation, sorted: the ids in `named`, and control or user-defined tokens with
/// well-known names.
pub(crate) fn find(pieces: &StringArena, kinds: &[TokenKind], named: &[Option<u32>]) -> Vec<u32> {
    let id_of = |name: &str| {
        let id = pieces.find(name.as_bytes())?;
        matches!(
            kinds[id as usize],
            TokenKind::Control | TokenKind::UserDefined
        )
        .then_some(id)
    };
    let mut ends: Vec<u32> = KNOWN.iter().filter_map(|name| id_of(name)).collect();
    // Harmony vocabularies end a message with <|end|>, and a turn with <|return|> or <|call|>; generation
    // continues after a message.
    let has = |name| id_of(name).is_some();
    let is_harmony = has("<|return|>") && has("<|call|>")
        || has("<|flush|>") && (has("<|call|>") || has("<|calls|>"));
    if is_harmony && let Some(end) = id_of("<|end|>") {
        ends.retain(|id| *id != end);
    }
    // In Gemma 4 this is a tag of HTML.
    if let (Some(_), Some(tag)) = (id_of("<|tool_response>"), id_of("</s>")) {
        ends.retain(|id| *id != tag);
    }
    ends.extend(named.iter().flatten());
    ends.sort_unstable();
    ends.dedup();
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use TokenKind::{Control, Normal, UserDefined};

    fn check(label: &str, tokens: &[(&str, TokenKind)], named: &[Option<u32>], expected: &[u32]) {
        let mut pieces = StringArena::with_capacity(0, 0);
        tokens
            .iter()
            .for_each(|(text, _)| pieces.push(text.as_bytes()));
        pieces.index(|_| true);
        let kinds: Vec<_> = tokens.iter().map(|(_, kind)| *kind).collect();
        assert_eq!(find(&pieces, &kinds, named), expected, "{label}");
    }

    #[test]
    fn end_tokens_are_named_or_well_known() {
        let x = ("x", Normal);
        check("none", &[x], &[None], &[]);
        check(
            "named",
            &[x, x],
            &[Some(1), None, Some(0), Some(1)],
            &[0, 1],
        );
        check(
            "known",
            &[x, ("<|im_end|>", Control), ("</s>", UserDefined)],
            &[None],
            &[1, 2],
        );
        check("ordinary text", &[("</s>", Normal), x], &[None], &[]);
        check(
            "phi",
            &[("<|end|>", Control), ("<|endoftext|>", Control)],
            &[Some(1)],
            &[0, 1],
        );
        check(
            "gemma 4 writes tags of HTML",
            &[
                ("</s>", UserDefined),
                ("<turn|>", Control),
                ("<|tool_response>", UserDefined),
            ],
            &[None],
            &[1, 2],
        );
        let harmony = [
            ("<|end|>", Control),
            ("<|return|>", Control),
            ("<|call|>", Control),
        ];
        check(
            "harmony goes on after a message",
            &harmony,
            &[Some(1)],
            &[1, 2],
        );
    }
}
