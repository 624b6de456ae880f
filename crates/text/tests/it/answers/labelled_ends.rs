//! Calls truncated in the head or in the arguments, and malformed calls, for each family without such cases
//! of its own.

use super::labelled::{Case, Row, rows};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = rows(CUT, false);
    cases.extend(rows(MALFORMED, false));
    cases
}

#[rustfmt::skip]
const CUT: &[Row] = &[
    ("cut short in the head", "llama3", "<|python_tag|>{\"name\": \"pu", "text \"<|python_tag|>{\\\"name\\\": \\\"pu\""),
    ("cut short in the arguments", "llama3", "<|python_tag|>{\"name\": \"put\", \"parameters\": {\"s\": \"ab", "put(BROKEN \"{\\\"s\\\": \\\"ab\")"),
    ("cut short in the head", "llama3 function", "So. <function=pu", "text \"So. <function=pu\""),
    ("cut short in the arguments", "llama3 function", "<function=put>{\"s\": \"ab", "put(BROKEN \"{\\\"s\\\": \\\"ab\")"),
    ("cut short in the head", "llama4", "<|python_start|>[pu", "text \"<|python_start|>[pu\""),
    ("cut short in the arguments", "llama4", "<|python_start|>[put(s='ab", "put(BROKEN \"{\\\"s\\\": \\\"ab\")"),
    ("cut short in the head", "mistral", "So. [TOOL_CALLS]pu", "text \"So. [TOOL_CALLS]pu\""),
    ("cut short in the arguments", "mistral", "[TOOL_CALLS]put[ARGS]{\"s\": \"ab", "put(BROKEN \"{\\\"s\\\": \\\"ab\")"),
    ("cut short in the head", "mistral before v11", "[TOOL_CALLS] [{\"name\": \"pu", "text \"[TOOL_CALLS] [{\\\"name\\\": \\\"pu\""),
    ("cut short in the arguments", "mistral before v11", "[TOOL_CALLS] [{\"name\": \"put\", \"arguments\": {\"s\": \"ab", "put(BROKEN \"{\\\"s\\\": \\\"ab\")"),
    ("cut short in the head", "magistral", "[THINK]Put it.[/THINK][TOOL_CALLS]pu", "think \"Put it.\" text \"[TOOL_CALLS]pu\""),
    ("cut short in the arguments", "magistral", "[THINK]Put it.[/THINK][TOOL_CALLS]put[ARGS]{\"s\": \"ab", "think \"Put it.\" put(BROKEN \"{\\\"s\\\": \\\"ab\")"),
    ("cut short in the head", "deepseek v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>pu", "text \"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>pu\""),
    ("cut short in the arguments", "deepseek v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>put\n```json\n{\"s\": \"ab", "put(BROKEN \"{\\\"s\\\": \\\"ab\")"),
    ("cut short in the head", "deepseek v3.1", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>pu", "text \"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>pu\""),
    ("cut short in the arguments", "deepseek v3.1", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>put<｜tool▁sep｜>{\"s\": \"ab", "put(BROKEN \"{\\\"s\\\": \\\"ab\")"),
    ("cut short in the head", "phi4", "<|tool_call|>[{\"name\": \"pu", "text \"<|tool_call|>[{\\\"name\\\": \\\"pu\""),
    ("cut short in the arguments", "phi4", "<|tool_call|>[{\"name\": \"put\", \"arguments\": {\"s\": \"ab", "put(BROKEN \"{\\\"s\\\": \\\"ab\")"),
    ("cut short in the head", "granite", "<|tool_call|>[{\"name\": \"pu", "text \"<|tool_call|>[{\\\"name\\\": \\\"pu\""),
    ("cut short in the arguments", "granite", "<|tool_call|>[{\"name\": \"put\", \"arguments\": {\"s\": \"ab", "put(BROKEN \"{\\\"s\\\": \\\"ab\")"),
    ("cut short in the head", "kimi-k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.pu", "text \"<|tool_calls_section_begin|><|tool_call_begin|>functions.pu\""),
    ("cut short in the arguments", "kimi-k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.put:0<|tool_call_argument_begin|>{\"s\": \"ab", "put(BROKEN \"{\\\"s\\\": \\\"ab\")"),
    ("cut short in the head", "kimi-vl", "◁think▷Put it.◁/think▷<|tool_call_begin|>functions.pu", "think \"Put it.\" text \"<|tool_call_begin|>functions.pu\""),
    ("cut short in the arguments", "kimi-vl", "◁think▷Put it.◁/think▷<|tool_call_begin|>functions.put:0<|tool_call_argument_begin|>{\"s\": \"ab", "think \"Put it.\" put(BROKEN \"{\\\"s\\\": \\\"ab\")"),
    ("cut short in the head", "glm", "<tool_call>pu", "text \"<tool_call>pu\""),
    ("cut short in the arguments", "glm", "<tool_call>put\n<arg_key>s</arg_key>\n<arg_value>ab", "put(BROKEN \"{\\\"s\\\": \\\"ab\")"),
    ("cut short in the head", "minimax", "<minimax:tool_call>\n<invoke name=\"pu", "text \"<minimax:tool_call>\\n<invoke name=\\\"pu\""),
    ("cut short in the arguments", "minimax", "<minimax:tool_call>\n<invoke name=\"put\">\n<parameter name=\"s\">ab", "put(BROKEN \"{\\\"s\\\": \\\"ab\")"),
    ("cut short in the head", "gemma 4", "<|tool_call>call:pu", "text \"<|tool_call>call:pu\""),
    ("cut short in the arguments", "gemma 4", "<|tool_call>call:put{s:<|\"|>ab", "put(BROKEN \"{\\\"s\\\":\\\"ab\")"),
    ("cut short in the head", "functiongemma", "<start_function_call>call:pu", "text \"<start_function_call>call:pu\""),
    ("cut short in the arguments", "functiongemma", "<start_function_call>call:put{s:<escape>ab", "put(BROKEN \"{\\\"s\\\":\\\"ab\")"),
    ("cut short in the head", "harmony", "<|channel|>commentary to=functions.pu", "text \"<|channel|>commentary to=functions.pu\""),
    ("cut short in the arguments", "harmony", "<|channel|>commentary to=functions.put <|constrain|>json<|message|>{\"s\": \"ab", "put(BROKEN \"{\\\"s\\\": \\\"ab\")"),
    ("cut short in the head", "json", "```json\n[{\"name\": \"pu", "text \"```json\\n[{\\\"name\\\": \\\"pu\""),
    ("cut short in the arguments", "json", "```json\n[{\"name\": \"put\", \"arguments\": {\"s\": \"ab", "put(BROKEN \"{\\\"s\\\": \\\"ab\")"),
];

#[rustfmt::skip]
const MALFORMED: &[Row] = &[
    ("malformed arguments", "llama3", "<|python_tag|>{\"name\": \"put\", \"parameters\": {\"s\": ?}}", "put(BROKEN \"{\\\"s\\\": \") text \"?}}\""),
    ("malformed arguments", "llama3 function", "<function=put>{\"s\": ?}</function>", "put(BROKEN \"{\\\"s\\\": \") text \"?}</function>\""),
    ("malformed arguments", "llama4", "<|python_start|>[put(s=?)]<|python_end|>", "put(BROKEN \"{\\\"s\\\": \") text \"?)]<|python_end|>\""),
    ("malformed arguments", "mistral", "[TOOL_CALLS]put[ARGS]{\"s\": ?}", "put(BROKEN \"{\\\"s\\\": \") text \"?}\""),
    ("malformed arguments", "mistral before v11", "[TOOL_CALLS] [{\"name\": \"put\", \"arguments\": {\"s\": ?}}]", "put(BROKEN \"{\\\"s\\\": \") text \"?}}]\""),
    ("malformed arguments", "magistral", "[THINK]Put it.[/THINK][TOOL_CALLS]put[ARGS]{\"s\": ?}", "think \"Put it.\" put(BROKEN \"{\\\"s\\\": \") text \"?}\""),
    ("malformed arguments", "kimi-vl", "◁think▷Put it.◁/think▷<|tool_call_begin|>functions.put:0<|tool_call_argument_begin|>{\"s\": ?}<|tool_call_end|>", "think \"Put it.\" put(BROKEN \"{\\\"s\\\": \") text \"?}<|tool_call_end|>\""),
    ("malformed arguments", "deepseek v3.1", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>put<｜tool▁sep｜>{\"s\": ?}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "put(BROKEN \"{\\\"s\\\": \") text \"?}<｜tool▁call▁end｜><｜tool▁calls▁end｜>\""),
    ("malformed arguments", "deepseek v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>put\n```json\n{\"s\": ?}\n```<｜tool▁call▁end｜>", "put(BROKEN \"{\\\"s\\\": \") text \"?}\\n```<｜tool▁call▁end｜>\""),
    ("malformed arguments", "phi4", "<|tool_call|>[{\"name\": \"put\", \"arguments\": {\"s\": ?}}]<|/tool_call|>", "put(BROKEN \"{\\\"s\\\": \") text \"?}}]<|/tool_call|>\""),
    ("malformed arguments", "granite", "<|tool_call|>[{\"name\": \"put\", \"arguments\": {\"s\": ?}}]", "put(BROKEN \"{\\\"s\\\": \") text \"?}}]\""),
    ("malformed arguments", "kimi-k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.put:0<|tool_call_argument_begin|>{\"s\": ?}<|tool_call_end|>", "put(BROKEN \"{\\\"s\\\": \") text \"?}<|tool_call_end|>\""),
    ("malformed call", "glm", "<tool_call>put\n<arg_key>s</arg_key>?</tool_call>", "put(BROKEN \"{\\\"s\\\": \") text \"?</tool_call>\""),
    ("malformed call", "minimax", "<minimax:tool_call>\n<invoke name=\"put\">\n<parameter name=\"s\">a</parameter>?</invoke>\n</minimax:tool_call>", "put(BROKEN \"{\\\"s\\\": \\\"a\\\"\") text \"?</invoke>\\n</minimax:tool_call>\""),
    ("malformed call", "qwen3-coder", "<tool_call>\n<function=put>\n?\n</function>\n</tool_call>", "text \"<tool_call>\\n<function=put>\\n?\\n</function>\\n</tool_call>\""),
    ("malformed arguments", "gemma 4", "<|tool_call>call:put{s:?}<tool_call|>", "put(BROKEN \"{\\\"s\\\":\") text \"?}<tool_call|>\""),
    ("malformed arguments", "functiongemma", "<start_function_call>call:put{s:?}<end_function_call>", "put(BROKEN \"{\\\"s\\\":\") text \"?}<end_function_call>\""),
    ("malformed arguments", "harmony", "<|channel|>commentary to=functions.put <|constrain|>json<|message|>{\"s\": ?}<|call|>", "put(BROKEN \"{\\\"s\\\": ?}\")"),
    ("malformed after the arguments", "harmony", "<|channel|>commentary to=functions.put<|message|>{\"s\": \"x\"} so<|call|>", "put(BROKEN \"{\\\"s\\\": \\\"x\\\"} so\")"),
    ("malformed from the first character", "harmony", "<|channel|>commentary to=functions.put<|message|>s=1<|call|>", "put(BROKEN \"s=1\")"),
    ("malformed in a word", "harmony", "<|channel|>commentary to=functions.put<|message|>{\"b\": Tru!, \"s\": 'x'}<|call|>", "put(BROKEN \"{\\\"b\\\": Tru!, \\\"s\\\": 'x'}\")"),
    ("cut short after a backslash", "harmony", "<|channel|>commentary to=functions.put<|message|>{\"s\": \"a\\", "put(BROKEN \"{\\\"s\\\": \\\"a\\\\\")"),
    ("Python's words and quotes", "harmony", "<|channel|>commentary to=functions.put<|message|>{'b': True, 's': 'it\\'s'} <|call|>", "put({\"b\":true,\"s\":\"it's\"})"),
    ("a line end in a string", "harmony", "<|channel|>commentary to=functions.put<|message|>{\"s\": \"a\nb\"}<|call|>", "put({\"s\":\"a\\nb\"})"),
    ("code for a tool of its own", "harmony", "<|channel|>analysis to=python code<|message|>print('x')\n<|call|>", "python(BROKEN \"print('x')\\n\")"),
    ("malformed arguments", "json", "```json\n[{\"name\": \"put\", \"arguments\": {\"s\": ?}}]\n```", "put(BROKEN \"{\\\"s\\\": \") text \"?}}]\\n```\""),
];
