//! A compiled document.

use crate::compile;
use crate::error::Faults;
use crate::expr::Expr;
use crate::inputs::{self, Input};
use crate::ops::{CustomOp, Field, Ops};
use crate::value::{Kind, Value};
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// Index of a variable.
pub(crate) type Slot = usize;

/// A compiled document: inputs, variables, instructions.
pub struct Program {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) inputs: Vec<Input>,
    /// Models in use, by their ids in the document; the first is the default one, which may have no id.
    pub(crate) models: Vec<Option<String>>,
    /// By slot; the inputs first, in their order.
    pub(crate) variables: Vec<Variable>,
    pub(crate) code: Vec<Step>,
    /// Paths of steps in the document, by `Step::place`.
    pub(crate) places: Vec<String>,
    pub(crate) loops: usize,
    pub(crate) channels: Vec<Direction>,
    pub(crate) return_value: Option<Slot>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Program({}, {} steps)", self.name, self.places.len())
    }
}

impl Program {
    /// Compiles a document.
    ///
    /// # Errors
    /// All errors of the document, each with a location.
    pub fn compile(document: &[u8], ops: &Ops) -> Result<Self, Faults> {
        compile::compile(document, ops)
    }

    /// The program's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The program's description.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Declared inputs.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// Ids of the models in use; `None` is the default model.
    pub fn models(&self) -> impl Iterator<Item = Option<&str>> {
        self.models.iter().map(Option::as_deref)
    }

    /// Parses `name=text` of a command line: the text itself for text inputs, JSON for others.
    pub fn read(&self, name: &str, text: &str) -> Json {
        inputs::read(&self.inputs, name, text)
    }

    pub(crate) fn bind(
        &self,
        given: &Map<String, Json>,
        eos: Option<u32>,
    ) -> Result<Vec<Value>, Faults> {
        inputs::bind(&self.inputs, given, eos)
    }
}

/// A variable.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Variable {
    pub(crate) name: Arc<str>,
    pub(crate) kind: Kind,
}

/// The program's end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Not used yet.
    Unknown,
    /// The program is the writer.
    Out,
    /// The program is the reader.
    In,
}

/// An instruction and the step of that instruction.
pub(crate) struct Step {
    pub(crate) instr: Instr,
    pub(crate) place: usize,
}

/// A parameter: a literal or a variable.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Param<T> {
    Literal(T),
    Var(Slot),
    /// The length of a variable's value; integers only.
    Len(Slot),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Condition {
    Always(bool),
    Var(Slot),
}

pub(crate) enum Instr {
    Op(Op),
    Jump(usize),
    JumpUnless(Condition, usize),
    /// Begins a loop: sets the count to 0.
    Loop(usize),
    /// Head of a loop: continues with the body, or at `exit`.
    Again {
        id: usize,
        condition: Condition,
        max: Option<Param<i64>>,
        exit: usize,
    },
    /// Begins a batched loop.
    Window(Box<WindowSpec>),
    /// Head of a batched loop.
    WindowHead {
        exit: usize,
    },
    /// End of an iteration; continues at the head.
    WindowNext {
        head: usize,
    },
    /// Leaves a batched loop, after all earlier iterations are emitted.
    WindowBreak {
        head: usize,
    },
    /// Ends the program.
    Return(Option<Slot>),
}

/// A batched loop.
#[derive(Clone, Debug)]
pub(crate) struct WindowSpec {
    pub(crate) condition: Condition,
    pub(crate) max: Option<Param<i64>>,
    pub(crate) batch: Param<i64>,
    pub(crate) token: Slot,
    pub(crate) channel: Option<Slot>,
    pub(crate) ahead: Param<bool>,
    pub(crate) interval_us: Param<i64>,
    pub(crate) out: Slot,
    pub(crate) eos: Option<Param<i64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrefillMode {
    /// Appends the input.
    Delta,
    /// The input is the whole transcript, which must start with the present one.
    FullAppendOnly,
    /// The input replaces the transcript.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenizeMode {
    /// The beginning of a text, with the vocabulary's beginning-of-sequence token.
    Prompt,
    /// A text rendered by a chat template.
    Chat,
    /// A rendered text that continues the session's transcript.
    Delta,
    /// A text in the middle.
    Continue,
}

/// Sampling parameters of `sample`.
#[derive(Clone, Debug)]
pub(crate) struct SampleParams {
    pub(crate) temperature: Param<f64>,
    pub(crate) top_k: Param<i64>,
    pub(crate) top_p: Param<f64>,
    pub(crate) min_p: Param<f64>,
    pub(crate) repeat_penalty: Param<f64>,
    pub(crate) repeat_last_n: Param<i64>,
    pub(crate) presence_penalty: Param<f64>,
    pub(crate) frequency_penalty: Param<f64>,
    pub(crate) seed: Param<i64>,
}

/// An op without control flow.
pub(crate) enum Op {
    Prefill {
        model: usize,
        input: Slot,
        output_pos: Option<Slot>,
        mode: PrefillMode,
        logits: Slot,
    },
    GraphForward {
        model: usize,
        token: Slot,
        position: Option<Param<i64>>,
        logits: Slot,
    },
    Sample {
        logits: Slot,
        output: Slot,
        logprob: Option<Slot>,
        params: Box<SampleParams>,
    },
    /// The embedding of a prompt.
    Forward {
        model: usize,
        input: Slot,
        output: Slot,
        normalize: Param<bool>,
    },
    GetItem {
        input: Slot,
        index: Param<i64>,
        output: Slot,
        kind: Kind,
    },
    AppendItem {
        input: Slot,
        output: Slot,
    },
    Tokenize {
        model: usize,
        input: Slot,
        output: Slot,
        base: Option<Slot>,
        mode: TokenizeMode,
    },
    Detokenize {
        model: usize,
        input: Slot,
        output: Slot,
        /// Whether the text includes control tokens.
        all: bool,
    },
    FormatChat {
        model: usize,
        input: Slot,
        output: Slot,
        opens_answer: Param<bool>,
        system: Option<Param<Arc<str>>>,
        delta: bool,
        kwargs: Map<String, Json>,
    },
    ComputeInt {
        output: Slot,
        expr: Expr,
    },
    ComputeFloat {
        output: Slot,
        expr: Expr,
    },
    CheckEos {
        model: usize,
        input: Slot,
        output: Slot,
        eos: Option<Param<i64>>,
    },
    AppendToken {
        input: Slot,
        output: Slot,
    },
    StreamInit {
        output: Slot,
        channel: usize,
        capacity: Param<i64>,
    },
    StreamWrite {
        channel: Slot,
        input: Slot,
    },
    StreamRead {
        channel: Slot,
        output: Slot,
        wait: Param<bool>,
    },
    /// `stream_flush`, `capture_end`, `capture_wait`, `synchronize`: emit everything written so far.
    Commit {
        ends: bool,
        wait: Param<bool>,
    },
    CaptureBegin,
    Custom {
        op: Arc<dyn CustomOp>,
        fields: Vec<(Field, Bound)>,
    },
}

/// A field of an added op in a document.
pub(crate) enum Bound {
    Var(Slot),
    Literal(Value),
}
