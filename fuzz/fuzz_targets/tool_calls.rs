//! The split law of the output parsers: however an answer is cut into pieces, the parts concatenate to the same answer.
//!
//! The first three bytes choose the tool family, the reasoning family and the cuts; the rest is the answer's text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};
use text::{
    AnswerFormat, AnswerParser, AnswerParts, Part, ReasoningFamily, ToolFamily, ToolSchemas,
};

/// A part with all of its text.
#[derive(Debug, PartialEq)]
enum Joined {
    Content(String),
    Reasoning(String),
    Start(u32, Option<String>, String),
    Arguments(u32, String),
    End(u32),
}

static TOOLS: LazyLock<Arc<ToolSchemas>> = LazyLock::new(|| {
    let tools = serde_json::json!([
        {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
            "city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"type": ["string", "null"]},
            "where": {"type": "object"}, "any": {}
        }}}},
        {"type": "function", "function": {"name": "put"}}
    ]);
    Arc::new(ToolSchemas::new(
        tools.as_array().map_or(&[], Vec::as_slice),
    ))
});

fn parse<'a>(
    format: AnswerFormat,
    in_reasoning: bool,
    pieces: impl Iterator<Item = &'a str>,
) -> (Vec<Joined>, u32, bool) {
    let (mut joined, mut parts) = (Vec::new(), AnswerParts::default());
    let mut parser = AnswerParser::new(format, Some(&TOOLS), in_reasoning);
    for piece in pieces {
        parser.push(piece, &mut parts);
        parts.drain_into(|part| join(&mut joined, part));
    }
    parser.finish(&mut parts);
    parts.drain_into(|part| join(&mut joined, part));
    (joined, parser.broken_calls(), parser.ends_in_call())
}

/// Appends a part to the last one of its kind, or as a new one.
fn join(joined: &mut Vec<Joined>, part: Part<&str>) {
    match (part, joined.last_mut()) {
        (Part::Content(more), Some(Joined::Content(text)))
        | (Part::Reasoning(more), Some(Joined::Reasoning(text))) => text.push_str(more),
        (Part::CallArguments { index, fragment }, Some(Joined::Arguments(call, text))) => {
            assert_eq!(index, *call, "fragments of one call follow each other");
            text.push_str(fragment);
        }
        (Part::Content(text), _) => joined.push(Joined::Content(text.to_owned())),
        (Part::Reasoning(text), _) => joined.push(Joined::Reasoning(text.to_owned())),
        (Part::CallStart { index, id, name }, _) => {
            assert!(!name.is_empty(), "a call has a name");
            joined.push(Joined::Start(index, id.map(str::to_owned), name.to_owned()));
        }
        (Part::CallArguments { index, fragment }, _) => {
            joined.push(Joined::Arguments(index, fragment.to_owned()));
        }
        (Part::CallEnd { index }, _) => joined.push(Joined::End(index)),
    }
}

/// The text in pieces whose lengths a generator seeded with `seed` draws.
fn pieces(text: &str, seed: u8) -> Vec<&str> {
    let (mut pieces, mut start) = (Vec::new(), 0);
    let mut state = u32::from(seed) | 1;
    for (at, _) in text.char_indices() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if (state >> 24) % (1 + u32::from(seed >> 4)) == 0 {
            pieces.push(&text[start..at]);
            start = at;
        }
    }
    pieces.push(&text[start..]);
    pieces
}

/// Starts and ends of calls alternate, their indices count from 0, and arguments lie between.
fn check_order(parts: &[Joined]) {
    let (mut next, mut open) = (0, None);
    for part in parts {
        match part {
            Joined::Start(index, ..) => {
                assert_eq!((*index, open), (next, None), "{parts:?}");
                (next, open) = (next + 1, Some(*index));
            }
            Joined::Arguments(index, _) => assert_eq!(open, Some(*index), "{parts:?}"),
            Joined::End(index) => assert_eq!(open.take(), Some(*index), "{parts:?}"),
            Joined::Content(_) | Joined::Reasoning(_) => assert_eq!(open, None, "{parts:?}"),
        }
    }
    assert_eq!(open, None, "{parts:?}");
}

fuzz_target!(|input: &[u8]| {
    let [family, reasoning, seed, answer @ ..] = input else {
        return;
    };
    let format = AnswerFormat {
        tools: ToolFamily::NAMES[usize::from(*family) % ToolFamily::NAMES.len()].1,
        reasoning: ReasoningFamily::NAMES[usize::from(*reasoning) % ReasoningFamily::NAMES.len()].1,
    };
    let in_reasoning = *reasoning >= 128;
    let answer = String::from_utf8_lossy(answer);
    let whole = parse(format, in_reasoning, std::iter::once(&*answer));
    check_order(&whole.0);
    let cut = parse(format, in_reasoning, pieces(&answer, *seed).into_iter());
    assert_eq!(cut, whole, "{format:?}");
});
