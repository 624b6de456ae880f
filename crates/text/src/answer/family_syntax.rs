//! Delimiters of each family, as data for the parser in `delimited_parser`.
//!
//! The formats are taken from the models' published chat templates and tokenizers.

use super::named_call::{NameOrder, NameSyntax};
use super::tagged_call::TagSyntax;
use CallBody::{
    BareJson, BareList, BarePython, BracedCall, Json, JsonOrNamed, JsonOrPython, NamedCall,
    TaggedCall,
};
use DelimiterEffect::{Call, CallHere, Close, Fence, Section, Separator};

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
    FamilyDelimiter {
        text,
        place,
        then,
        close: "",
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

/// Closes a [`Fence`].
pub(super) const FENCE_END: &str = "```\n";

/// Calls without a family's delimiters, of models of all families: small models often leave the delimiters out, or write
/// others. Such a text is a call where an answer begins with it and all names in it are known; else it is content.
static BARE: [FamilyDelimiter; 24] = [
    start("{", CallHere(BareJson)),
    start("[", CallHere(BareJson)),
    start("<tools>", Call(BareJson)).until("</tools>"),
    start("<tool>", Call(BareJson)).until("</tool>"),
    start("<json>", Call(BareJson)).until("</json>"),
    start("<response>", Call(BareJson)).until("</response>"),
    start("<function_call>", Call(BareJson)).until("</function_call>"),
    between(",", Separator),
    between(";", Separator),
    start(FENCE_END, Fence),
    start("```json", Fence),
    start("```xml", Fence),
    start("```html", Fence),
    start("```python", Fence),
    start("```javascript", Fence),
    start("```typescript", Fence),
    start("```bash", Fence),
    start("```shell", Fence),
    start("```yaml", Fence),
    start("```text", Fence),
    start("```plaintext", Fence),
    start("```markdown", Fence),
    start("```tool_call", Fence),
    start("```tool_code", Fence),
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

/// No control tokens inside calls, and reasoning that only its own delimiters end.
const PLAIN: FamilySyntax = FamilySyntax {
    markers: &[],
    inside: &[],
    ends_reasoning: false,
};

/// `<tool_call>` and an object.
pub(super) static HERMES: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere("<tool_call>", Call(Json)),
        between("</tool_call>", Close),
    ],
    ..PLAIN
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
        anywhere("<tool_call>", Section),
        anywhere("<function=", Call(TaggedCall(&FUNCTION))),
        between("</function>", Section),
        between("</tool_call>", Close),
    ],
    ..PLAIN
};

/// An object and nothing else, after `<|python_tag|>` or not; or `<function=NAME>` and an object.
pub(super) static LLAMA3: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere("<|python_tag|>", Call(JsonOrPython)),
        anywhere("<function=", Call(TaggedCall(&FUNCTION))),
        start("{", CallHere(BareJson)),
        between("</function>", Close),
        between(";", Separator),
    ],
    ends_reasoning: true,
    ..PLAIN
};

/// `[name(key=value), ..]` and nothing else, between `<|python_start|>` and `<|python_end|>` or not.
pub(super) static LLAMA4: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere("<|python_start|>", Section),
        start("[", CallHere(BareList)),
        between("<|python_end|>", Close),
    ],
    ends_reasoning: true,
    ..PLAIN
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
        anywhere("[TOOL_CALLS]", Call(JsonOrNamed(&ARGS))),
        start("[{", CallHere(BareJson)),
        start("[ {", CallHere(BareJson)),
        start("[\n{", CallHere(BareJson)),
        start("[\n {", CallHere(BareJson)),
        start("[\n  {", CallHere(BareJson)),
        start("[\n    {", CallHere(BareJson)),
        start("[\n\t{", CallHere(BareJson)),
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
        anywhere("<｜tool▁calls▁begin｜>", Section),
        anywhere("<｜tool▁call▁begin｜>", Call(NamedCall(&DEEPSEEK_CALL))).until("```"),
        between("<｜tool▁call▁end｜>", Section),
        between("<｜tool▁calls▁end｜>", Close),
    ],
    inside: &["<｜tool▁sep｜>"],
    ends_reasoning: true,
};

/// `<|tool_call|>` or `functools`, and a list of objects.
pub(super) static PHI4: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere("<|tool_call|>", Call(Json)),
        start("functools", Call(Json)),
        between("<|/tool_call|>", Close),
    ],
    ends_reasoning: true,
    ..PLAIN
};

/// `<|tool_call|>` and a list of objects (3), `<tool_call>` and an object (4).
pub(super) static GRANITE: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere("<|tool_call|>", Call(Json)),
        anywhere("<tool_call>", Call(Json)),
        between("</tool_call>", Close),
    ],
    ..PLAIN
};

static KIMI_CALL: NameSyntax = NameSyntax {
    separators: &["<|tool_call_argument_begin|>"],
    ends: &["<|tool_call_end|>"],
    order: NameOrder::Counted,
};

/// A section of calls, each an id that contains the name, and an object.
pub(super) static KIMI_K2: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere("<|tool_calls_section_begin|>", Section),
        anywhere("<|tool_call_begin|>", Call(NamedCall(&KIMI_CALL))),
        between("<|tool_call_end|>", Section),
        between("<|tool_calls_section_end|>", Close),
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
    markers: &[anywhere("<tool_call>", Call(TaggedCall(&GLM_CALL)))],
    inside: &[
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "</tool_call>",
    ],
    ..PLAIN
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
        anywhere("<minimax:tool_call>", Section),
        between("<invoke name=\"", Call(TaggedCall(&INVOKE))),
        between("</minimax:tool_call>", Close),
    ],
    ..PLAIN
};

/// `<|tool_call>call:NAME{..}` (Gemma 4), `<start_function_call>call:NAME{..}` (FunctionGemma), and code
/// fences for Gemma 3, which has no call syntax of its own.
pub(super) static GEMMA: FamilySyntax = FamilySyntax {
    markers: &[
        anywhere("<|tool_call>", Call(BracedCall("<|\"|>"))),
        anywhere("<start_function_call>", Call(BracedCall("<escape>"))),
        anywhere("```tool_code", Call(BarePython)).until("```"),
        anywhere("```tool_call", Call(BareJson)).until("```"),
        anywhere("```json", Call(BareJson)).until("```"),
        start("[", CallHere(BareList)),
        start("{", CallHere(BareJson)),
        between("<tool_call|>", Close),
        between("<end_function_call>", Close),
    ],
    inside: &["<|\"|>", "<escape>"],
    ..PLAIN
};

/// An object or a list of objects, bare or in a code fence: for models without a call syntax of their own.
pub(super) static JSON: FamilySyntax = FamilySyntax {
    markers: &[
        start("{", CallHere(BareJson)),
        start("[", CallHere(BareJson)),
        anywhere("```json", Call(BareJson)).until("```"),
        anywhere("<tool_call>", Call(Json)),
        between("</tool_call>", Close),
        between(",", Separator),
        between(";", Separator),
    ],
    ..PLAIN
};

/// Reasoning delimiters of a family.
#[derive(Debug)]
pub(super) struct ReasoningDelimiters {
    pub(super) opens: &'static [&'static str],
    pub(super) closes: &'static [&'static str],
    /// Delimiters around the answer that are dropped.
    pub(super) drops: &'static [&'static str],
}

impl ReasoningDelimiters {
    const fn new(opens: &'static [&'static str], closes: &'static [&'static str]) -> Self {
        Self {
            opens,
            closes,
            drops: &[],
        }
    }
}

pub(super) static THINK: ReasoningDelimiters =
    ReasoningDelimiters::new(&["<think>"], &["</think>"]);

pub(super) static BRACKETS: ReasoningDelimiters =
    ReasoningDelimiters::new(&["[THINK]"], &["[/THINK]"]);

pub(super) static GRANITE_THOUGHTS: ReasoningDelimiters = ReasoningDelimiters {
    opens: &[
        "<think>",
        "Here is my thought process:",
        "Here's my thought process:",
    ],
    closes: &["</think>", "Here is my response:", "Here's my response:"],
    drops: &["<response>", "</response>"],
};

pub(super) static CHANNEL: ReasoningDelimiters =
    ReasoningDelimiters::new(&["<|channel>thought"], &["<channel|>"]);

pub(super) static TRIANGLES: ReasoningDelimiters =
    ReasoningDelimiters::new(&["◁think▷"], &["◁/think▷"]);
