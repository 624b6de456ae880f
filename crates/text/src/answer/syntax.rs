//! Delimiters of each family, as data for the parser in `tagged`.
//!
//! The formats are taken from the models' published chat templates and tokenizers.

use super::named::{Naming, Order};
use super::params::Tags;

/// Call syntax of a family.
#[derive(Debug)]
pub(super) struct Syntax {
    pub(super) markers: &'static [Marker],
    /// Control tokens that occur inside calls.
    pub(super) inside: &'static [&'static str],
    /// Whether a call delimiter ends an unclosed reasoning block: the delimiters are control tokens, which do
    /// not occur in reasoning text.
    pub(super) ends_reasoning: bool,
}

/// A delimiter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marker {
    pub(super) text: &'static str,
    pub(super) place: Place,
    pub(super) then: Then,
}

/// Where a delimiter is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Anywhere,
    /// Before any content, and where calls are expected.
    Start,
    /// Only where calls are expected.
    Between,
}

/// Effect of a delimiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Begins a call.
    Call(Body),
    /// Begins a call whose first character is the delimiter.
    CallHere(Body),
    /// Calls are expected next.
    Section,
    /// Ends a section of calls.
    Close,
    /// Begins reasoning.
    Think,
    /// Ends reasoning.
    Answer,
    /// No effect; the delimiter is dropped.
    Drop,
}

/// Syntax of a call body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Json,
    /// Undelimited JSON, recognized as a call only by content.
    BareJson,
    BarePython,
    JsonOrPython,
    JsonOrNamed(&'static Naming),
    Named(&'static Naming),
    Params(&'static Tags),
    Braced(&'static str),
}

const fn anywhere(text: &'static str, then: Then) -> Marker {
    let place = Place::Anywhere;
    Marker { text, place, then }
}

const fn start(text: &'static str, then: Then) -> Marker {
    let place = Place::Start;
    Marker { text, place, then }
}

const fn between(text: &'static str, then: Then) -> Marker {
    let place = Place::Between;
    Marker { text, place, then }
}

/// `<tool_call>` and an object.
pub(super) static HERMES: Syntax = Syntax {
    markers: &[
        anywhere("<tool_call>", Then::Call(Body::Json)),
        between("</tool_call>", Then::Close),
    ],
    inside: &[],
    ends_reasoning: false,
};

static FUNCTION: Tags = Tags {
    name_close: ">",
    key_open: "<parameter=",
    key_close: ">",
    value_open: "",
    value_close: "</parameter>",
    end: "</function>",
    lines: true,
};

/// `<function=NAME>`, and a tag for each parameter.
pub(super) static QWEN3_CODER: Syntax = Syntax {
    markers: &[
        anywhere("<tool_call>", Then::Section),
        anywhere("<function=", Then::Call(Body::Params(&FUNCTION))),
        between("</function>", Then::Section),
        between("</tool_call>", Then::Close),
    ],
    inside: &[],
    ends_reasoning: false,
};

/// An object and nothing else, after `<|python_tag|>` or not; or `<function=NAME>` and an object.
pub(super) static LLAMA3: Syntax = Syntax {
    markers: &[
        anywhere("<|python_tag|>", Then::Call(Body::JsonOrPython)),
        anywhere("<function=", Then::Call(Body::Params(&FUNCTION))),
        start("{", Then::CallHere(Body::BareJson)),
        between("</function>", Then::Close),
        between(";", Then::Section),
    ],
    inside: &[],
    ends_reasoning: true,
};

/// `[name(key=value), ..]` and nothing else, between `<|python_start|>` and `<|python_end|>` or not.
pub(super) static LLAMA4: Syntax = Syntax {
    markers: &[
        anywhere("<|python_start|>", Then::Section),
        start("[", Then::CallHere(Body::BarePython)),
        between("<|python_end|>", Then::Close),
    ],
    inside: &[],
    ends_reasoning: true,
};

static ARGS: Naming = Naming {
    separators: &["[ARGS]", "[CALL_ID]"],
    ends: &[],
    order: Order::NameId,
};

/// `[TOOL_CALLS]` and a list of objects; since tokenizer v11 one `[TOOL_CALLS]` before each call, then the
/// name, `[ARGS]` and an object.
pub(super) static MISTRAL: Syntax = Syntax {
    markers: &[anywhere(
        "[TOOL_CALLS]",
        Then::Call(Body::JsonOrNamed(&ARGS)),
    )],
    inside: &["[ARGS]", "[CALL_ID]"],
    ends_reasoning: true,
};

static DEEPSEEK_CALL: Naming = Naming {
    separators: &["<｜tool▁sep｜>"],
    ends: &["<｜tool▁call▁end｜>"],
    order: Order::KindName,
};

/// A section of calls, each a name, a separator and an object (inside a code fence in V3 and R1).
pub(super) static DEEPSEEK: Syntax = Syntax {
    markers: &[
        anywhere("<｜tool▁calls▁begin｜>", Then::Section),
        anywhere(
            "<｜tool▁call▁begin｜>",
            Then::Call(Body::Named(&DEEPSEEK_CALL)),
        ),
        between("```", Then::Section),
        between("<｜tool▁call▁end｜>", Then::Section),
        between("<｜tool▁calls▁end｜>", Then::Close),
    ],
    inside: &["<｜tool▁sep｜>"],
    ends_reasoning: true,
};

/// `<|tool_call|>` or `functools`, and a list of objects.
pub(super) static PHI4: Syntax = Syntax {
    markers: &[
        anywhere("<|tool_call|>", Then::Call(Body::Json)),
        start("functools", Then::Call(Body::Json)),
        between("<|/tool_call|>", Then::Close),
    ],
    inside: &[],
    ends_reasoning: true,
};

/// `<|tool_call|>` and a list of objects (3), `<tool_call>` and an object (4).
pub(super) static GRANITE: Syntax = Syntax {
    markers: &[
        anywhere("<|tool_call|>", Then::Call(Body::Json)),
        anywhere("<tool_call>", Then::Call(Body::Json)),
        between("</tool_call>", Then::Close),
    ],
    inside: &[],
    ends_reasoning: false,
};

static KIMI_CALL: Naming = Naming {
    separators: &["<|tool_call_argument_begin|>"],
    ends: &["<|tool_call_end|>"],
    order: Order::Counted,
};

/// A section of calls, each an id that contains the name, and an object.
pub(super) static KIMI_K2: Syntax = Syntax {
    markers: &[
        anywhere("<|tool_calls_section_begin|>", Then::Section),
        anywhere("<|tool_call_begin|>", Then::Call(Body::Named(&KIMI_CALL))),
        between("<|tool_call_end|>", Then::Section),
        between("<|tool_calls_section_end|>", Then::Close),
    ],
    inside: &["<|tool_call_argument_begin|>"],
    ends_reasoning: true,
};

static GLM_CALL: Tags = Tags {
    name_close: "",
    key_open: "<arg_key>",
    key_close: "</arg_key>",
    value_open: "<arg_value>",
    value_close: "</arg_value>",
    end: "</tool_call>",
    lines: false,
};

/// `<tool_call>`, a name, and two tags for each parameter.
pub(super) static GLM: Syntax = Syntax {
    markers: &[anywhere("<tool_call>", Then::Call(Body::Params(&GLM_CALL)))],
    inside: &[
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "</tool_call>",
    ],
    ends_reasoning: false,
};

static INVOKE: Tags = Tags {
    name_close: "\">",
    key_open: "<parameter name=\"",
    key_close: "\">",
    value_open: "",
    value_close: "</parameter>",
    end: "</invoke>",
    lines: false,
};

/// A section of `<invoke name="NAME">`, with a tag for each parameter.
pub(super) static MINIMAX: Syntax = Syntax {
    markers: &[
        anywhere("<minimax:tool_call>", Then::Section),
        between("<invoke name=\"", Then::Call(Body::Params(&INVOKE))),
        between("</minimax:tool_call>", Then::Close),
    ],
    inside: &[],
    ends_reasoning: false,
};

/// `<|tool_call>call:NAME{..}` (Gemma 4), `<start_function_call>call:NAME{..}` (FunctionGemma), and code
/// fences for Gemma 3, which has no call syntax of its own.
pub(super) static GEMMA: Syntax = Syntax {
    markers: &[
        anywhere("<|tool_call>", Then::Call(Body::Braced("<|\"|>"))),
        anywhere(
            "<start_function_call>",
            Then::Call(Body::Braced("<escape>")),
        ),
        anywhere("```tool_code", Then::Call(Body::BarePython)),
        anywhere("```tool_call", Then::Call(Body::BareJson)),
        anywhere("```json", Then::Call(Body::BareJson)),
        start("[", Then::CallHere(Body::BarePython)),
        start("{", Then::CallHere(Body::BareJson)),
        between("<tool_call|>", Then::Close),
        between("<end_function_call>", Then::Close),
        between("```", Then::Close),
    ],
    inside: &["<|\"|>", "<escape>"],
    ends_reasoning: false,
};

/// An object or a list of objects, bare or in a code fence: for models without a call syntax of their own.
pub(super) static JSON: Syntax = Syntax {
    markers: &[
        start("{", Then::CallHere(Body::BareJson)),
        start("[", Then::CallHere(Body::BareJson)),
        anywhere("```json", Then::Call(Body::BareJson)),
        anywhere("<tool_call>", Then::Call(Body::Json)),
        between("</tool_call>", Then::Close),
        between("```", Then::Close),
        between(",", Then::Section),
        between(";", Then::Section),
    ],
    inside: &[],
    ends_reasoning: false,
};

/// Reasoning delimiters of a family.
#[derive(Debug)]
pub(super) struct Thoughts {
    pub(super) opens: &'static [&'static str],
    pub(super) closes: &'static [&'static str],
    /// Delimiters around the answer that are dropped.
    pub(super) drops: &'static [&'static str],
}

pub(super) static THINK: Thoughts = Thoughts {
    opens: &["<think>"],
    closes: &["</think>"],
    drops: &[],
};

pub(super) static BRACKETS: Thoughts = Thoughts {
    opens: &["[THINK]"],
    closes: &["[/THINK]"],
    drops: &[],
};

pub(super) static GRANITE_THOUGHTS: Thoughts = Thoughts {
    opens: &[
        "<think>",
        "Here is my thought process:",
        "Here's my thought process:",
    ],
    closes: &["</think>", "Here is my response:", "Here's my response:"],
    drops: &["<response>", "</response>"],
};

pub(super) static CHANNEL: Thoughts = Thoughts {
    opens: &["<|channel>thought"],
    closes: &["<channel|>"],
    drops: &[],
};

pub(super) static TRIANGLES: Thoughts = Thoughts {
    opens: &["◁think▷"],
    closes: &["◁/think▷"],
    drops: &[],
};
