//! Unusual answers that models write, with labels.

use super::dialects::DIALECTS;
use text::AnswerFormat;

/// A text and its expected parts.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) label: String,
    pub(crate) format: AnswerFormat,
    pub(crate) in_reasoning: bool,
    pub(crate) text: String,
    pub(crate) want: String,
}

/// Label, family, text, expected parts.
pub(crate) type Row = (&'static str, &'static str, &'static str, &'static str);

pub(crate) fn rows(rows: &[Row], in_reasoning: bool) -> Vec<Case> {
    rows.iter()
        .map(|&(label, dialect, text, want)| Case {
            label: format!("{dialect}: {label}"),
            format: DIALECTS.iter().find(|d| d.label == dialect).unwrap().format,
            in_reasoning,
            text: text.to_owned(),
            want: want.to_owned(),
        })
        .collect()
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = rows(OPEN, true);
    cases.extend(rows(HERMES, false));
    cases.extend(rows(XML, false));
    cases
}

/// Cases whose prompt opened the reasoning.
const OPEN: &[Row] = &[
    (
        "opened by the prompt",
        "hermes",
        "Hm.\n</think>\n\nYes.",
        "think \"Hm.\" text \"Yes.\"",
    ),
    (
        "never closed",
        "hermes",
        "\nHm. And so on",
        "think \"Hm. And so on\"",
    ),
    (
        "opened twice",
        "hermes",
        "<think>\nHm.</think>Yes.",
        "think \"Hm.\" text \"Yes.\"",
    ),
    (
        "no thought at all",
        "hermes",
        "\n\n</think>\n\nYes.",
        "text \"Yes.\"",
    ),
    (
        "a call after it",
        "hermes",
        "Hm.</think><tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
        "think \"Hm.\" now({})",
    ),
    (
        "a call thought of is none",
        "hermes",
        "I could <tool_call>{\"name\": \"now\"}</tool_call></think>No.",
        "think \"I could <tool_call>{\\\"name\\\": \\\"now\\\"}</tool_call>\" text \"No.\"",
    ),
    (
        "a control token ends what was not closed",
        "kimi-k2",
        "Look.<|tool_calls_section_begin|><|tool_call_begin|>functions.now:3<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        "think \"Look.\" now({})",
    ),
];

const HERMES: &[Row] = &[
    (
        "text after the call",
        "hermes",
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\nDone.",
        "now({}) text \"Done.\"",
    ),
    (
        "text between calls",
        "hermes",
        "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call> And <tool_call>{\"name\": \"put\", \"arguments\": {\"s\": \"x\"}}</tool_call>",
        "now({}) text \"And\" put({\"s\":\"x\"})",
    ),
    (
        "arguments before the name",
        "hermes",
        "<tool_call>{\"arguments\": {\"s\": \"x\"}, \"name\": \"put\"}</tool_call>",
        "put({\"s\":\"x\"})",
    ),
    (
        "arguments as a string",
        "hermes",
        "<tool_call>{\"name\": \"put\", \"arguments\": \"{\\\"s\\\": \\\"x\\\"}\"}</tool_call>",
        "put({\"s\":\"x\"})",
    ),
    (
        "no arguments field",
        "hermes",
        "<tool_call>{\"name\": \"now\"}</tool_call>",
        "now({})",
    ),
    (
        "null for arguments",
        "hermes",
        "<tool_call>{\"name\": \"now\", \"arguments\": null}</tool_call>",
        "now({})",
    ),
    (
        "the shape of the API",
        "hermes",
        "<tool_call>{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"now\", \"arguments\": {}}}</tool_call>",
        "now#c1({})",
    ),
    (
        "the closing tag is missing",
        "hermes",
        "<tool_call>{\"name\": \"now\", \"arguments\": {}}\n<tool_call>{\"name\": \"now\", \"arguments\": {}}",
        "now({}) now({})",
    ),
    (
        "no JSON",
        "hermes",
        "<tool_call>now please</tool_call>",
        "text \"<tool_call>now please</tool_call>\"",
    ),
    (
        "no name",
        "hermes",
        "<tool_call>{\"arguments\": {}}</tool_call>",
        "text \"<tool_call>{\\\"arguments\\\": {}}</tool_call>\"",
    ),
    (
        "cut short in the head",
        "hermes",
        "Well. <tool_call>{\"name\": \"no",
        "text \"Well. <tool_call>{\\\"name\\\": \\\"no\"",
    ),
    (
        "cut short in the arguments",
        "hermes",
        "<tool_call>{\"name\": \"put\", \"arguments\": {\"s\": \"ab",
        "put(BROKEN \"{\\\"s\\\": \\\"ab\")",
    ),
    (
        "breaks off in the arguments",
        "hermes",
        "<tool_call>{\"name\": \"put\", \"arguments\": {\"s\": ?}}</tool_call>",
        "put(BROKEN \"{\\\"s\\\": \") text \"?}}</tool_call>\"",
    ),
    (
        "Python's words and quotes",
        "hermes",
        "<tool_call>{'name': 'put', 'arguments': {'b': True, 'u': None, 's': 'it\\'s \"x\"'}}</tool_call>",
        "put({\"b\":true,\"u\":null,\"s\":\"it's \\\"x\\\"\"})",
    ),
    (
        "a line end in a string",
        "hermes",
        "<tool_call>{\"name\": \"put\", \"arguments\": {\"s\": \"a\nb\"}}</tool_call>",
        "put({\"s\":\"a\\nb\"})",
    ),
    (
        "an escape that is none",
        "hermes",
        "<tool_call>{\"name\": \"put\", \"arguments\": {\"s\": \"\\d+ \\u00zz\"}}</tool_call>",
        "put({\"s\":\"\\\\d+ \\\\u00zz\"})",
    ),
    (
        "half a marker",
        "hermes",
        "a < b, <tool and <tool_cal but </tool_call>",
        "text \"a < b, <tool and <tool_cal but </tool_call>\"",
    ),
    (
        "a marker right after half of one",
        "hermes",
        "<tool_<tool_call>{\"name\": \"now\"}</tool_call>",
        "text \"<tool_\" now({})",
    ),
    (
        "blanks at both ends",
        "hermes",
        "  yes \n",
        "text \"  yes \\n\"",
    ),
    (
        "a thought in the middle is text",
        "hermes",
        "The <think> tag",
        "text \"The <think> tag\"",
    ),
    ("nothing", "hermes", "", ""),
    (
        "other fields",
        "hermes",
        "<tool_call>{\"index\": 0, \"name\": \"now\", \"x\": [1, {}], \"arguments\": {}, \"y\": 1}</tool_call>",
        "now({})",
    ),
];

const XML: &[Row] = &[
    (
        "without the outer tag",
        "qwen3-coder",
        "<function=now>\n</function>\n</tool_call>",
        "now({})",
    ),
    (
        "a typed value of no known type",
        "qwen3-coder",
        "<tool_call><function=put><parameter=any>\n[1, 2]\n</parameter><parameter=other>\nabc\n</parameter></function></tool_call>",
        "put({\"any\":[1,2],\"other\":\"abc\"})",
    ),
    (
        "Python in a typed value",
        "qwen3-coder",
        "<function=put><parameter=b>\nTrue\n</parameter><parameter=o>\n{'a': None}\n</parameter></function>",
        "put({\"b\":true,\"o\":{\"a\":null}})",
    ),
    (
        "a number that is none",
        "qwen3-coder",
        "<function=put><parameter=i>\nabout 5\n</parameter></function>",
        "put({\"i\":\"about 5\"})",
    ),
    (
        "line ends of the value's own",
        "qwen3-coder",
        "<function=put><parameter=s>\n\nx\n\n</parameter></function>",
        "put({\"s\":\"\\nx\\n\"})",
    ),
    (
        "half a closing tag in the value",
        "qwen3-coder",
        "<function=put><parameter=s>\na</param\n</parameterx>\n</parameter></function>",
        "put({\"s\":\"a</param\\n</parameterx>\"})",
    ),
    (
        "a function that is talked about",
        "qwen3-coder",
        "Write <function=name> first.",
        "text \"Write <function=name> first.\"",
    ),
    (
        "an empty section",
        "qwen3-coder",
        "<tool_call>\n</tool_call>",
        "text \"<tool_call>\\n</tool_call>\"",
    ),
    (
        "cut short in a value",
        "qwen3-coder",
        "<tool_call>\n<function=put>\n<parameter=s>\nab",
        "put(BROKEN \"{\\\"s\\\": \\\"ab\")",
    ),
    (
        "no line end after the name",
        "glm",
        "<tool_call>put<arg_key>s</arg_key><arg_value> a\nb </arg_value></tool_call>",
        "put({\"s\":\" a\\nb \"})",
    ),
    (
        "without arguments on one line",
        "glm",
        "<tool_call>now</tool_call>Done.",
        "now({}) text \"Done.\"",
    ),
    (
        "not a name",
        "glm",
        "<tool_call>hello there!</tool_call>",
        "text \"<tool_call>hello there!</tool_call>\"",
    ),
];
