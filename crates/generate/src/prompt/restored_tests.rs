//! Prompts that are prepared, recorded as JSON, and restored: ids, texts and parsers are equal.
//!
//! Promise (Descriptions of streams): a restored prompt has the ids, the text and the parser of the prompt that was
//! recorded, for every tool family and template.

#[path = "../../../text/tests/it/answers/dialects.rs"]
#[expect(dead_code, reason = "labels are for other tests")]
mod dialects;
#[path = "../../../text/tests/it/answers/scenarios.rs"]
mod scenarios;

use super::*;
use crate::model_handle::ModelHandle;
use crate::request::{Prompt, PromptPiece};
use crate::request_record::PromptRecord;
use crate::tools::ToolCalling;
use engine::fake::{FakeConfig, FakeModel};
use engine::{Engine, EngineConfig};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Instant;
use stream::PoolLimits;
use testing::small_vocabulary as vocab;
use text::{
    AnswerFormat, AnswerParser, AnswerParts, ChatTemplate, Message, ReasoningFamily, Tokenizer,
    ToolFamily,
};

const TEMPLATES: [&str; 5] = [
    include_str!("../../../text/tests/templates/brackets.jinja"),
    include_str!("../../../text/tests/templates/chatml_tools.jinja"),
    include_str!("../../../text/tests/templates/headers.jinja"),
    include_str!("../../../text/src/template/fallback.jinja"),
    // The prompt opens the reasoning.
    "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}<think>\n",
];

/// The prompt ends in a Harmony header.
const CHANNELS: &str = "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>\
    {% endfor %}{{ tools }}<|start|>assistant";

#[expect(clippy::disallowed_methods, reason = "an epoch for the engine")]
pub(in crate::prompt) fn model(
    template: &str,
    answers: AnswerFormat,
    tokenizer: Arc<Tokenizer>,
) -> ModelHandle {
    let config = FakeConfig::default();
    let context_max = config.dims.context_max;
    let engine = Engine::new(
        Box::new(FakeModel::new(config)),
        EngineConfig::default(),
        Instant::now(),
    );
    let template = ChatTemplate::new(template, "<|bos|>", "<|eos|>").expect("a template");
    let limits = PoolLimits { segments_max: 1 };
    ModelHandle {
        context_max: context_max.max(1 << 16),
        answers,
        capabilities: template.capabilities(answers),
        ..ModelHandle::new(
            engine.expect("bounds").handle(),
            tokenizer,
            template,
            &[vocab::EOS],
            limits,
        )
    }
}

fn conversation(tools: &[Value], continues: bool) -> Prompt {
    let message = |role: &str, text: &str| Message {
        role: role.to_owned(),
        content: Value::String(text.to_owned()),
        rest: Map::new(),
    };
    let mut messages = vec![message("user", "hello \u{20AC}\u{1F600} <|eos|>?")];
    if continues {
        messages.push(message("assistant", "The ("));
    }
    let kwargs = json!({"thinking": true, "temperature": 0.1});
    Prompt::Conversation {
        field: "messages",
        messages,
        tools: tools.to_vec(),
        continues,
        kwargs: kwargs.as_object().expect("an object").clone(),
    }
}

fn tools() -> Vec<Value> {
    let names = ["get_weather", "now", "put"];
    let tool = |name: &&str| {
        json!({"type": "function", "function": {"name": name, "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}, "a": {"default": 0.1}}}}})
    };
    names.iter().map(tool).collect()
}

/// All parts of an answer, which is pushed in pieces.
fn parts_of(mut parser: AnswerParser, answer: &str) -> String {
    let mut parts = AnswerParts::default();
    for piece in answer.split_inclusive([' ', '<', '"']) {
        parser.push(piece, &mut parts);
    }
    parser.finish(&mut parts);
    format!("{:?}", parts.iter().collect::<Vec<_>>())
}

/// The words of the debug output, in an order that does not depend on hash maps.
fn sorted_words(reading: &ParserConfig) -> Vec<String> {
    let debug = format!("{reading:?}");
    let mut words: Vec<String> = debug
        .split([' ', ',', '{', '}'])
        .map(str::to_owned)
        .collect();
    words.sort_unstable();
    words
}

/// Prepares a prompt, restores the prompt from JSON, and compares both.
fn check_restored(model: &ModelHandle, prompt: Prompt, wanted: ParseOptions, answers: &[String]) {
    let encoder = PromptEncoder::new(model, 1_753_600_000);
    let Ok(prepared) = encoder.prepare(vec![prompt], true, wanted) else {
        // A template without a place for tools or for a continued message.
        return;
    };
    let prepared = &prepared[0];
    let json = serde_json::to_string(&prepared.to_record()).expect("JSON");
    let record: PromptRecord = serde_json::from_str(&json).expect("a record");
    assert_eq!(record, prepared.to_record());
    // Another process renders no template.
    let restored = PromptEncoder::new(model, 0).restore(record, wanted);
    let restored = restored.expect("a prompt");
    assert_eq!(restored.ids, prepared.ids);
    assert_eq!(restored.at_text_start, prepared.at_text_start);
    assert_eq!(restored.echo_text, prepared.echo_text);
    assert_eq!(restored.to_record(), prepared.to_record());
    assert_eq!(
        sorted_words(&restored.reading),
        sorted_words(&prepared.reading)
    );
    for answer in answers {
        let (first, second) = (prepared.reading.parser(), restored.reading.parser());
        assert_eq!(parts_of(first, answer), parts_of(second, answer));
    }
}

fn check_family(format: AnswerFormat, answers: &[String]) {
    for template in TEMPLATES.into_iter().chain([CHANNELS]) {
        let tokenizer = if template == CHANNELS {
            vocab::in_channels()
        } else {
            vocab::tokenizer()
        };
        let model = model(template, format, tokenizer);
        for bits in 0..16 {
            let flag = |bit: u32| bits & 1 << bit != 0;
            let wanted = ParseOptions {
                tool_calling: ToolCalling {
                    required: flag(0),
                    single_call: flag(1),
                },
                structured_output: flag(2),
            };
            let tools = if flag(3) { tools() } else { Vec::new() };
            check_restored(&model, conversation(&tools, false), wanted, answers);
            check_restored(&model, conversation(&tools, true), wanted, &[]);
            let continued = Prompt::Continued {
                context: vec![vocab::BOS, 65, 66],
                then: Box::new(conversation(&tools, false)),
            };
            check_restored(&model, continued, wanted, &[]);
        }
    }
}

#[test]
fn restored_conversations_are_parsed_equally() {
    let scenarios = scenarios::all();
    for dialect in dialects::DIALECTS {
        let render = |(_, said): &(_, Vec<_>)| (dialect.render)(said);
        let answers: Vec<String> = scenarios.iter().map(render).collect();
        check_family(dialect.format, &answers);
    }
    for (_, tools) in ToolFamily::all() {
        let reasoning = ReasoningFamily::Think;
        check_family(AnswerFormat { tools, reasoning }, &[]);
    }
}

#[test]
fn restored_plain_prompts_have_the_default_parser() {
    let format = AnswerFormat {
        tools: ToolFamily::Hermes,
        reasoning: ReasoningFamily::Think,
    };
    let model = model(TEMPLATES[0], format, vocab::tokenizer());
    let wanted = ParseOptions::default();
    let answers = ["<think>a</think> b <tool_call>{\"name\": \"now\"}</tool_call>".to_owned()];
    let pieces = vec![
        PromptPiece::Template("<|bos|>hello".to_owned()),
        PromptPiece::User("<|eos|>".into()),
    ];
    let prompts = [
        Prompt::Pieces(pieces),
        Prompt::Text("hello world".to_owned()),
        Prompt::Ids(vec![vocab::BOS, vocab::WORD]),
        Prompt::Ids(vec![vocab::BOS]),
    ];
    for prompt in prompts {
        let encoder = PromptEncoder::new(&model, 0);
        let prepared = encoder.prepare(vec![prompt.clone()], false, wanted);
        let record = prepared.expect("a prompt")[0].to_record();
        assert_eq!((record.text, record.tools), (None, Vec::new()));
        check_restored(&model, prompt, wanted, &answers);
    }
}

#[test]
fn recorded_ids_outside_the_model_are_rejected() {
    let model = model(TEMPLATES[0], AnswerFormat::default(), vocab::tokenizer());
    let vocab_size = u32::try_from(model.tokenizer.vocab_size()).expect("small");
    let restore = |ids: Vec<u32>| {
        let record = PromptRecord {
            ids,
            ..PromptRecord::default()
        };
        let restored = PromptEncoder::new(&model, 0).restore(record, ParseOptions::default());
        restored.map(|prompt| prompt.ids.len()).map_err(|e| e.code)
    };
    assert_eq!(restore(vec![vocab_size - 1]), Ok(1));
    for ids in [vec![], vec![vocab_size], vec![u32::MAX]] {
        assert!(restore(ids).is_err());
    }
    let context_max = model.context_max;
    assert_eq!(restore(vec![1; context_max - 1]), Ok(context_max - 1));
    assert!(restore(vec![1; context_max]).is_err());
}
