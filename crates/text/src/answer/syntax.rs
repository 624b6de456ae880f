//! How each family of models marks its calls, as data for the one machine in `tagged`.
//!
//! The formats are those of the models' published chat templates and tokenizers.

use super::named::{Naming, Order};
use super::params::Tags;

/// A family's way of writing calls.
#[derive(Debug)]
pub(super) struct Syntax {
    pub(super) markers: &'static [Marker],
    /// Control tokens that stand inside calls.
    pub(super) inside: &'static [&'static str],
    /// The markers are tokens of their own, which nobody writes while thinking aloud: one ends the
    /// reasoning that was not closed.
    pub(super) ends_reasoning: bool,
}

/// A text with a meaning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marker {
    pub(super) text: &'static str,
    pub(super) place: Place,
    pub(super) then: Then,
}

/// Where a marker counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Anywhere,
    /// Where nothing was said yet, and where calls are expected.
    Start,
    /// Where calls are expected.
    Between,
}

/// What a marker means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// A call follows.
    Call(Body),
    /// A call begins with the marker itself, which is one character.
    CallHere(Body),
    /// Calls are expected.
    Section,
    /// No more calls are.
    Close,
    /// Reasoning begins.
    Think,
    /// Reasoning ends.
    Answer,
    /// Nothing.
    Drop,
}

/// How a call is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Json,
    /// JSON that nothing says to be a call but what it holds.
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

/// `[TOOL_CALLS]` and a list of objects; since the eleventh tokenizer one before each call, then its
/// name, `[ARGS]`, an object.
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

/// A section of calls, each a name, a separator and an object (in V3 and R1 in a fence).
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

/// `<|tool_call|>` and a list of objects, or `functools` and the same.
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

/// A section of calls, each an id with the name in it, and an object.
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

/// `<|tool_call>call:NAME{..}` (4), `<start_function_call>` and the same (FunctionGemma), and the
/// fences that the third, which knows no format of its own, is told to use.
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

/// An object, or a list of them, bare or in a fence: for models that know no format of their own.
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

/// How a family marks its reasoning.
#[derive(Debug)]
pub(super) struct Thoughts {
    pub(super) opens: &'static [&'static str],
    pub(super) closes: &'static [&'static str],
    /// Stand around the answer and mean nothing.
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
