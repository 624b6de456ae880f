//! The table of wire protocols: how requests are written and responses are read, and the finish reason or error of every
//! end. Each protocol is a row of [`DIALECTS`].

use super::automaton::{Closes, Item, Rules};
use super::framing::{self, Event, Why};
use super::{infill, messages, responses, ui_messages};
use serde_json::{Value, json};

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Eos,
    StopString,
    Length,
    Cancelled,
    /// The deadline of the request passed while the request was running.
    Deadline,
    /// The deadline of the request cannot be met.
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
    /// Whether the end depends on the tokens alone, not on time.
    pub(crate) fn is_of_the_tokens(self) -> bool {
        use Fate::{Constraint, Eos, Inference, Length, NotFinite, Panic, StopString};
        matches!(
            self,
            Eos | StopString | Length | Panic | Inference | NotFinite | Constraint
        )
    }
}

/// An end as a wire protocol represents it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    End(&'static str),
    /// An error code, and a part of the message.
    Error(&'static str, &'static str),
}

/// One wire protocol.
pub(crate) struct Dialect {
    /// Value of `?dialect=`.
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    /// Adds the prompt to a request body.
    pub(crate) prompt: fn(&mut Value, &str),
    /// Moves the fields of a request from their places in OpenAI's chat to those of this protocol.
    pub(crate) shape: fn(&mut Value),
    /// Splits a response body into events.
    pub(crate) events: fn(&str) -> Result<Vec<Event>, Why>,
    pub(crate) frame_end: &'static str,
    pub(crate) frames: fn(&[Event]) -> Result<Vec<Item>, Why>,
    pub(crate) whole: fn(u16, &Value) -> Result<Vec<Item>, Why>,
    pub(crate) closes: Closes,
    /// Whether an error after some tokens is counted.
    pub(crate) counts_errors: bool,
    /// The end in a streaming response.
    pub(crate) streamed: fn(Fate) -> Words,
    /// The end as a response of its own: the status and the error.
    pub(crate) answered: fn(Fate) -> (u16, Words),
}

impl Dialect {
    /// The rules for a stream that counts its tokens.
    pub(crate) fn rules(&self, choices: u64) -> Rules {
        Rules {
            choices,
            closes: self.closes,
            counts: true,
            counts_errors: self.counts_errors,
        }
    }

    /// The complete events at the start of a truncated body.
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
        // An invalid field is named; there is no code for this error.
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

const LLAMA_COMPLETION: Dialect = Dialect {
    name: "llama.completion",
    path: "/completion",
    prompt: |body, text| body["prompt"] = json!(text),
    shape: |body| {
        if let Some(schema) = take_schema(body) {
            body["json_schema"] = schema;
        }
    },
    frames: infill::frames,
    whole: infill::whole,
    closes: Closes::Never,
    counts_errors: false,
    streamed: |fate| llama_end(fate).1,
    answered: llama_end,
    ..CHAT
};

const INFILL: Dialect = Dialect {
    name: "llama.infill",
    path: "/infill",
    prompt: infill::prompt,
    ..LLAMA_COMPLETION
};

/// Removes and returns the JSON schema of the response format; the field depends on the protocol.
fn take_schema(body: &mut Value) -> Option<Value> {
    let mut form = body.as_object_mut()?.remove("response_format")?;
    Some(form["json_schema"]["schema"].take())
}

/// Moves sampling parameters into `options`.
fn into_options(body: &mut Value) {
    if let Some(schema) = take_schema(body) {
        body["format"] = schema;
    }
    let mut options = json!({});
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

/// Wire protocols in which a request with the same text has the same answer.
pub(crate) static DIALECTS: [Dialect; 9] = [
    CHAT,
    COMPLETIONS,
    JOB,
    MESSAGES,
    RESPONSES,
    OLLAMA_CHAT,
    OLLAMA_GENERATE,
    AI_SDK_UI,
    LLAMA_COMPLETION,
];
/// All wire protocols: the prompt of a gap has tokens that the others do not have.
pub(crate) static ALL_DIALECTS: [Dialect; 10] = [
    CHAT,
    COMPLETIONS,
    JOB,
    MESSAGES,
    RESPONSES,
    OLLAMA_CHAT,
    OLLAMA_GENERATE,
    AI_SDK_UI,
    LLAMA_COMPLETION,
    INFILL,
];
/// The jobs API, whose streams run without a client.
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

fn llama_end(fate: Fate) -> (u16, Words) {
    use Words::End;
    match (fate, openai(fate)) {
        (Fate::Eos, _) => (200, End("eos")),
        (Fate::StopString, _) => (200, End("word")),
        (Fate::Length, _) => (200, End("limit")),
        (_, same) => same,
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
        // Anthropic's status of an overloaded server, unless it stops.
        (fate, (503, words)) if fate != Fate::Shutdown => (529, words),
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
