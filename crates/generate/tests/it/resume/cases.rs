//! Requests whose answers are cut and resumed.

use crate::support::Case;
use engine::{EngineConfig, SamplingParams, Speculation};
use generate::model_handle::AdapterUse;
use generate::request::{GenerationParams, Prompt, ResponseFormat};
use generate::tools::{ToolChoice, Tools};
use serde_json::{Value, json};
use text::{AnswerFormat, GrammarSource, Message, ReasoningFamily, ToolFamily};

fn text() -> Vec<Prompt> {
    vec![Prompt::Text("some words first".to_owned())]
}

fn two_texts() -> Vec<Prompt> {
    let prompt = |text: &str| Prompt::Text(text.to_owned());
    vec![prompt("some words first"), prompt("other words")]
}

fn conversation_with(tools: Vec<Value>) -> Vec<Prompt> {
    let message = Message {
        role: "user".to_owned(),
        content: "hello".into(),
        rest: serde_json::Map::new(),
    };
    vec![Prompt::Conversation {
        field: "messages",
        messages: vec![message],
        tools,
        continues: false,
        kwargs: serde_json::Map::new(),
    }]
}

fn conversation() -> Vec<Prompt> {
    conversation_with(Vec::new())
}

fn conversation_with_tools() -> Vec<Prompt> {
    conversation_with(tools())
}

fn tools() -> Vec<Value> {
    let parameters = json!({"type": "object", "properties": {
        "city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 0, "maximum": 9},
    }, "required": ["city", "days"], "additionalProperties": false});
    vec![json!({"type": "function",
        "function": {"name": "weather", "strict": true, "parameters": parameters}})]
}

fn with_tools(choice: &ToolChoice, once: bool, params: GenerationParams) -> GenerationParams {
    let mut params = params;
    let tools = Tools::new(tools(), choice, once).expect("the tool");
    params.take_tools(tools);
    params
}

fn schema() -> ResponseFormat {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "integer", "maximum": 5}, "b": {"enum": ["x", "yy"]},
    }, "required": ["a", "b"], "additionalProperties": false});
    ResponseFormat {
        source: GrammarSource::JsonSchema(schema),
        field: "response_format".to_owned(),
    }
}

fn greedy() -> SamplingParams {
    SamplingParams {
        temperature: 0.0,
        logprobs: true,
        ..SamplingParams::default()
    }
}

pub(crate) fn sampled() -> SamplingParams {
    SamplingParams {
        temperature: 0.9,
        repetition_penalty: 1.1,
        presence_penalty: 0.4,
        frequency_penalty: 0.2,
        penalty_window: 9,
        top_logprobs: 3,
        ..greedy()
    }
}

pub(crate) fn params(sampling: SamplingParams, max_tokens: usize) -> GenerationParams {
    GenerationParams {
        sampling,
        max_tokens: Some(max_tokens),
        ..GenerationParams::default()
    }
}

fn dry_and_xtc() -> GenerationParams {
    let sampling = SamplingParams {
        dry_multiplier: 0.5,
        dry_allowed_length: 1,
        xtc_probability: 0.5,
        xtc_threshold: 0.05,
        ..sampled()
    };
    GenerationParams {
        dry_sequence_breakers: vec!["x".to_owned(), "ST".to_owned()],
        ..params(sampling, 20)
    }
}

pub(crate) fn plain(label: &'static str, params: GenerationParams) -> Case {
    Case {
        label,
        answers: AnswerFormat::default(),
        script: "",
        prompts: text,
        params,
        n: 1,
        eos_probability: 0.0,
        engine: EngineConfig::default(),
    }
}

fn adapters() -> Vec<AdapterUse> {
    let used = |(name, scale): (&str, f32)| AdapterUse {
        name: name.into(),
        scale,
    };
    [("three", 0.25), ("one", -1.0)].map(used).into()
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
pub(crate) fn sampled_cases() -> Vec<Case> {
    let min_tokens = SamplingParams {
        min_tokens: 9,
        ..sampled()
    };
    let speculating = EngineConfig {
        speculation: Speculation::PromptLookup,
        ..EngineConfig::default()
    };
    vec![
        plain("greedy", params(greedy(), 14)),
        Case {
            n: 3,
            prompts: two_texts,
            eos_probability: 0.08,
            ..plain("sampled with penalties", params(sampled(), 16))
        },
        Case {
            n: 2,
            ..plain(
                "adapters",
                GenerationParams {
                    lora: adapters(),
                    ..params(sampled(), 12)
                },
            )
        },
        Case {
            n: 3,
            eos_probability: 0.3,
            ..plain("min_tokens", params(min_tokens, 16))
        },
        Case {
            n: 2,
            engine: speculating,
            script: "abcabcabcabcabc",
            ..plain("speculation", params(sampled(), 20))
        },
        Case {
            n: 2,
            script: "abcabcabcabcabc",
            ..plain("DRY and XTC", dry_and_xtc())
        },
        Case {
            n: 2,
            script: "hello STSTOP and more",
            ..plain(
                "stop strings",
                GenerationParams {
                    stops: vec!["STSTST".to_owned(), "STOP".to_owned()],
                    ..params(sampled(), 20)
                },
            )
        },
        Case {
            n: 2,
            script: "hello STSTOP and more",
            ..plain(
                "prompt_logprobs",
                GenerationParams {
                    stops: vec!["STOP".to_owned(), "first".to_owned()],
                    prompt_logprobs: true,
                    ..params(
                        SamplingParams {
                            min_tokens: 3,
                            ..sampled()
                        },
                        12,
                    )
                },
            )
        },
    ]
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
pub(crate) fn constrained_cases() -> Vec<Case> {
    let think = AnswerFormat {
        tools: ToolFamily::Hermes,
        reasoning: ReasoningFamily::Think,
    };
    let with_schema = |sampling| GenerationParams {
        response_format: Some(schema()),
        ..params(sampling, 60)
    };
    let call = "so <tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 99}}\n</tool_call> and";
    vec![
        Case {
            n: 2,
            script: r#"{"a": 17, "b": "z"}"#,
            ..plain("JSON schema", with_schema(sampled()))
        },
        Case {
            script: r#"{"a": 3, "b": "yy"}"#,
            ..plain("JSON schema, greedy", with_schema(greedy()))
        },
        Case {
            answers: think,
            prompts: conversation_with_tools,
            script: call,
            ..plain(
                "strict tools",
                with_tools(&ToolChoice::Auto, false, params(greedy(), 110)),
            )
        },
        Case {
            answers: think,
            prompts: conversation_with_tools,
            script: call,
            ..plain(
                "strict tools, one call",
                with_tools(&ToolChoice::Auto, true, params(sampled(), 90)),
            )
        },
        Case {
            answers: think,
            prompts: conversation_with_tools,
            script: r#"[{"name": "weather", "parameters": {"city": "Rome", "days": 2}}]"#,
            ..plain(
                "required tools",
                with_tools(&ToolChoice::Required, false, params(greedy(), 90)),
            )
        },
        Case {
            n: 2,
            answers: think,
            prompts: conversation,
            script: r#"<think>well well well</think>{"a": 1, "b": "x"}"#,
            ..plain(
                "reasoning budget",
                GenerationParams {
                    reasoning_budget: Some(6),
                    ..with_schema(sampled())
                },
            )
        },
        Case {
            answers: AnswerFormat {
                tools: ToolFamily::None,
                reasoning: ReasoningFamily::Granite,
            },
            prompts: conversation,
            script: r#"Here is my thought process:well well{"a": 1, "b": "x"}"#,
            ..plain(
                "reasoning budget of text delimiters",
                GenerationParams {
                    reasoning_budget: Some(6),
                    ..with_schema(greedy())
                },
            )
        },
        Case {
            answers: AnswerFormat {
                tools: ToolFamily::Harmony,
                ..AnswerFormat::default()
            },
            prompts: conversation,
            script: r#"<|channel|>analysis<|message|>well well{"a": 1, "b": "x"}"#,
            ..plain(
                "channels",
                GenerationParams {
                    reasoning_budget: Some(6),
                    ..with_schema(sampled())
                },
            )
        },
    ]
}
