//! A conversation as Claude Code sends it: the first line of `system` differs in every request, and cached prompts are
//! found all the same.
//!
//! Promise (APIs): Claude Code's billing line, which differs in each request, is removed from the prompt, in `system`
//! as a string and as blocks, so that cached prompts are found; other text is untouched.
//! Also held by `wire/src/anthropic/conversation.rs`.

use crate::support::client::post;
use crate::support::{Rig, config, fake};
use engine::fake::FakeConfig;
use model::Dims;
use serde_json::{Value, json};

const IDENTITY: &str = "You are Claude Code, Anthropic's official CLI for Claude.";
const INSTRUCTIONS: &str = "You are an interactive agent that helps users with software engineering tasks.\n\
    # Tone\n - Your responses should be short and concise.\n\
    # Doing tasks\n - In general, do not propose changes to code you haven't read.\n\
    # Environment\n - Primary working directory: /src/mill\n - Is a git repository: true\n";
/// Values that differ: the end of the version, and the hash.
const DIFFERING: [(&str, &str); 4] = [
    ("01c", "36ee5"),
    ("7b4", "0aaa9"),
    ("48f", "71fea"),
    ("01c", "eb6c6"),
];
/// Tokens of a page of the cache.
const PAGE: u64 = 16;

/// How `system` is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// Blocks, without the line.
    Plain,
    /// A string, without the line.
    PlainText,
    /// The line is the first block.
    FirstBlock,
    /// The line is the first line of a string.
    FirstLine,
}

impl Form {
    fn system(self, request: usize) -> Value {
        let (version, hash) = DIFFERING[request];
        let line = format!(
            "x-anthropic-billing-header: cc_version=2.1.177.{version}; cc_entrypoint=cli; cch={hash};"
        );
        let cached = json!({"type": "ephemeral"});
        let text = |text: &str| json!({"type": "text", "text": text, "cache_control": cached});
        match self {
            Self::Plain => json!([text(IDENTITY), text(INSTRUCTIONS)]),
            Self::PlainText => json!(format!("{IDENTITY}\n{INSTRUCTIONS}")),
            Self::FirstBlock => json!([
                {"type": "text", "text": line}, text(IDENTITY), text(INSTRUCTIONS),
            ]),
            Self::FirstLine => json!(format!("{line}\n{IDENTITY}\n{INSTRUCTIONS}")),
        }
    }
}

/// Messages added to the conversation before each request: a question, results of tools, a further question.
fn turns() -> [Value; 4] {
    let call = |id: &str, command: &str| {
        json!({"role": "assistant", "content": [
            {"type": "text", "text": "I look at the repository."},
            {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": command}},
        ]})
    };
    let result = |id: &str, text: &str| {
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": text}]},
        ]})
    };
    [
        json!([{"role": "user", "content": [
            {"type": "text", "text": "<system-reminder>\nToday's date is 2026-11-24.\n</system-reminder>"},
            {"type": "text", "text": "Why does the wheel stand still?"},
        ]}]),
        json!([
            call("toolu_01", "git status"),
            result(
                "toolu_01",
                "On branch main\nnothing to commit, working tree clean\n"
            ),
        ]),
        json!([
            call("toolu_02", "cat sluice.txt"),
            result("toolu_02", "The sluice is shut from November on.\n"),
        ]),
        json!([
            {"role": "assistant", "content": [{"type": "text", "text": "The sluice is shut."}]},
            {"role": "user", "content": [{"type": "text", "text":
                "What is the line x-anthropic-billing-header: cch=1; about?"}]},
        ]),
    ]
}

/// Input tokens that were read from the cache, the others, and what `count_tokens` said, of each request.
fn counts(rig: &Rig, form: Form) -> Vec<[u64; 3]> {
    let mut messages = Vec::new();
    let mut counts = Vec::new();
    for (i, turn) in turns().into_iter().enumerate() {
        messages.extend(turn.as_array().cloned().unwrap_or_default());
        let mut body = json!({"system": form.system(i), "messages": messages});
        let counted = post(rig.addr, "/v1/messages/count_tokens", &body).json();
        body["max_tokens"] = json!(1);
        body["cache_salt"] = json!(format!("{form:?}"));
        let answered = post(rig.addr, "/v1/messages", &body).json();
        let count = |place: &str| {
            let count = answered.pointer(place).and_then(Value::as_u64);
            count.unwrap_or_else(|| panic!("{answered}"))
        };
        counts.push([
            count("/usage/cache_read_input_tokens"),
            count("/usage/input_tokens"),
            counted["input_tokens"].as_u64().unwrap_or_default(),
        ]);
    }
    counts
}

#[test]
fn differing_billing_line_leaves_cached_prompts_usable() {
    let small = fake();
    let dims = Dims {
        context_max: 4096,
        ..small.dims
    };
    let rig = Rig::with(FakeConfig { dims, ..small }, config());
    let plain = counts(&rig, Form::Plain);
    for form in [Form::PlainText, Form::FirstBlock, Form::FirstLine] {
        assert_eq!(counts(&rig, form), plain, "{form:?}");
    }
    let mut before = 0;
    for [cached, rest, counted] in plain {
        assert_eq!(cached + rest, counted);
        // All full pages of the request before.
        assert_eq!(cached, before / PAGE * PAGE);
        before = counted;
    }
    rig.wait_until_empty();
}
