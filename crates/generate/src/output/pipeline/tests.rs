//! The pipeline against a reference: decode everything, then cut at the first stop string.

use super::{OutputPipeline, PipelineOptions};
use crate::output::parser_config::{ParseOptions, ParserConfig};
use crate::output::position::Position;
use crate::stop::TURN_END;
use engine::{StopCondition, Token, TopLogprob};
use proptest::prelude::*;
use stream::{End, FailCode, Stop, StreamId};
use testing::small_vocabulary::{EOS, WORD, tokenizer};
use text::{AnswerFormat, Part, ReasoningFamily, ToolFamily};

/// A pipeline with log-probabilities, of an answer that is content only.
fn of_text(stops: &[String]) -> OutputPipeline {
    pipeline(stops, &ParserConfig::default())
}

fn pipeline(stops: &[String], reading: &ParserConfig) -> OutputPipeline {
    let options = PipelineOptions {
        echoed: 0,
        at_text_start: false,
        logprobs: true,
        top_n: 1,
        call_ids: reading.call_ids(StreamId::from_random([7; 16]), 0),
        known: Position::default(),
        steps: 0,
    };
    OutputPipeline::new(&tokenizer(), stops, reading, options)
}

fn token(id: u32) -> Token {
    Token {
        id,
        logprob: -(f32::from(u16::try_from(id).unwrap())),
    }
}

/// Text, ids of the entries, and the end, with the pipeline cleared after every `cut` tokens.
fn fold(ids: &[u32], stops: &[String], end: End, cut: usize) -> (String, Vec<u32>, End) {
    let mut fold = of_text(stops);
    let (mut text, mut entries) = (String::new(), Vec::new());
    let mut collect = |fold: &mut OutputPipeline| {
        for (placed, logprobs) in fold.final_parts() {
            let Part::Content(more) = placed.part else {
                panic!("nothing but text");
            };
            text.push_str(more);
            for (entry, top) in logprobs.iter() {
                assert_eq!(
                    (top.len(), top[0].id),
                    (1, entry.token.id + 1),
                    "alternatives go with their token"
                );
                entries.push(entry.token.id);
            }
        }
        fold.clear();
    };
    for (i, &id) in ids.iter().enumerate() {
        fold.push(
            token(id),
            &[TopLogprob {
                id: id + 1,
                logprob: 0.0,
            }],
        );
        if i % cut == 0 {
            collect(&mut fold);
        }
    }
    let end = fold.finish(end);
    collect(&mut fold);
    (text, entries, end)
}

/// The reference.
fn naive(ids: &[u32], stops: &[String]) -> (String, Option<u16>) {
    let tokenizer = tokenizer();
    let bytes: Vec<u8> = ids
        .iter()
        .flat_map(|&id| tokenizer.bytes(id).unwrap().to_vec())
        .collect();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let hits = stops
        .iter()
        .enumerate()
        .filter_map(|(i, stop)| Some((text.find(stop.as_str())?, stop.len(), i)));
    match hits.min_by_key(|&(at, len, _)| (at + len, std::cmp::Reverse(len))) {
        Some((at, _, i)) => (text[..at].to_owned(), Some(u16::try_from(i).unwrap())),
        None => (text, None),
    }
}

proptest! {
    #[test]
    fn folding_is_decoding_and_cutting(
        ids in prop::collection::vec(prop_oneof![Just(97u32), Just(98), Just(0xc3), Just(0xa9), WORD..WORD + 6, Just(EOS)], 0..40),
        stops in prop::collection::vec("(a|b|é|ST|OP|hello){1,3}", 0..4),
        cut in 1usize..6,
    ) {
        let (text, entries, end) = fold(&ids, &stops, End::Length, cut);
        let (want, hit) = naive(&ids, &stops);
        prop_assert_eq!(&text, &want);
        prop_assert_eq!(end, hit.map_or(End::Length, |i| End::Stop(Stop::StopString(i))));
        prop_assert!(ids.starts_with(&entries), "entries are the first tokens, in order");
        if hit.is_none() {
            prop_assert_eq!(entries.len(), ids.len());
        }
        let whole = fold(&ids, &stops, End::Length, usize::MAX);
        prop_assert_eq!((text, entries, end), whole, "cutting differently changes nothing");
    }

    #[test]
    fn stop_condition_stops_at_the_completing_token(
        ids in prop::collection::vec(prop_oneof![Just(97u32), Just(98), WORD + 2..WORD + 4], 0..30),
        stops in prop::collection::vec("(a|b|ST|OP){1,3}", 1..4),
    ) {
        let mut terminator = crate::stop::StopStrings::new(&tokenizer(), false, &ParserConfig::default(), &stops);
        let stopped = ids.iter().position(|&id| terminator.push(id).is_some());
        let (_, hit) = naive(&ids, &stops);
        prop_assert_eq!(stopped.is_some(), hit.is_some());
        if let Some(at) = stopped {
            prop_assert!(naive(&ids[..at], &stops).1.is_none(), "not before");
            prop_assert!(naive(&ids[..=at], &stops).1.is_some(), "and not after");
        }
    }
}

#[test]
fn stop_string_logprobs_do_not_leak() {
    let ids = [WORD, WORD + 2, WORD + 3, 97];
    let (text, entries, end) = fold(
        &ids,
        &["STOP".to_owned()],
        End::Stop(Stop::StopString(0)),
        1,
    );
    assert_eq!((text.as_str(), entries), ("hello", vec![WORD]));
    assert_eq!(end, End::Stop(Stop::StopString(0)));
}

/// A mark of the template that is plain text for the model ends the turn; it is no stop string of the client's.
#[test]
fn stop_string_of_the_template_ends_the_turn() {
    let stops = ["never".to_owned(), "STOP".to_owned()];
    let reading = ParserConfig::default().with_turn_ends(&["STOP"]);
    let mut condition = crate::stop::StopStrings::new(&tokenizer(), false, &reading, &stops);
    let hit = [WORD, WORD + 2, WORD + 3].map(|id| condition.push(id));
    assert_eq!(hit, [None, None, Some(TURN_END)]);
    // The engine's index, and that of an upstream.
    for index in [TURN_END, 1] {
        let mut pipeline = pipeline(&stops, &reading);
        for id in [WORD, WORD + 2, WORD + 3] {
            pipeline.push(token(id), &[TopLogprob { id, logprob: 0.0 }]);
        }
        let end = pipeline.finish(End::Stop(Stop::StopString(index)));
        assert_eq!(end, End::Stop(Stop::Eos), "{index}");
    }
}

#[test]
fn held_text_is_released_at_the_end() {
    let stops = ["STOP".to_owned()];
    let bad = End::Failed(FailCode::Inference);
    for end in [End::Length, End::Stop(Stop::Eos), bad] {
        let (text, entries, told) = fold(&[WORD + 2, WORD + 5], &stops, end, 1);
        assert_eq!((text.as_str(), entries.len(), told), ("ST\u{FFFD}", 2, end));
    }
}

#[test]
fn offsets_count_characters() {
    let mut fold = of_text(&[]);
    for id in [WORD, WORD + 4, 97, 98] {
        fold.push(token(id), &[TopLogprob::default()]);
    }
    let entries = fold.final_parts().flat_map(|(_, list)| list.entries);
    let offsets: Vec<u64> = entries.map(|entry| entry.start_chars).collect();
    assert_eq!(offsets, [0, 5, 6, 7]);
}

/// Reasoning and calls in front of content, in tokens.
fn thinking() -> ParserConfig {
    let format = AnswerFormat {
        tools: ToolFamily::Hermes,
        reasoning: ReasoningFamily::Think,
    };
    let tool = serde_json::json!({"type": "function", "function": {"name": "f"}});
    ParserConfig::new(format, &[tool], "x", &tokenizer(), ParseOptions::default())
}

/// Ids of tokens: words of the vocabulary, or bytes.
fn ids(words: &[&str]) -> Vec<u32> {
    let id = |word: &&str| match *word {
        "hello" => vec![WORD],
        " world" => vec![WORD + 1],
        "ST" => vec![WORD + 2],
        "OP" => vec![WORD + 3],
        "<think>" => vec![WORD + 6],
        "</think>" => vec![WORD + 7],
        "<tool_call>" => vec![WORD + 8],
        bytes => bytes.bytes().map(u32::from).collect(),
    };
    words.iter().flat_map(id).collect()
}

/// Label, tokens, content, tokens with entries, whether the stop string ends the answer.
type ContentRow = (
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static [&'static str],
    bool,
);

const CALL: &str = "{\"name\": \"f\", \"arguments\": {\"a\": \"STOP\"}}</tool_call>";

#[rustfmt::skip]
const CONTENT: [ContentRow; 8] = [
    ("content", &["hello", " world"], "hello world", &["hello", " world"], false),
    ("reasoning first", &["<think>", "hello", "ST", "OP", "</think>", "\n", "hello", " world"], "hello world", &["hello", " world"], false),
    ("a stop string in both", &["<think>", "ST", "OP", "</think>", "hello", "ST", "OP", " world"], "hello", &["hello"], true),
    ("a call in between", &["hello", "<tool_call>", CALL, "hello"], "hellohello", &["hello", "hello"], false),
    ("a beginning that is held", &["<think>", "hello", "</think>", "ST", "hello"], "SThello", &["ST", "hello"], false),
    ("text like a delimiter", &["hello", "<t", "hello"], "hello<thello", &["hello", "<t", "hello"], false),
    ("reasoning alone", &["<think>", "hello", " world"], "", &[], false),
    ("a character in two tokens", &["<think>", "hello", "</think>", "\u{e9}"], "\u{e9}", &["\u{e9}"], false),
];

/// Content, ids of the entries, and the end of an answer, with the pipeline cleared after every `cut` tokens.
fn content_of(words: &[&str], cut: usize) -> (String, Vec<u32>, End) {
    let mut fold = pipeline(&["STOP".to_owned()], &thinking());
    let (mut text, mut seen) = (String::new(), Vec::new());
    let mut collect = |fold: &mut OutputPipeline| {
        for (placed, logprobs) in fold.final_parts() {
            seen.extend(logprobs.entries.iter().map(|entry| entry.token.id));
            match placed.part {
                Part::Content(more) => text.push_str(more),
                _ => assert!(logprobs.entries.is_empty()),
            }
        }
        fold.clear();
    };
    for (i, &id) in ids(words).iter().enumerate() {
        let top = TopLogprob {
            id: id + 1,
            logprob: 0.0,
        };
        fold.push(token(id), &[top]);
        if i % cut == 0 {
            collect(&mut fold);
        }
    }
    let end = fold.finish(End::Length);
    collect(&mut fold);
    (text, seen, end)
}

#[test]
fn entries_and_stop_strings_are_those_of_the_content() {
    for (label, words, content, entries, is_stopped) in CONTENT {
        for cut in [1, 2, usize::MAX] {
            let (text, seen, end) = content_of(words, cut);
            assert_eq!((&*text, seen), (content, ids(entries)), "{label}, {cut}");
            let want = if is_stopped {
                End::Stop(Stop::StopString(0))
            } else {
                End::Length
            };
            assert_eq!(end, want, "{label}");
        }
    }
}

#[test]
fn engine_stops_where_the_pipeline_does() {
    for words in [
        &[
            "<think>", "ST", "OP", "</think>", "hello", "ST", "OP", " world",
        ][..],
        &["<think>", "ST", "OP", "</think>", "hello"],
        &["hello", "ST", "OP"],
    ] {
        let (ids, reading) = (ids(words), thinking());
        let stops = ["STOP".to_owned()];
        let mut condition = crate::stop::StopStrings::new(&tokenizer(), false, &reading, &stops);
        let stopped = ids.iter().position(|&id| condition.push(id).is_some());
        let mut fold = pipeline(&stops, &reading);
        let nothing = TopLogprob::default();
        let found = ids.iter().position(|&id| {
            fold.push(token(id), &[nothing]);
            fold.parser.stop_hit().is_some()
        });
        assert_eq!(stopped, found, "{words:?}");
    }
}
