//! The table of dialects: how each is asked, read, and how it spells every ending. One more dialect is
//! one more row of [`DIALECTS`].

use super::automaton::{Closes, Item, Rules};
use super::framing::{self, Event, Why};
use super::{messages, responses, ui_messages};
use serde_json::{Value, json};

/// How a request can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Eos,
    StopString,
    Length,
    Cancelled,
    /// The caller's deadline passed on the way.
    Deadline,
    /// The caller's deadline cannot be met.
    Unattainable,
    Queue,
    FirstToken,
    Idle,
    Total,
    Reader,
    Panic,
    Inference,
    NotFinite,
    /// A grammar reached a limit.
    Constraint,
    Shutdown,
    NeverFits,
}

impl Fate {
    /// Whether the same tokens end the same way, whenever they are made.
    pub(crate) fn is_of_the_tokens(self) -> bool {
        use Fate::{Constraint, Eos, Inference, Length, NotFinite, Panic, StopString};
        matches!(
            self,
            Eos | StopString | Length | Panic | Inference | NotFinite | Constraint
        )
    }
}

/// An ending in a dialect's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    End(&'static str),
    /// A code, and what its message says.
    Error(&'static str, &'static str),
}

/// One wire format.
pub(crate) struct Dialect {
    /// As `?dialect=` has it.
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    /// Puts the prompt into a body.
    pub(crate) prompt: fn(&mut Value, &str),
    /// Puts the fields of a request, as OpenAI has them, where this dialect has them.
    pub(crate) shape: fn(&mut Value),
    /// Takes a body apart, and what ends a part of it.
    pub(crate) events: fn(&str) -> Result<Vec<Event>, Why>,
    pub(crate) frame_end: &'static str,
    pub(crate) frames: fn(&[Event]) -> Result<Vec<Item>, Why>,
    pub(crate) whole: fn(u16, &Value) -> Result<Vec<Item>, Why>,
    pub(crate) closes: Closes,
    /// Whether an error after some tokens is counted.
    pub(crate) counts_errors: bool,
    /// In a stream whose head is out.
    pub(crate) streamed: fn(Fate) -> Words,
    /// As the answer to a request: its status, and its words.
    pub(crate) answered: fn(Fate) -> (u16, Words),
}

impl Dialect {
    /// Of a stream that counts its tokens.
    pub(crate) fn rules(&self, choices: u64) -> Rules {
        Rules {
            choices,
            closes: self.closes,
            counts: true,
            counts_errors: self.counts_errors,
        }
    }

    /// The whole events at the beginning of a body.
    pub(crate) fn events_before_the_cut(&self, body: &str) -> Result<Vec<Event>, Why> {
        let whole = body.rfind(self.frame_end);
        (self.events)(whole.map_or("", |at| &body[..at + self.frame_end.len()]))
    }
}

const CHAT: Dialect = Dialect {
    name: "openai.chat",
    path: "/v1/chat/completions",
    prompt: |body, text| body["messages"] = json!([{"role": "user", "content": text}]),
    shape: |_| {},
    events: framing::sse,
    frame_end: "\n\n",
    frames: framing::openai,
    whole: framing::openai_whole,
    closes: Closes::Good,
    counts_errors: true,
    streamed: |fate| openai(fate).1,
    answered: openai,
};

const COMPLETIONS: Dialect = Dialect {
    name: "openai.completions",
    path: "/v1/completions",
    prompt: |body, text| body["prompt"] = json!(text),
    ..CHAT
};

const JOB: Dialect = Dialect {
    name: "native.job",
    path: "/v1/inference",
    prompt: |body, text| body["prompt"] = json!(text),
    shape: |_| {},
    events: framing::sse,
    frame_end: "\n\n",
    frames: framing::job,
    whole: framing::job_whole,
    closes: Closes::Always,
    counts_errors: true,
    streamed: job,
    answered: |fate| match fate {
        Fate::Cancelled => (499, Words::Error("CANCELLED", "cancelled")),
        // A bad field is named; that has no code of its own.
        Fate::NeverFits => (400, Words::Error("INVALID_REQUEST", "pages of memory")),
        fate => (openai(fate).0, job(fate)),
    },
};

const MESSAGES: Dialect = Dialect {
    name: "anthropic.messages",
    path: "/v1/messages",
    shape: |body| {
        if let Some(schema) = take_schema(body) {
            body["output_config"] = json!({"format": {"type": "json_schema", "schema": schema}});
        }
    },
    frames: messages::frames,
    whole: messages::whole,
    streamed: |fate| anthropic(fate).1,
    answered: anthropic,
    ..CHAT
};

const RESPONSES: Dialect = Dialect {
    name: "openai.responses",
    path: "/v1/responses",
    prompt: |body, text| body["input"] = json!(text),
    shape: |body| {
        let fields = body.as_object_mut().expect("a body");
        if let Some(tokens) = fields.remove("max_tokens") {
            fields.insert("max_output_tokens".to_owned(), tokens);
        }
        if let Some(schema) = take_schema(body) {
            let format = json!({"type": "json_schema", "name": "it", "schema": schema});
            body["text"] = json!({"format": format});
        }
    },
    frames: responses::frames,
    whole: responses::whole,
    streamed: |fate| response(fate).1,
    answered: response,
    ..CHAT
};

const OLLAMA_CHAT: Dialect = Dialect {
    name: "ollama.chat",
    path: "/api/chat",
    shape: into_options,
    events: framing::lines,
    frame_end: "\n",
    frames: framing::ollama,
    whole: framing::ollama_whole,
    closes: Closes::Never,
    ..CHAT
};

const OLLAMA_GENERATE: Dialect = Dialect {
    name: "ollama.generate",
    path: "/api/generate",
    prompt: |body, text| body["prompt"] = json!(text),
    ..OLLAMA_CHAT
};

const AI_SDK_UI: Dialect = Dialect {
    name: "ai-sdk.ui",
    path: "/v1/ai-sdk/chat",
    prompt: ui_messages::prompt,
    frames: ui_messages::frames,
    whole: ui_messages::whole,
    closes: Closes::Always,
    counts_errors: false,
    streamed: ui_message_stream,
    answered: |fate| match openai(fate) {
        (200, _) => (200, Words::End(ui_messages::COMPLETE)),
        error => error,
    },
    ..CHAT
};

/// The schema that the answer is to be valid under, where there is one: each dialect has it in a field of its own.
fn take_schema(body: &mut Value) -> Option<Value> {
    let mut form = body.as_object_mut()?.remove("response_format")?;
    Some(form["json_schema"]["schema"].take())
}

/// What says how the answer is made is among the options; and Ollama's defaults are not OpenAI's.
fn into_options(body: &mut Value) {
    if let Some(schema) = take_schema(body) {
        body["format"] = schema;
    }
    let mut options = json!({"temperature": 1, "top_k": 0, "top_p": 1, "repeat_penalty": 1});
    let fields = body.as_object_mut().expect("a body");
    for name in [
        "temperature",
        "seed",
        "stop",
        "ignore_eos",
        "stop_token_ids",
        "logit_bias",
    ] {
        if let Some(value) = fields.remove(name) {
            options[name] = value;
        }
    }
    if let Some(tokens) = fields.remove("max_tokens") {
        options["num_predict"] = tokens;
    }
    fields.insert("options".to_owned(), options);
}

/// All there are.
pub(crate) static DIALECTS: [Dialect; 8] = [
    CHAT,
    COMPLETIONS,
    JOB,
    MESSAGES,
    RESPONSES,
    OLLAMA_CHAT,
    OLLAMA_GENERATE,
    AI_SDK_UI,
];
/// The one with jobs that run without a client.
pub(crate) static JOBS: &Dialect = &DIALECTS[2];

fn openai(fate: Fate) -> (u16, Words) {
    use Words::{End, Error};
    match fate {
        Fate::Eos | Fate::StopString => (200, End("stop")),
        Fate::Length => (200, End("length")),
        Fate::Cancelled => (499, Error("cancelled", "was cancelled")),
        Fate::Deadline => (504, Error("timeout", "(deadline)")),
        Fate::Unattainable => (503, Error("deadline_unattainable", "the deadline leaves")),
        Fate::Queue => (503, Error("timeout", "(queue)")),
        Fate::FirstToken => (504, Error("timeout", "(first_token)")),
        Fate::Idle => (504, Error("timeout", "(idle)")),
        Fate::Total => (504, Error("timeout", "(total)")),
        Fate::Reader => (504, Error("timeout", "(reader)")),
        Fate::Panic => (500, Error("internal_error", "others are not affected")),
        Fate::Inference => (500, Error("inference_failed", "the model failed")),
        Fate::NotFinite => (500, Error("inference_failed", "logits are NaN or infinite")),
        Fate::Constraint => (400, Error("grammar_limit", "reached a limit")),
        Fate::Shutdown => (503, Error("shutting_down", "shutting down")),
        Fate::NeverFits => (400, Error("too_long_for_memory", "pages of memory")),
    }
}

/// Errors have a message and no code.
fn ui_message_stream(fate: Fate) -> Words {
    match (fate, openai(fate).1) {
        (Fate::Cancelled, _) => Words::Error(ui_messages::ABORT, "was cancelled"),
        (_, Words::Error(_, message)) => Words::Error(ui_messages::ERROR, message),
        (_, end) => end,
    }
}

fn anthropic(fate: Fate) -> (u16, Words) {
    use Words::End;
    match (fate, openai(fate)) {
        (Fate::Eos, _) => (200, End("end_turn")),
        (Fate::StopString, _) => (200, End("stop_sequence")),
        (Fate::Length, _) => (200, End("max_tokens")),
        // Its clients know a server without room by this.
        (_, (503, words)) => (529, words),
        (_, same) => same,
    }
}

fn response(fate: Fate) -> (u16, Words) {
    use Words::End;
    match (fate, openai(fate)) {
        (Fate::Eos | Fate::StopString, _) => (200, End("completed")),
        (Fate::Length, _) => (200, End("incomplete")),
        (_, same) => same,
    }
}

fn job(fate: Fate) -> Words {
    use Words::{End, Error};
    match fate {
        Fate::Eos => End("EOS"),
        Fate::StopString => End("STOP_SEQUENCE"),
        Fate::Length => End("MAX_TOKENS"),
        Fate::Cancelled => End("CANCELLED"),
        Fate::Deadline => Error("TIMEOUT", "(deadline)"),
        Fate::Unattainable => Error("TIMEOUT", "the deadline leaves"),
        Fate::Queue => Error("TIMEOUT", "(queue)"),
        Fate::FirstToken => Error("TIMEOUT", "(first_token)"),
        Fate::Idle => Error("TIMEOUT", "(idle)"),
        Fate::Total => Error("TIMEOUT", "(total)"),
        Fate::Reader => Error("TIMEOUT", "(reader)"),
        Fate::Panic => Error("INTERNAL", "others are not affected"),
        Fate::Inference => Error("INFERENCE_FAILED", "the model failed"),
        Fate::NotFinite => Error("INFERENCE_FAILED", "logits are NaN or infinite"),
        Fate::Constraint => Error("INVALID_REQUEST", "reached a limit"),
        Fate::Shutdown => Error("WORKER_UNHEALTHY", "shutting down"),
        Fate::NeverFits => Error("INSUFFICIENT_RESOURCES", "pages of memory"),
    }
}
