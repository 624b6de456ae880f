//! A compiled document.

use crate::compile;
use crate::error::Faults;
use crate::expr::Expr;
use crate::inputs::{self, Input};
use crate::ops::{CustomOp, Field, Ops};
use crate::value::{Kind, Value};
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// Which variable.
pub(crate) type Slot = usize;

/// A compiled document: what it takes, and what it does.
pub struct Program {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) inputs: Vec<Input>,
    /// Models it uses, by the ids it calls them; the first is the default one, which may have none.
    pub(crate) models: Vec<Option<String>>,
    /// By slot; the inputs first, in their order.
    pub(crate) variables: Vec<Variable>,
    pub(crate) code: Vec<Step>,
    /// Where a step stands in the document, by `Step::place`.
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
    /// All that is wrong with it, each with its place.
    pub fn compile(document: &[u8], ops: &Ops) -> Result<Self, Faults> {
        compile::compile(document, ops)
    }

    /// Name of the program.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it says of itself.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// What it takes.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The models it names; `None` is whichever is the default.
    pub fn models(&self) -> impl Iterator<Item = Option<&str>> {
        self.models.iter().map(Option::as_deref)
    }

    /// What `name=text`, as said on a command line, means: of a text the text itself, of others JSON.
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

/// Which end of a channel is the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Not used yet.
    Unknown,
    /// The program writes.
    Out,
    /// The program reads.
    In,
}

/// One instruction, and where it comes from.
pub(crate) struct Step {
    pub(crate) instr: Instr,
    pub(crate) place: usize,
}

/// What a step may be told as it is or by a variable.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Param<T> {
    Literal(T),
    Var(Slot),
    /// How long a variable's value is; integers only.
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
    /// A loop begins: its count is 0.
    Loop(usize),
    /// A loop's head: on to its body, or to `exit`.
    Again {
        id: usize,
        condition: Condition,
        max: Option<Param<i64>>,
        exit: usize,
    },
    /// A batched loop begins.
    Window(Box<WindowSpec>),
    /// The head of a batched loop, where a window begins or the loop exits.
    WindowHead {
        exit: usize,
    },
    /// The end of an iteration; back to the head.
    WindowNext {
        head: usize,
    },
    /// Leaves it, when what came before is emitted.
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
    /// The input is appended.
    Delta,
    /// The input is the whole transcript, which must begin with what is there.
    FullAppendOnly,
    /// The input is the whole transcript, whatever was there.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenizeMode {
    /// The beginning of a text, with what the vocabulary puts there.
    Prompt,
    /// As a chat template rendered it.
    Chat,
    /// As a chat template rendered it, continuing the session's transcript.
    Delta,
    /// Somewhere in a text.
    Continue,
}

/// Numbers of `sample`.
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

/// What happens in one place.
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
    /// A prompt as one vector.
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
        /// Control tokens' texts too.
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
    /// `stream_flush`, `capture_end`, `capture_wait`, `synchronize`: what was written is emitted.
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
