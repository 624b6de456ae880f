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
        why: "It looks for `<tool_call>` with a line end after it, and for `name`, then `arguments`. Models leave the line end away, and write all of these; each says one thing only.",
    },
    Reason {
        whose: "smg",
        dialects: &["hermes"],
        labels: &["text after the call"],
        why: "What is said after the last call is lost there.",
    },
    Reason {
        whose: "smg",
        dialects: &["hermes", "qwen3-coder"],
        labels: &["cut short in the arguments", "cut short in a value"],
        why: "A call that was cut short is text there. Ours has told its name and arguments by then, as the tokens came: the ending says `length`.",
    },
    Reason {
        whose: "smg",
        dialects: &["hermes"],
        labels: &["breaks off in the arguments"],
        why: "As above: what was told is not taken back, and what cannot be read is text.",
    },
    Reason {
        whose: "smg",
        dialects: &["hermes"],
        labels: &["a thought in the middle is text"],
        why: "Ours takes reasoning at the beginning of an answer only: in the middle the tag is something that is talked about.",
    },
    Reason {
        whose: "smg",
        dialects: &["qwen3-coder"],
        labels: &["code in a string", "line ends of the value's own"],
        why: "One line end before and after a value is the template's; the others are the value's own, and stay.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["minimax"],
        labels: &["code in a string"],
        why: "MiniMax's template puts no line ends around a value: one that is there is the value's own.",
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
        why: "Models of this family leave `<tool_call>` away now and then. Ours reads `<function=` without it.",
    },
    Reason {
        whose: "smg",
        dialects: &["llama3"],
        labels: &["brackets in a string", "code in a string"],
        why: "It cuts calls apart at `;`, in strings too.",
    },
    Reason {
        whose: "smg",
        dialects: &["llama3"],
        labels: &["JSON that is an answer"],
        why: "Bare JSON is a call only where it names a tool of the request and has arguments: the other is an answer in JSON.",
    },
    Reason {
        whose: "smg",
        dialects: &["llama3", "llama4"],
        labels: &["a tool nobody has"],
        why: "The same: nothing marks it as a call but what it says.",
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
        why: "It reads the older way of writing only, a list of objects. The newer tokenizers write `[TOOL_CALLS]name[ARGS]{..}`.",
    },
    Reason {
        whose: "smg",
        dialects: &["deepseek v3"],
        labels: &["text after the section"],
        why: "What is said after the section is lost there.",
    },
    Reason {
        whose: "smg",
        dialects: &["deepseek v3.1"],
        labels: &["without arguments", "the section is not opened"],
        why: "Ours takes a call without arguments for one with none, and control tokens of a call for a call: nobody writes them otherwise.",
    },
    Reason {
        whose: "smg",
        dialects: &["kimi-k2"],
        labels: &["a control token ends what was not closed"],
        why: "Control tokens of a call are not thought: they end reasoning that was not closed.",
    },
    Reason {
        whose: "smg",
        dialects: &["kimi-k2"],
        labels: &["not closed"],
        why: "The arguments are whole when their object is: a missing end changes nothing.",
    },
    Reason {
        whose: "smg",
        dialects: &["glm"],
        labels: &[
            "no line end after the name",
            "without arguments on one line",
        ],
        why: "It wants a line end after the name. GLM 4.7 writes none.",
    },
    Reason {
        whose: "smg",
        dialects: &["gemma 4"],
        labels: &["nested values", "numbers", "booleans"],
        why: "Bare words in lists are numbers and booleans, as they are elsewhere in the arguments; there they become strings.",
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
        why: "It takes the JSON out of the fence and leaves the fence as text.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["qwen3-coder"],
        labels: &["a typed value of no known type"],
        why: "Where the schema says nothing of a value's type, ours reads it as JSON if it is JSON.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["qwen3-coder"],
        labels: &["a function that is talked about", "an empty section"],
        why: "What is no call is text to us, to the letter. It is dropped there.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["minimax"],
        labels: &["an empty section"],
        why: "The same.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["gemma 4"],
        labels: &["not a call"],
        why: "The same.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["qwen3-coder"],
        labels: &["cut short in a value"],
        why: "The same arguments; theirs without the blank after the colon. (Compared as text, as they are no whole JSON.)",
    },
    Reason {
        whose: "dynamo",
        dialects: &["glm"],
        labels: &["not a name"],
        why: "A name has no blanks and no exclamation marks: it is text to us.",
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
        why: "As above: a call that was cut short is text there, and ours has told what came of it.",
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
        why: "The whole call is text there, which a stream of fragments cannot do: what could be read was told by then. Ours tells the rest as text, and counts the call as malformed.",
    },
    Reason {
        whose: "smg",
        dialects: &["qwen3-coder"],
        labels: &["malformed call"],
        why: "A call without its arguments is made of it there, and what stood in their place is dropped. It is text to us.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["qwen3-coder"],
        labels: &["malformed call"],
        why: "The same.",
    },
    Reason {
        whose: "smg",
        dialects: &["glm", "minimax"],
        labels: &["malformed call"],
        why: "What cannot be read is dropped there, and the call is made without it. Ours tells it as text, and counts the call as malformed.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["glm", "minimax"],
        labels: &["malformed call"],
        why: "The same.",
    },
    Reason {
        whose: "smg",
        dialects: &["gemma 4"],
        labels: &["malformed arguments"],
        why: "Any bare word is a string there. Gemma writes its strings between marks: ours takes numbers, words of JSON, lists and objects for bare values.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["gemma 4"],
        labels: &["malformed arguments"],
        why: "A value that cannot be read is dropped there with its name.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["kimi-k2"],
        labels: &["malformed arguments"],
        why: "They are told as they stand there, as arguments that are no JSON. Ours tells what cannot be read as text.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["kimi-k2", "glm", "gemma 4", "minimax"],
        labels: &["cut short in the head"],
        why: "A call that was cut short is dropped there, whatever was said of it. It is text to us.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["glm", "gemma 4", "minimax"],
        labels: &["cut short in the arguments"],
        why: "The same; ours has told what came of it.",
    },
    Reason {
        whose: "smg",
        dialects: &["kimi-vl"],
        labels: &["a thought in the middle is text"],
        why: "Kimi thinks first: the mark in the middle of an answer is what the answer speaks of. There it opens a thought anywhere.",
    },
    Reason {
        whose: "dynamo",
        dialects: &["gemma 4"],
        labels: &["half of what opens it", "another channel is text"],
        why: "Any channel is a thought there, and so is half of its mark. Gemma names the channel of its thoughts, and no other is one.",
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
