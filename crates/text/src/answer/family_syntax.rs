//! Delimiters of each family, as data for the parser in `delimited_parser`.
//!
//! The formats are taken from the models' published chat templates and tokenizers.

use super::named_call::{NameOrder, NameSyntax};
use super::tagged_call::TagSyntax;

/// Call syntax of a family.
#[derive(Debug)]
pub(super) struct FamilySyntax {
    pub(super) markers: &'static [FamilyDelimiter],
    /// Control tokens that occur inside calls.
    pub(super) inside: &'static [&'static str],
    /// Whether a call delimiter ends an unclosed reasoning block: the delimiters are control tokens, which do
    /// not occur in reasoning text.
    pub(super) ends_reasoning: bool,
}

/// A delimiter.
#[derive(Clone, Copy, Debug)]
pub(super) struct FamilyDelimiter {
    pub(super) text: &'static str,
    pub(super) place: DelimiterPlace,
    pub(super) then: DelimiterEffect,
    /// Delimiter that may follow the call; empty: none of its own.
    pub(super) close: &'static str,
}

/// Where a delimiter is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DelimiterPlace {
    Anywhere,
    /// Before any content, and where calls are expected.
    Start,
    /// Only where calls are expected.
    Between,
}

/// Effect of a delimiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DelimiterEffect {
    /// Begins a call.
    Call(CallBody),
    /// Begins a call whose first characters are the delimiter.
    CallHere(CallBody),
    /// Calls are expected next.
    Section,
    /// Stands between calls; text unless a call or the end follows.
    Separator,
    /// Opens a code fence in which calls are expected; text unless a call follows.
    Fence,
    /// Follows a call; further calls may follow.
    CallEnd,
    /// Closes the code fence around a call.
    FenceEnd,
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
pub(super) enum CallBody {
    Json,
    /// Undelimited JSON, recognized as a call only by content.
    BareJson,
    BarePython,
    /// An undelimited list of either, after its bracket.
    BareList,
    JsonOrPython,
    JsonOrNamed(&'static NameSyntax),
    NamedCall(&'static NameSyntax),
    TaggedCall(&'static TagSyntax),
    BracedCall(&'static str),
}

const fn delimiter(
    text: &'static str,
    place: DelimiterPlace,
    then: DelimiterEffect,
) -> FamilyDelimiter {
    let close = "";
    FamilyDelimiter {
        text,
        place,
        then,
        close,
    }
}

const fn anywhere(text: &'static str, then: DelimiterEffect) -> FamilyDelimiter {
    delimiter(text, DelimiterPlace::Anywhere, then)
}

const fn start(text: &'static str, then: DelimiterEffect) -> FamilyDelimiter {
    delimiter(text, DelimiterPlace::Start, then)
}

impl FamilyDelimiter {
    /// This delimiter of a call that another one closes.
    const fn until(self, close: &'static str) -> Self {
        Self { close, ..self }
    }
}

const fn between(text: &'static str, then: DelimiterEffect) -> FamilyDelimiter {
    delimiter(text, DelimiterPlace::Between, then)
}

/// Closes a [`DelimiterEffect::Fence`].
pub(super) const FENCE_END: &str = "```\n";

/// Calls without a family's delimiters, of models of all families: small models often leave the delimiters out, or write
/// others. Such a text is a call where an answer begins with it and all names in it are known; else it is content.
static BARE: [FamilyDelimiter; 24] = [
    start("{", DelimiterEffect::CallHere(CallBody::BareJson)),
    start("[", DelimiterEffect::CallHere(CallBody::BareJson)),
    start("<tools>", DelimiterEffect::Call(CallBody::BareJson)).until("</tools>"),
    start("<tool>", DelimiterEffect::Call(CallBody::BareJson)).until("</tool>"),
    start("<json>", DelimiterEffect::Call(CallBody::BareJson)).until("</json>"),
    start("<response>", DelimiterEffect::Call(CallBody::BareJson)).until("</response>"),
    start("<function_call>", DelimiterEffect::Call(CallBody::BareJson)).until("</function_call>"),
    between(",", DelimiterEffect::Separator),
    between(";", DelimiterEffect::Separator),
    start(FENCE_END, DelimiterEffect::Fence),
    start("```json", DelimiterEffect::Fence),
    start("```xml", DelimiterEffect::Fence),
    start("```html", DelimiterEffect::Fence),
    start("```python", DelimiterEffect::Fence),
    start("```javascript", DelimiterEffect::Fence),
    start("```typescript", DelimiterEffect::Fence),
    start("```bash", DelimiterEffect::Fence),
    start("```shell", DelimiterEffect::Fence),
    start("```yaml", DelimiterEffect::Fence),
    start("```text", DelimiterEffect::Fence),
    start("```plaintext", DelimiterEffect::Fence),
    start("```markdown", DelimiterEffect::Fence),
    start("```tool_call", DelimiterEffect::Fence),
    start("```tool_code", DelimiterEffect::Fence),
];

/// Delimiters of a family's answers: its own, then those of bare calls that cannot be taken for the beginning of its own.
pub(super) fn all_markers(
    syntax: &'static FamilySyntax,
    thoughts: Option<&'static ReasoningDelimiters>,
) -> impl Iterator<Item = &'static FamilyDelimiter> {
    let is_distinct = move |bare: &&FamilyDelimiter| {
        let of_thoughts = thoughts
            .into_iter()
            .flat_map(|thoughts| thoughts.opens.iter().chain(thoughts.drops).copied());
        let own = syntax.markers.iter().map(|marker| marker.text);
        let mut own = own.chain(of_thoughts);
        !own.any(|text| text.starts_with(bare.text))
    };
    syntax.markers.iter().chain(BARE.iter().filter(is_distinct))
}

/// `<tool_call>` and an object.
pub(super) static HERMES: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere("<tool_call>", DelimiterEffect::Call(CallBody::Json)),
        between("</tool_call>", DelimiterEffect::Close),
    ],
    inside: &[],
    ends_reasoning: false,
};

static FUNCTION: TagSyntax = TagSyntax {
    name_close: ">",
    key_open: "<parameter=",
    key_close: ">",
    value_open: "",
    value_close: "</parameter>",
    end: "</function>",
    lines: true,
};

/// `<function=NAME>`, and a tag for each parameter.
pub(super) static QWEN3_CODER: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere("<tool_call>", DelimiterEffect::Section),
        anywhere(
            "<function=",
            DelimiterEffect::Call(CallBody::TaggedCall(&FUNCTION)),
        ),
        between("</function>", DelimiterEffect::Section),
        between("</tool_call>", DelimiterEffect::Close),
    ],
    inside: &[],
    ends_reasoning: false,
};

/// An object and nothing else, after `<|python_tag|>` or not; or `<function=NAME>` and an object.
pub(super) static LLAMA3: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere(
            "<|python_tag|>",
            DelimiterEffect::Call(CallBody::JsonOrPython),
        ),
        anywhere(
            "<function=",
            DelimiterEffect::Call(CallBody::TaggedCall(&FUNCTION)),
        ),
        start("{", DelimiterEffect::CallHere(CallBody::BareJson)),
        between("</function>", DelimiterEffect::Close),
        between(";", DelimiterEffect::Separator),
    ],
    inside: &[],
    ends_reasoning: true,
};

/// `[name(key=value), ..]` and nothing else, between `<|python_start|>` and `<|python_end|>` or not.
pub(super) static LLAMA4: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere("<|python_start|>", DelimiterEffect::Section),
        start("[", DelimiterEffect::CallHere(CallBody::BareList)),
        between("<|python_end|>", DelimiterEffect::Close),
    ],
    inside: &[],
    ends_reasoning: true,
};

static ARGS: NameSyntax = NameSyntax {
    separators: &["[ARGS]", "[CALL_ID]"],
    ends: &[],
    order: NameOrder::NameId,
};

/// `[TOOL_CALLS]` and a list of objects; since tokenizer v11 one `[TOOL_CALLS]` before each call, then the
/// name, `[ARGS]` and an object. A bare list cannot be distinguished from the delimiter by its first character.
pub(super) static MISTRAL: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere(
            "[TOOL_CALLS]",
            DelimiterEffect::Call(CallBody::JsonOrNamed(&ARGS)),
        ),
        start("[{", DelimiterEffect::CallHere(CallBody::BareJson)),
        start("[ {", DelimiterEffect::CallHere(CallBody::BareJson)),
        start("[\n{", DelimiterEffect::CallHere(CallBody::BareJson)),
        start("[\n {", DelimiterEffect::CallHere(CallBody::BareJson)),
        start("[\n  {", DelimiterEffect::CallHere(CallBody::BareJson)),
        start("[\n    {", DelimiterEffect::CallHere(CallBody::BareJson)),
        start("[\n\t{", DelimiterEffect::CallHere(CallBody::BareJson)),
    ],
    inside: &["[ARGS]", "[CALL_ID]"],
    ends_reasoning: true,
};

static DEEPSEEK_CALL: NameSyntax = NameSyntax {
    separators: &["<｜tool▁sep｜>"],
    ends: &["<｜tool▁call▁end｜>"],
    order: NameOrder::KindName,
};

/// A section of calls, each a name, a separator and an object (inside a code fence in V3 and R1).
pub(super) static DEEPSEEK: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere("<｜tool▁calls▁begin｜>", DelimiterEffect::Section),
        anywhere(
            "<｜tool▁call▁begin｜>",
            DelimiterEffect::Call(CallBody::NamedCall(&DEEPSEEK_CALL)),
        )
        .until("```"),
        between("<｜tool▁call▁end｜>", DelimiterEffect::Section),
        between("<｜tool▁calls▁end｜>", DelimiterEffect::Close),
    ],
    inside: &["<｜tool▁sep｜>"],
    ends_reasoning: true,
};

/// `<|tool_call|>` or `functools`, and a list of objects.
pub(super) static PHI4: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere("<|tool_call|>", DelimiterEffect::Call(CallBody::Json)),
        start("functools", DelimiterEffect::Call(CallBody::Json)),
        between("<|/tool_call|>", DelimiterEffect::Close),
    ],
    inside: &[],
    ends_reasoning: true,
};

/// `<|tool_call|>` and a list of objects (3), `<tool_call>` and an object (4).
pub(super) static GRANITE: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere("<|tool_call|>", DelimiterEffect::Call(CallBody::Json)),
        anywhere("<tool_call>", DelimiterEffect::Call(CallBody::Json)),
        between("</tool_call>", DelimiterEffect::Close),
    ],
    inside: &[],
    ends_reasoning: false,
};

static KIMI_CALL: NameSyntax = NameSyntax {
    separators: &["<|tool_call_argument_begin|>"],
    ends: &["<|tool_call_end|>"],
    order: NameOrder::Counted,
};

/// A section of calls, each an id that contains the name, and an object.
pub(super) static KIMI_K2: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere("<|tool_calls_section_begin|>", DelimiterEffect::Section),
        anywhere(
            "<|tool_call_begin|>",
            DelimiterEffect::Call(CallBody::NamedCall(&KIMI_CALL)),
        ),
        between("<|tool_call_end|>", DelimiterEffect::Section),
        between("<|tool_calls_section_end|>", DelimiterEffect::Close),
    ],
    inside: &["<|tool_call_argument_begin|>"],
    ends_reasoning: true,
};

static GLM_CALL: TagSyntax = TagSyntax {
    name_close: "",
    key_open: "<arg_key>",
    key_close: "</arg_key>",
    value_open: "<arg_value>",
    value_close: "</arg_value>",
    end: "</tool_call>",
    lines: false,
};

/// `<tool_call>`, a name, and two tags for each parameter.
pub(super) static GLM: FamilySyntax = FamilySyntax {
    markers: &[anywhere(
        "<tool_call>",
        DelimiterEffect::Call(CallBody::TaggedCall(&GLM_CALL)),
    )],
    inside: &[
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "</tool_call>",
    ],
    ends_reasoning: false,
};

static INVOKE: TagSyntax = TagSyntax {
    name_close: "\">",
    key_open: "<parameter name=\"",
    key_close: "\">",
    value_open: "",
    value_close: "</parameter>",
    end: "</invoke>",
    lines: false,
};

/// A section of `<invoke name="NAME">`, with a tag for each parameter.
pub(super) static MINIMAX: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere("<minimax:tool_call>", DelimiterEffect::Section),
        between(
            "<invoke name=\"",
            DelimiterEffect::Call(CallBody::TaggedCall(&INVOKE)),
        ),
        between("</minimax:tool_call>", DelimiterEffect::Close),
    ],
    inside: &[],
    ends_reasoning: false,
};

/// `<|tool_call>call:NAME{..}` (Gemma 4), `<start_function_call>call:NAME{..}` (FunctionGemma), and code
/// fences for Gemma 3, which has no call syntax of its own.
pub(super) static GEMMA: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere(
            "<|tool_call>",
            DelimiterEffect::Call(CallBody::BracedCall("<|\"|>")),
        ),
        anywhere(
            "<start_function_call>",
            DelimiterEffect::Call(CallBody::BracedCall("<escape>")),
        ),
        anywhere("```tool_code", DelimiterEffect::Call(CallBody::BarePython)).until("```"),
        anywhere("```tool_call", DelimiterEffect::Call(CallBody::BareJson)).until("```"),
        anywhere("```json", DelimiterEffect::Call(CallBody::BareJson)).until("```"),
        start("[", DelimiterEffect::CallHere(CallBody::BareList)),
        start("{", DelimiterEffect::CallHere(CallBody::BareJson)),
        between("<tool_call|>", DelimiterEffect::Close),
        between("<end_function_call>", DelimiterEffect::Close),
    ],
    inside: &["<|\"|>", "<escape>"],
    ends_reasoning: false,
};

/// An object or a list of objects, bare or in a code fence: for models without a call syntax of their own.
pub(super) static JSON: FamilySyntax = FamilySyntax {
    markers: &[
        start("{", DelimiterEffect::CallHere(CallBody::BareJson)),
        start("[", DelimiterEffect::CallHere(CallBody::BareJson)),
        anywhere("```json", DelimiterEffect::Call(CallBody::BareJson)).until("```"),
        anywhere("<tool_call>", DelimiterEffect::Call(CallBody::Json)),
        between("</tool_call>", DelimiterEffect::Close),
        between(",", DelimiterEffect::Separator),
        between(";", DelimiterEffect::Separator),
    ],
    inside: &[],
    ends_reasoning: false,
};

/// Reasoning delimiters of a family.
#[derive(Debug)]
pub(super) struct ReasoningDelimiters {
    pub(super) opens: &'static [&'static str],
    pub(super) closes: &'static [&'static str],
    /// Delimiters around the answer that are dropped.
    pub(super) drops: &'static [&'static str],
}

pub(super) static THINK: ReasoningDelimiters = ReasoningDelimiters {
    opens: &["<think>"],
    closes: &["</think>"],
    drops: &[],
};

pub(super) static BRACKETS: ReasoningDelimiters = ReasoningDelimiters {
    opens: &["[THINK]"],
    closes: &["[/THINK]"],
    drops: &[],
};

pub(super) static GRANITE_THOUGHTS: ReasoningDelimiters = ReasoningDelimiters {
    opens: &[
        "<think>",
        "Here is my thought process:",
        "Here's my thought process:",
    ],
    closes: &["</think>", "Here is my response:", "Here's my response:"],
    drops: &["<response>", "</response>"],
};

pub(super) static CHANNEL: ReasoningDelimiters = ReasoningDelimiters {
    opens: &["<|channel>thought"],
    closes: &["<channel|>"],
    drops: &[],
};

pub(super) static TRIANGLES: ReasoningDelimiters = ReasoningDelimiters {
    opens: &["◁think▷"],
    closes: &["◁/think▷"],
    drops: &[],
};
