//! Tools that are strict where the model calls when it likes, in families of every kind of writing: what is wrong is
//! bent until it is right, and what is no call is left alone.

use super::dialects::{DIALECTS, tools};
use super::forced::{streamed, validate};
use crate::support::named::call;
use crate::support::{Rig, config};
use serde_json::{Value, json};
use text::{AnswerFormat, ReasoningFamily, ToolFamily};

/// A family, a call as it writes it with the arguments in the middle, those as they should be and as they should not.
struct Case {
    family: ToolFamily,
    around: [&'static str; 2],
    right: &'static str,
    wrong: &'static str,
}

const RIGHT: &str = r#"{"city": "Rome", "days": 2}"#;
const WRONG: &str = r#"{"city": "Rome", "days": 99, "more": 1}"#;

#[rustfmt::skip]
const CASES: [Case; 9] = [
    Case { family: ToolFamily::Hermes, around: ["<tool_call>\n{\"name\": \"weather\", \"arguments\": ", "}\n</tool_call>"], right: RIGHT, wrong: WRONG },
    Case { family: ToolFamily::Llama3, around: ["<|python_tag|>{\"name\": \"weather\", \"parameters\": ", "}"], right: RIGHT, wrong: WRONG },
    Case { family: ToolFamily::Llama3, around: ["{\"name\": \"weather\", \"parameters\": ", "}"], right: RIGHT, wrong: WRONG },
    Case { family: ToolFamily::Mistral, around: ["[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": ", "}]"], right: RIGHT, wrong: WRONG },
    Case { family: ToolFamily::Mistral, around: ["[TOOL_CALLS]weather[ARGS]", ""], right: RIGHT, wrong: WRONG },
    Case {
        family: ToolFamily::Qwen3Coder, around: ["<tool_call>\n<function=weather>\n", "</function>\n</tool_call>"],
        right: "<parameter=city>\nRome\n</parameter>\n<parameter=days>\n2\n</parameter>\n",
        wrong: "<parameter=city>\nRome\n</parameter>\n<parameter=days>\n99\n</parameter>\n",
    },
    Case {
        family: ToolFamily::Glm, around: ["<tool_call>weather\n", "</tool_call>"],
        right: "<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n",
        wrong: "<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>ninety</arg_value>\n",
    },
    Case {
        family: ToolFamily::DeepSeek,
        around: ["<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>", "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"],
        right: RIGHT, wrong: WRONG,
    },
    Case { family: ToolFamily::Llama4, around: ["<|python_start|>[weather(", ")]<|python_end|>"], right: "city=\"Rome\", days=2", wrong: "city=\"Rome\", days=99" },
];

fn rig(family: ToolFamily) -> Rig {
    let format = AnswerFormat {
        tools: family,
        reasoning: ReasoningFamily::Think,
    };
    Rig::echoing(format, config())
}

fn strict() -> Value {
    let mut tools = tools();
    tools[0]["function"]["strict"] = json!(true);
    json!({"tools": tools})
}

#[test]
fn strict_tools_hold_in_every_family() {
    for case in &CASES {
        let rig = rig(case.family);
        let script = |args: &str| [case.around[0], args, case.around[1]].concat();
        let name = case.family.name();
        for dialect in [&DIALECTS[0], &DIALECTS[1], &DIALECTS[4]] {
            let right = streamed(&rig, dialect, &script(case.right), &strict());
            assert_eq!(
                (right.text.as_str(), right.calls.len()),
                ("", 1),
                "{name}: {right:?}"
            );
            assert_eq!(
                right.calls[0].2,
                json!({"city": "Rome", "days": 2}),
                "{name}"
            );
            assert_eq!(right.end, dialect.calls, "{name}");
            let bent = streamed(&rig, dialect, &script(case.wrong), &strict());
            assert_eq!(bent.calls.len(), 1, "{name}: {bent:?}");
            assert_eq!(bent.calls[0].1, "weather", "{name}");
            validate("weather", &bent.calls[0].2);
        }
        let thought = format!(
            "<think>{}</think>{}",
            script(case.wrong),
            script(case.right)
        );
        if !matches!(
            case.family,
            ToolFamily::Mistral | ToolFamily::DeepSeek | ToolFamily::Llama3 | ToolFamily::Llama4
        ) {
            let story = streamed(&rig, &DIALECTS[0], &thought, &strict());
            assert_eq!(
                (story.reasoning.as_str(), story.calls.len()),
                (script(case.wrong).as_str(), 1),
                "{name}"
            );
        }
    }
}

#[test]
fn text_outside_calls_is_unconstrained() {
    let answers = [
        (ToolFamily::Hermes, "a {\"name\": \"weather\"} b <tool_cal"),
        (
            ToolFamily::Llama3,
            "{\"capital\": \"Rome\", \"name\": \"weather\", \"parameters\": 1}",
        ),
        (ToolFamily::Llama3, "It is {\"name\": \"weather\"}"),
        (ToolFamily::Llama4, "[1, 2, weather(x)]"),
        (ToolFamily::Llama4, "[weather, now]"),
        (ToolFamily::Json, "[[1], {\"name\": 2}]"),
        (ToolFamily::Json, "```json\n{\"x\": 1}\n```"),
        (ToolFamily::Mistral, "[TOOL_CALL] is a word"),
        (ToolFamily::Qwen3Coder, "a <function> and <funct"),
    ];
    for (family, text) in answers {
        let rig = rig(family);
        let story = streamed(&rig, &DIALECTS[0], text, &strict());
        assert_eq!(
            (story.text.as_str(), story.calls.len()),
            (text, 0),
            "{}",
            family.name()
        );
        rig.wait_until_empty();
    }
}

#[test]
fn schema_unsupported_by_a_family_is_rejected_with_its_path() {
    let rig = rig(ToolFamily::Glm);
    let parameters =
        json!({"type": "object", "properties": {"x": {"type": "string", "pattern": "^a"}}});
    let tool = |strict: bool| json!({"type": "function", "function": {"name": "f", "strict": strict, "parameters": parameters}});
    let ask = |strict| {
        let other = json!({"type": "function", "function": {"name": "g"}});
        let body = DIALECTS[0].body("x", &json!({"tools": [other, tool(strict)]}));
        call(&rig, "POST", DIALECTS[0].path, "", &body)
    };
    let reply = ask(true);
    let error = reply.json();
    assert_eq!(reply.head.status, 400, "{error}");
    assert_eq!(error["error"]["code"], "invalid_json_schema", "{error}");
    assert_eq!(error["error"]["param"], "tools[1]", "{error}");
    let message = error["error"]["message"].as_str().expect("words");
    assert!(message.contains("parameters.properties.x"), "{message}");
    assert_eq!(ask(false).head.status, 200);
    rig.wait_until_empty();
}
