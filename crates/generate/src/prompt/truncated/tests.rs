//! Truncated prompts beside a search over every number of dropped turns.

use super::*;
use crate::model_handle::ModelHandle;
use crate::prompt_limit::PromptTruncation;
use crate::request::GenerationParams;
use engine::fake::{FakeConfig, FakeModel};
use engine::{Engine, EngineConfig};
use proptest::prelude::*;
use serde_json::Map;
use std::time::Instant;
use stream::PoolLimits;
use testing::small_vocabulary as vocab;
use text::ChatTemplate;

/// Each message as its role's first letter and its text.
const TEMPLATE: &str = "{% for m in messages %}{{ m.role[:1] }}{{ m.content }}{% endfor %}>";

#[expect(clippy::disallowed_methods, reason = "an epoch for the engine")]
fn model(template: &str, context_max: usize) -> ModelHandle {
    let engine = Engine::new(
        Box::new(FakeModel::new(FakeConfig::default())),
        EngineConfig::default(),
        Instant::now(),
    );
    let limits = PoolLimits { segments_max: 1 };
    let engine = engine.expect("bounds").handle();
    let template = ChatTemplate::new(template, "<|bos|>", "").expect("a template");
    ModelHandle {
        context_max,
        ..ModelHandle::new(engine, vocab::tokenizer(), template, &[vocab::EOS], limits)
    }
}

fn message(role: &str, text: &str) -> Message {
    Message {
        role: role.to_owned(),
        content: Value::String(text.to_owned()),
        rest: Map::new(),
    }
}

fn conversation(messages: Vec<Message>) -> Prompt {
    Prompt::Conversation {
        field: "input",
        messages,
        tools: Vec::new(),
        continues: false,
        kwargs: Map::new(),
    }
}

/// An encoder with this truncation, for answers of at most 20 tokens.
fn encoder(model: &ModelHandle, truncation: Truncation) -> PromptEncoder<'_> {
    let params = GenerationParams {
        truncation,
        max_tokens: Some(20),
        ..GenerationParams::default()
    };
    PromptEncoder::new(model, 0).truncating(PromptTruncation::of(&params))
}

fn prepared(
    model: &ModelHandle,
    truncation: Truncation,
    prompt: Prompt,
) -> Result<String, ApiError> {
    let encoder = encoder(model, truncation);
    let mut prompts = encoder.prepare(vec![prompt], true, ParseOptions::default())?;
    let prompt = prompts.pop().expect("one prompt");
    assert!(prompt.ids.len() < model.context_max);
    let echo = prompt.echo_text.expect("the text").to_string();
    Ok(echo)
}

#[test]
fn conversation_loses_its_oldest_turns() {
    let model = model(TEMPLATE, 100);
    let turns = |count: usize| {
        let turns = (0..count).flat_map(|i| {
            let text = format!("{i:09}");
            [message("user", &text), message("assistant", &text)]
        });
        let begin = [message("system", "be brief")];
        let end = [message("user", "last")];
        conversation(begin.into_iter().chain(turns).chain(end).collect())
    };
    // 9 + 20 per turn + 5 + 1; 80 are for the prompt.
    let text = |kept: std::ops::Range<usize>| {
        let turns: String = kept.map(|i| format!("u{i:09}a{i:09}")).collect();
        format!("sbe brief{turns}ulast>")
    };
    for (count, kept) in [(0, 0..0), (3, 0..3), (4, 1..4), (50, 47..50)] {
        let found = prepared(&model, Truncation::Turns, turns(count)).expect("a prompt");
        assert_eq!(found, text(kept), "{count}");
    }
    let error = prepared(&model, Truncation::Disabled, turns(5)).expect_err("too long");
    assert_eq!(error.code, "context_length_exceeded");
    assert!(
        error.message.contains("context length is 100 tokens"),
        "{}",
        error.message
    );
}

#[test]
fn last_turn_takes_the_room_of_the_answer_and_no_more() {
    let model = model(TEMPLATE, 100);
    let with_last = |bytes: usize| {
        let last = "x".repeat(bytes);
        conversation(vec![message("user", "first"), message("user", &last)])
    };
    for (bytes, is_taken) in [(78, true), (97, true), (98, false), (5000, false)] {
        let found = prepared(&model, Truncation::Turns, with_last(bytes));
        if is_taken {
            assert_eq!(found.expect("a prompt").len(), bytes + 2);
        } else {
            assert_eq!(found.expect_err("long").code, "context_length_exceeded");
        }
    }
}

#[test]
fn template_that_rejects_a_shorter_conversation_is_asked_for_another() {
    let template = "{% if messages | length == 5 %}{{ raise_exception('five') }}{% endif %}\
        {% for m in messages %}{{ m.content }}{% endfor %}";
    let model = model(template, 100);
    let turn = |_| [message("user", &"u".repeat(15)), message("assistant", "")];
    let mut messages: Vec<Message> = (0..6).flat_map(turn).collect();
    messages.push(message("user", &"u".repeat(50)));
    // 80 have room for two turns before the last message, which are five messages.
    let found = prepared(&model, Truncation::Turns, conversation(messages)).expect("a prompt");
    assert_eq!(found.len(), 65);
}

#[test]
fn last_tokens_are_kept() {
    let model = model(TEMPLATE, 100);
    let bos = vocab::BOS;
    let long = || Prompt::Text("0123456789".repeat(20));
    let ids = |from: u32, count: u32| (from..from + count).collect::<Vec<u32>>();
    let keep = |truncation, prompt| prepared(&model, truncation, prompt);
    let kept = keep(Truncation::LastTokens(Some(3)), long()).expect("a prompt");
    assert_eq!(kept, "789");
    let kept = keep(Truncation::LastTokens(None), long()).expect("a prompt");
    assert_eq!(kept, "0123456789".repeat(8));
    let short = || Prompt::Text("abc".to_owned());
    let kept = keep(Truncation::LastTokens(Some(3)), short()).expect("a prompt");
    assert_eq!(kept, "abc");
    let error = keep(Truncation::LastTokens(Some(101)), short()).expect_err("above the context");
    assert_eq!(error.problems[0].field, "truncate_prompt_tokens");
    let error = keep(Truncation::LastTokens(Some(100)), long()).expect_err("no room");
    assert_eq!(error.code, "context_length_exceeded");
    for (most, bos, given, want) in [
        (3, None, ids(1, 9), ids(7, 3)),
        (
            3,
            Some(bos),
            [vec![bos], ids(1, 9)].concat(),
            vec![bos, 8, 9],
        ),
        (1, Some(bos), [vec![bos], ids(1, 9)].concat(), vec![9]),
        (3, Some(bos), ids(1, 9), ids(7, 3)),
        (9, Some(bos), ids(1, 9), ids(1, 9)),
    ] {
        let mut found = given.clone();
        keep_last(&mut found, (&[], &[]), most, bos);
        assert_eq!(found, want, "{most} of {given:?}");
    }
}

#[test]
fn counted_tokens_are_those_of_the_truncated_prompt() {
    let model = model(TEMPLATE, 100);
    let messages = vec![message("user", &"u".repeat(70)), message("user", "last")];
    let count = |truncation| {
        let ids = encoder(&model, truncation).prompt_ids(conversation(messages.clone()));
        ids.expect("ids").len()
    };
    assert_eq!(count(Truncation::Disabled), 77);
    assert_eq!(count(Truncation::Turns), 77);
    let long = vec![message("user", &"u".repeat(90)), message("user", "last")];
    let ids = encoder(&model, Truncation::Turns).prompt_ids(conversation(long.clone()));
    assert_eq!(ids.expect("ids").len(), "ulast>".len());
    let ids = encoder(&model, Truncation::Disabled).prompt_ids(conversation(long));
    assert_eq!(ids.expect("ids").len(), 97);
}

proptest! {
    #[test]
    fn fewest_turns_are_dropped(
        messages in prop::collection::vec(
            (prop::sample::select(vec!["system", "user", "assistant", "tool"]), 0usize..30),
            1..25,
        ),
        context_max in 30usize..300,
    ) {
        let model = model(TEMPLATE, context_max);
        let messages: Vec<Message> = messages
            .iter()
            .map(|(role, bytes)| message(role, &"x".repeat(*bytes)))
            .collect();
        let turns = DroppableTurns::of(&messages);
        let most = encoder(&model, Truncation::Turns).truncation.prompt_tokens_max(context_max);
        let plain = PromptEncoder::new(&model, 0);
        let ids = |dropped: usize| plain.prompt_ids(conversation(turns.kept(&messages, dropped)));
        let wanted = (0..=turns.count()).map(|dropped| ids(dropped).expect("ids"));
        let all: Vec<Vec<u32>> = wanted.collect();
        let fits = all.iter().find(|ids| ids.len() <= most);
        let want = fits.or_else(|| all.last().filter(|ids| ids.len() < context_max));
        let found = encoder(&model, Truncation::Turns)
            .prepare(vec![conversation(messages.clone())], false, ParseOptions::default());
        match want {
            Some(want) => {
                let found = found.expect("a prompt");
                prop_assert_eq!(&found[0].ids, want);
            }
            None => prop_assert_eq!(found.expect_err("too long").code, "context_length_exceeded"),
        }
    }
}

#[test]
fn text_that_no_context_holds_is_not_tokenized() {
    let user = |text: &str| PromptPiece::User(text.into());
    let template = |text: &str| PromptPiece::Template(text.to_owned());
    let texts = |prompt: Prompt| match prompt {
        Prompt::Text(text) => vec![text],
        Prompt::Pieces(pieces) => pieces
            .iter()
            .map(|piece| match piece {
                PromptPiece::Template(text) => text.clone(),
                PromptPiece::User(text) => text.to_string(),
                PromptPiece::Image(_) => String::new(),
            })
            .collect(),
        other => panic!("{other:?}"),
    };
    assert_eq!(texts(shortened(Prompt::Text("abcdé".into()), 4)), ["cdé"]);
    assert_eq!(texts(shortened(Prompt::Text("abcdé".into()), 1)), [""]);
    assert_eq!(texts(shortened(Prompt::Text("abc".into()), 3)), ["abc"]);
    let pieces = vec![
        template("<s>"),
        user("abcdef"),
        template("</s>"),
        user("gh"),
    ];
    assert_eq!(
        texts(shortened(Prompt::Pieces(pieces), 9)),
        ["<s>", "def", "</s>", "gh"]
    );
    let messages = vec![message("system", "abc"), message("user", "defg")];
    let then = Box::new(conversation(messages));
    let context = vec![1, 2];
    match shortened(Prompt::Continued { context, then }, 5) {
        Prompt::Continued { context, then } => match *then {
            Prompt::Conversation { messages, .. } => {
                let texts = messages.iter().map(|message| message.content.as_str());
                assert_eq!(texts.collect::<Vec<_>>(), [Some("c"), Some("defg")]);
                assert_eq!(context, [1, 2]);
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}
