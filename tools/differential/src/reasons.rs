//! Why others make something else of a text.

use crate::document::Compared;

/// Some differences that have one cause.
pub(crate) struct Reason {
    pub(crate) whose: &'static str,
    pub(crate) dialects: &'static [&'static str],
    pub(crate) labels: &'static [&'static str],
    pub(crate) why: &'static str,
}

impl Reason {
    pub(crate) fn is_of(&self, whose: &str, dialect: &str, label: &str) -> bool {
        self.whose == whose && self.dialects.contains(&dialect) && self.labels.contains(&label)
    }
}

/// All of them; a difference has the first that fits.
pub(crate) const REASONS: &[Reason] = &[
    Reason {
        whose: "smg",
        dialects: &["hermes"],
        labels: &[
            "a call after it",
            "text between calls",
            "no arguments field",
            "null for arguments",
            "the shape of the API",
            "the closing tag is missing",
            "arguments before the name",
            "arguments as a string",
            "other fields",
            "a marker right after half of one",
            "Python's words and quotes",
            "a line end in a string",
            "an escape that is none",
        ],
        why: "smg expects `<tool_call>` followed by a line end, and `name` before `arguments`. Models omit the line end and write all of these variants; each is unambiguous.",
    },
    Reason {
        whose: "smg",
        dialects: &["hermes"],
        labels: &["text after the call"],
        why: "smg drops text after the last call.",
    },
    Reason {
        whose: "smg",
        dialects: &["hermes", "qwen3-coder"],
        labels: &["cut short in the arguments", "cut short in a value"],
        why: "smg returns a truncated call as text. Millrace has emitted the name and the arguments by then, as they were generated; the finish reason is `length`.",
    },
    Reason {
        whose: "smg",
        dialects: &["hermes"],
        labels: &["breaks off in the arguments"],
        why: "As for a truncated call: emitted fragments are final, and the unparsable rest is content.",
    },
    Reason {
        whose: "smg",
        dialects: &["hermes"],
        labels: &["a thought in the middle is text"],
        why: "Millrace parses reasoning only at the beginning of an answer; later, the tag is part of the content.",
    },
    Reason {
        whose: "smg",
        dialects: &["qwen3-coder"],
        labels: &["code in a string", "line ends of the value's own"],
        why: "One line end before and after a value belongs to the template; further line ends belong to the value and are kept.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["minimax"],
        labels: &["code in a string"],
        why: "MiniMax's template writes no line ends around a value, so a line end there belongs to the value.",
    },
    Reason {
        whose: "smg",
        dialects: &["qwen3-coder"],
        labels: &[
            "without the outer tag",
            "Python in a typed value",
            "a number that is none",
            "half a closing tag in the value",
        ],
        why: "Models of this family sometimes omit `<tool_call>`. Millrace also parses `<function=` without the outer tag.",
    },
    Reason {
        whose: "smg",
        dialects: &["llama3"],
        labels: &["brackets in a string", "code in a string"],
        why: "smg splits calls at `;`, also inside strings.",
    },
    Reason {
        whose: "smg",
        dialects: &["llama3"],
        labels: &["JSON that is an answer"],
        why: "Bare JSON is a tool call only if it names a tool of the request and has arguments; otherwise it is an answer in JSON.",
    },
    Reason {
        whose: "smg",
        dialects: &["llama3", "llama4"],
        labels: &["a tool nobody has"],
        why: "Bare JSON is a tool call only if it names a tool of the request: no delimiter marks it as a call.",
    },
    Reason {
        whose: "smg",
        dialects: &["llama3"],
        labels: &["a built-in tool"],
        why: "`name.call(key=value)` is how Llama 3.1 calls its built-in tools.",
    },
    Reason {
        whose: "smg",
        dialects: &["mistral"],
        labels: &[
            "one call",
            "a call without arguments",
            "calls in parallel",
            "text before a call",
            "text before calls",
            "thought and a call",
            "thought, text, calls",
            "nested values",
            "quotes and backslashes",
            "line ends and tabs",
            "no ascii",
            "numbers",
            "booleans",
            "null for a string",
            "nothing in it",
            "tags in a string",
            "brackets in a string",
            "json in a string",
            "code in a string",
            "many parameters",
            "the same call twice",
            "with an id",
            "without a separator",
            "text after it",
            "the old one, one object",
        ],
        why: "smg parses only the older format, a list of objects. Newer tokenizers write `[TOOL_CALLS]name[ARGS]{..}`.",
    },
    Reason {
        whose: "smg",
        dialects: &["deepseek v3"],
        labels: &["text after the section"],
        why: "smg drops text after the section of tool calls.",
    },
    Reason {
        whose: "smg",
        dialects: &["deepseek v3.1"],
        labels: &["without arguments", "the section is not opened"],
        why: "Millrace parses a call without arguments as a call with empty arguments, and accepts control tokens of a call without the section: models write these tokens for calls only.",
    },
    Reason {
        whose: "smg",
        dialects: &["kimi-k2"],
        labels: &["a control token ends what was not closed"],
        why: "Control tokens of a tool call are not reasoning: they end reasoning that was not closed.",
    },
    Reason {
        whose: "smg",
        dialects: &["kimi-k2"],
        labels: &["not closed"],
        why: "The arguments are complete when their JSON object is complete; a missing end token changes nothing.",
    },
    Reason {
        whose: "smg",
        dialects: &["glm"],
        labels: &[
            "no line end after the name",
            "without arguments on one line",
        ],
        why: "smg requires a line end after the name. GLM 4.7 writes none.",
    },
    Reason {
        whose: "smg",
        dialects: &["gemma 4"],
        labels: &["nested values", "numbers", "booleans"],
        why: "Millrace parses bare words in lists as numbers and booleans, as elsewhere in the arguments; smg returns strings.",
    },
    Reason {
        whose: "smg",
        dialects: &["json"],
        labels: &[
            "one call",
            "a call without arguments",
            "calls in parallel",
            "text before a call",
            "text before calls",
            "thought and a call",
            "thought, text, calls",
            "nested values",
            "quotes and backslashes",
            "line ends and tabs",
            "no ascii",
            "numbers",
            "booleans",
            "null for a string",
            "nothing in it",
            "tags in a string",
            "brackets in a string",
            "json in a string",
            "code in a string",
            "many parameters",
            "the same call twice",
            "a fence with other JSON",
        ],
        why: "smg removes the JSON from the code fence and returns the fence as text.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["qwen3-coder"],
        labels: &["a typed value of no known type"],
        why: "If the schema has no type for a value, Millrace parses a valid JSON value as JSON.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["qwen3-coder"],
        labels: &["a function that is talked about", "an empty section"],
        why: "Text that is not a tool call is content for Millrace, unchanged. Dynamo drops it.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["minimax"],
        labels: &["an empty section"],
        why: "Text that is not a tool call is content for Millrace, unchanged. Dynamo drops it.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["gemma 4"],
        labels: &["not a call"],
        why: "Text that is not a tool call is content for Millrace, unchanged. Dynamo drops it.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["qwen3-coder"],
        labels: &["cut short in a value"],
        why: "Equal arguments, without the blank after the colon in Dynamo's. (Compared as text, because they are not complete JSON.)",
    },
    Reason {
        whose: "dynamo",
        dialects: &["glm"],
        labels: &["not a name"],
        why: "A tool name has no blanks and no exclamation marks, so this is content for Millrace.",
    },
    Reason {
        whose: "smg",
        dialects: &[
            "llama3",
            "llama4",
            "mistral",
            "mistral before v11",
            "deepseek v3",
            "deepseek v3.1",
            "kimi-k2",
            "kimi-vl",
            "glm",
            "minimax",
            "gemma 4",
            "json",
        ],
        labels: &["cut short in the arguments"],
        why: "smg returns a truncated call as text; Millrace has emitted the fragments that were generated.",
    },
    Reason {
        whose: "smg",
        dialects: &[
            "llama3",
            "llama4",
            "mistral",
            "mistral before v11",
            "deepseek v3",
            "deepseek v3.1",
            "kimi-k2",
            "kimi-vl",
            "json",
        ],
        labels: &["malformed arguments"],
        why: "smg returns the whole call as text, which is impossible for a stream of fragments: the parsable part was emitted already. Millrace emits the rest as content, and counts the call as malformed.",
    },
    Reason {
        whose: "smg",
        dialects: &["qwen3-coder"],
        labels: &["malformed call"],
        why: "smg returns a call without arguments, and drops the malformed ones. Millrace returns content.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["qwen3-coder"],
        labels: &["malformed call"],
        why: "Dynamo returns a call without arguments, and drops the malformed ones. Millrace returns content.",
    },
    Reason {
        whose: "smg",
        dialects: &["glm", "minimax"],
        labels: &["malformed call"],
        why: "smg drops the unparsable part and returns the call without it. Millrace emits the part as content, and counts the call as malformed.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["glm", "minimax"],
        labels: &["malformed call"],
        why: "Dynamo drops the unparsable part and returns the call without it. Millrace emits the part as content, and counts the call as malformed.",
    },
    Reason {
        whose: "smg",
        dialects: &["gemma 4"],
        labels: &["malformed arguments"],
        why: "smg parses any bare word as a string. Gemma writes strings between delimiters, so Millrace accepts only numbers, JSON literals, lists and objects as bare values.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["gemma 4"],
        labels: &["malformed arguments"],
        why: "Dynamo drops an unparsable value together with its name.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["kimi-k2"],
        labels: &["malformed arguments"],
        why: "Dynamo returns the arguments unchanged, although they are not JSON. Millrace emits the unparsable part as content.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["kimi-k2", "glm", "gemma 4", "minimax"],
        labels: &["cut short in the head"],
        why: "Dynamo drops a truncated call completely. Millrace returns content.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["glm", "gemma 4", "minimax"],
        labels: &["cut short in the arguments"],
        why: "Dynamo drops a truncated call completely. Millrace has emitted the fragments that were generated.",
    },
    Reason {
        whose: "smg",
        dialects: &["kimi-vl"],
        labels: &["a thought in the middle is text"],
        why: "Kimi reasons only at the beginning of an answer, so a later delimiter is content. smg starts reasoning at a delimiter anywhere.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["gemma 4"],
        labels: &["half of what opens it", "another channel is text"],
        why: "Dynamo treats any channel, and an incomplete delimiter, as reasoning. Gemma names the channel of its reasoning, and only that one is reasoning.",
    },
];

/// Differences without a reason, and reasons without a difference.
pub(crate) fn check(all: &[Compared]) -> Vec<String> {
    let mut wrong = Vec::new();
    for compared in all {
        let (whose, dialect) = (compared.whose, compared.dialect);
        for difference in &compared.differences {
            let label = difference.label.as_str();
            if !REASONS
                .iter()
                .any(|reason| reason.is_of(whose, dialect, label))
            {
                wrong.push(format!(
                    "no reason: {whose}, {dialect}: {label}: {difference}"
                ));
            }
        }
    }
    for reason in REASONS {
        for &label in reason.labels {
            let found = all.iter().any(|compared| {
                let mut labels = compared.differences.iter().map(|d| d.label.as_str());
                labels.any(|l| l == label && reason.is_of(compared.whose, compared.dialect, l))
            });
            if !found {
                wrong.push(format!(
                    "no difference: {}: {label}: {}",
                    reason.whose, reason.why
                ));
            }
        }
    }
    wrong
}
