//! More unusual answers that models write.

use super::labelled::{Case, Row, rows};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = rows(BARE, false);
    cases.extend(rows(TOKENS, false));
    cases.extend(rows(CHANNELS, false));
    cases
}

const BARE: &[Row] = &[
    (
        "bare",
        "llama3",
        "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}",
        "get_weather({\"city\":\"Paris\"})",
    ),
    (
        "bare, two of them",
        "llama3",
        "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\", \"parameters\": {}}",
        "now({}) now({})",
    ),
    (
        "bare, with a type",
        "llama3",
        "\n{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}",
        "now({})",
    ),
    (
        "JSON that is an answer",
        "llama3",
        "{\"name\": \"Paris\", \"country\": \"France\"}",
        "text \"{\\\"name\\\": \\\"Paris\\\", \\\"country\\\": \\\"France\\\"}\"",
    ),
    (
        "a tool nobody has",
        "llama3",
        "{\"name\": \"fly\", \"parameters\": {\"to\": 1}}",
        "text \"{\\\"name\\\": \\\"fly\\\", \\\"parameters\\\": {\\\"to\\\": 1}}\"",
    ),
    (
        "JSON after text",
        "llama3",
        "So: {\"name\": \"now\", \"parameters\": {}}",
        "text \"So: {\\\"name\\\": \\\"now\\\", \\\"parameters\\\": {}}\"",
    ),
    (
        "a built-in tool",
        "llama3",
        "<|python_tag|>brave_search.call(query=\"weather\")",
        "brave_search({\"query\":\"weather\"})",
    ),
    (
        "code",
        "llama3",
        "<|python_tag|>import os\nprint(1)",
        "text \"<|python_tag|>import os\\nprint(1)\"",
    ),
    (
        "bare",
        "llama4",
        "[put(s=\"a\", i=3), now()]",
        "put({\"s\":\"a\",\"i\":3}) now({})",
    ),
    (
        "a list that is an answer",
        "llama4",
        "[1, 2]",
        "text \"[1, 2]\"",
    ),
    (
        "a tool nobody has",
        "llama4",
        "[fly(to=1)]",
        "text \"[fly(to=1)]\"",
    ),
    (
        "escapes of Python's",
        "llama4",
        "[put(s='\\x41\\'\\u00e9')]",
        "put({\"s\":\"A'é\"})",
    ),
    (
        "blanks everywhere",
        "llama4",
        "[ put( s = 'a' , i = 1 ) ]",
        "put({\"s\":\"a\",\"i\":1})",
    ),
    (
        "bare list",
        "json",
        "[{\"name\": \"now\", \"arguments\": {}}]",
        "now({})",
    ),
    (
        "bare object",
        "json",
        "{\"name\": \"now\", \"parameters\": {}}",
        "now({})",
    ),
    (
        "a fence with other JSON",
        "json",
        "```json\n{\"a\": 1}\n```",
        "text \"```json\\n{\\\"a\\\": 1}\\n```\"",
    ),
    (
        "code in a fence",
        "functiongemma",
        "```tool_code\nget_weather(city='Paris')\n```",
        "get_weather({\"city\":\"Paris\"})",
    ),
    (
        "bare object",
        "functiongemma",
        "{\"name\": \"now\", \"parameters\": {}}",
        "now({})",
    ),
    (
        "not a call",
        "gemma 4",
        "<|tool_call>hello",
        "text \"<|tool_call>hello\"",
    ),
    (
        "an object without marks",
        "hermes",
        "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}",
        "get_weather({\"city\":\"Paris\"})",
    ),
    (
        "an object over several lines",
        "hermes",
        "\n{\n  \"name\": \"get_weather\",\n  \"arguments\": {\n    \"city\": \"Paris\"\n  }\n}\n",
        "get_weather({\"city\":\"Paris\"})",
    ),
    (
        "an object with parameters",
        "hermes",
        "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}",
        "get_weather({\"city\":\"Paris\"})",
    ),
    (
        "a list without marks",
        "hermes",
        "[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}, {\"name\": \"now\", \"arguments\": {}}]",
        "get_weather({\"city\":\"Paris\"}) now({})",
    ),
    (
        "objects on lines",
        "hermes",
        "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n{\"name\": \"now\", \"arguments\": {}}",
        "get_weather({\"city\":\"Paris\"}) now({})",
    ),
    (
        "an object in a json fence",
        "hermes",
        "```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n```",
        "get_weather({\"city\":\"Paris\"})",
    ),
    (
        "an object in a fence",
        "hermes",
        "```\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n```",
        "get_weather({\"city\":\"Paris\"})",
    ),
    (
        "fences and text",
        "hermes",
        "```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n```\n```json\n{\"name\": \"now\", \"arguments\": {}}\n```\nDone.",
        "get_weather({\"city\":\"Paris\"}) now({}) text \"Done.\"",
    ),
    (
        "an object between tags of tools",
        "hermes",
        "<tools>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tools>",
        "get_weather({\"city\":\"Paris\"})",
    ),
    (
        "arguments as a string",
        "hermes",
        "{\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\":\\\"Paris\\\"}\"}",
        "get_weather({\"city\":\"Paris\"})",
    ),
    (
        "arguments before the name",
        "hermes",
        "{\"arguments\": {\"city\": \"Paris\"}, \"name\": \"get_weather\"}",
        "get_weather({\"city\":\"Paris\"})",
    ),
    (
        "a further field",
        "hermes",
        "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}, \"confidence\": 0.9}",
        "get_weather({\"city\":\"Paris\"})",
    ),
    (
        "an object of a tool nobody has",
        "hermes",
        "{\"name\": \"fly\", \"arguments\": {\"to\": 1}}",
        "text \"{\\\"name\\\": \\\"fly\\\", \\\"arguments\\\": {\\\"to\\\": 1}}\"",
    ),
    (
        "a definition of a tool",
        "hermes",
        "{\"name\": \"get_weather\", \"description\": \"of a city\", \"parameters\": {}}",
        "text \"{\\\"name\\\": \\\"get_weather\\\", \\\"description\\\": \\\"of a city\\\", \\\"parameters\\\": {}}\"",
    ),
    (
        "JSON in a fence",
        "hermes",
        "```json\n{\"city\": \"Paris\"}\n```",
        "text \"```json\\n{\\\"city\\\": \\\"Paris\\\"}\\n```\"",
    ),
    (
        "code in a fence",
        "hermes",
        "```\nls -l\n```",
        "text \"```\\nls -l\\n```\"",
    ),
    (
        "an object after text",
        "hermes",
        "So: {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}",
        "text \"So: {\\\"name\\\": \\\"get_weather\\\", \\\"arguments\\\": {\\\"city\\\": \\\"Paris\\\"}}\"",
    ),
    (
        "tags of tools without a call",
        "hermes",
        "<tools>none</tools>",
        "text \"<tools>none</tools>\"",
    ),
    (
        "an object without marks",
        "mistral",
        "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}",
        "get_weather({\"city\":\"Paris\"})",
    ),
    (
        "an object without marks",
        "qwen3-coder",
        "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}",
        "get_weather({\"city\":\"Paris\"})",
    ),
    (
        "an object without marks",
        "deepseek v3.1",
        "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}",
        "get_weather({\"city\":\"Paris\"})",
    ),
    (
        "an object in a fence",
        "llama3",
        "```json\n{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}\n```",
        "get_weather({\"city\":\"Paris\"})",
    ),
];

const TOKENS: &[Row] = &[
    (
        "with an id",
        "mistral",
        "[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}",
        "now#abcdefghi({})",
    ),
    (
        "without a separator",
        "mistral",
        "[TOOL_CALLS]now{}",
        "now({})",
    ),
    (
        "text after it",
        "mistral",
        "[TOOL_CALLS]now[ARGS]{} ok",
        "now({}) text \"ok\"",
    ),
    (
        "not a name",
        "mistral",
        "[TOOL_CALLS]not a {name}",
        "text \"[TOOL_CALLS]not a {name}\"",
    ),
    (
        "the old one, one object",
        "mistral",
        "[TOOL_CALLS]{\"name\": \"now\", \"arguments\": {}}",
        "now({})",
    ),
    (
        "an empty list",
        "mistral",
        "[TOOL_CALLS][]",
        "text \"[TOOL_CALLS][]\"",
    ),
    (
        "without arguments",
        "deepseek v3.1",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜><｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "now({})",
    ),
    (
        "the section is not opened",
        "deepseek v3.1",
        "Hm.<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
        "text \"Hm.\" now({})",
    ),
    (
        "text after the section",
        "deepseek v3",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>\nok",
        "now({}) text \"ok\"",
    ),
    (
        "a section of nothing",
        "deepseek v3",
        "<｜tool▁calls▁begin｜>hello",
        "text \"<｜tool▁calls▁begin｜>hello\"",
    ),
    (
        "functools",
        "phi4",
        "functools[{\"name\": \"now\", \"arguments\": {}}]",
        "now({})",
    ),
    (
        "a word that begins like it",
        "phi4",
        "functional",
        "text \"functional\"",
    ),
    (
        "the tag of the fourth",
        "granite",
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
        "now({})",
    ),
    (
        "an answer between tags",
        "granite",
        "<think>Hm.</think><response>Yes.</response>",
        "think \"Hm.\" text \"Yes.\"",
    ),
    (
        "a word that begins like a thought",
        "granite",
        "Here it is.",
        "text \"Here it is.\"",
    ),
    (
        "no prefix",
        "kimi-k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>now:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        "now#now:0({})",
    ),
    (
        "not closed",
        "kimi-k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}",
        "now({})",
    ),
    (
        "an empty section",
        "minimax",
        "<minimax:tool_call>\n</minimax:tool_call>",
        "text \"<minimax:tool_call>\\n</minimax:tool_call>\"",
    ),
];

const CHANNELS: &[Row] = &[
    (
        "text without a channel",
        "harmony",
        "Hello.",
        "text \"Hello.\"",
    ),
    (
        "the recipient first",
        "harmony",
        " to=functions.now<|channel|>commentary json<|message|>{}<|call|>",
        "now({})",
    ),
    (
        "a preamble",
        "harmony",
        "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant<|channel|>commentary to=functions.now<|message|>{}",
        "text \"I will look.\" now({})",
    ),
    (
        "no arguments",
        "harmony",
        "<|channel|>commentary to=functions.now <|constrain|>json<|message|><|call|>",
        "now({})",
    ),
    (
        "the end is missing",
        "harmony",
        "<|channel|>analysis<|message|>Hm.<|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
        "think \"Hm.\" text \"Yes.\"",
    ),
    (
        "a built-in tool",
        "harmony",
        "<|channel|>analysis to=browser.search code<|message|>{\"q\": 1}<|call|>",
        "browser.search({\"q\":1})",
    ),
    (
        "a header of nothing",
        "harmony",
        "<|channel|>",
        "text \"<|channel|>\"",
    ),
    (
        "half a marker",
        "harmony",
        "<|channel|>final<|message|>a <| b <|me",
        "text \"a <| b <|me\"",
    ),
    (
        "cut short in the thought",
        "harmony",
        "<|channel|>analysis<|message|>Hm",
        "think \"Hm\"",
    ),
];
