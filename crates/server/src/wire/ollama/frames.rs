//! `POST /api/generate` and `/api/chat`: from events to lines, and to the whole answer.

use super::{ending, refusal};
use crate::wire::anthropic::content::input;
use crate::wire::dialect::Dialect;
use crate::wire::framing::Framing;
use crate::wire::native::rfc3339;
use crate::wire::openai::{chunk, logprobs};
use crate::wire::{clock, json};
use bytes::BytesMut;
use engine::Token;
use generate::error::ApiError;
use generate::output::collected::{Answer, WholeCall};
use generate::output::event::{At, Call, CallPart, Event, Kind, Logprobs, Usage};
use generate::stream_source::StreamSource;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{End, Read};
use text::Tokenizer;

/// Tokens of a log that are read at a time.
const TOKENS_PER_READ: usize = 256;

/// Where the text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// `message.content`, of a chat.
    Message,
    /// `response`.
    Response,
}

/// The writer of one answer.
///
/// A stream that was opened in another format may have several answers. Each line then names its
/// `choice`, and each of them is `done` once.
pub(crate) struct Frames {
    source: Arc<StreamSource>,
    place: Place,
    framing: Framing,
    /// `{"model":..,"created_at":"`
    head: Vec<u8>,
    /// The call of each choice that is not whole yet: this format tells it at once.
    calls: Vec<Option<WholeCall>>,
}

impl Frames {
    /// Renders what is constant.
    pub(crate) fn new(source: &Arc<StreamSource>, place: Place, framing: Framing) -> Self {
        let mut head = BytesMut::new();
        json::raw(&mut head, "{\"model\":");
        json::string(&mut head, &source.meta().model);
        json::raw(&mut head, ",\"created_at\":\"");
        Self {
            source: Arc::clone(source),
            place,
            framing,
            head: head.to_vec(),
            calls: vec![None; source.meta().choices],
        }
    }

    /// Up to and with what is said.
    fn object(&self, said: &Said<'_>, out: &mut BytesMut) {
        out.extend_from_slice(&self.head);
        rfc3339::write_nanos(clock::wall(clock::now()), out);
        let (before, after) = match self.place {
            Place::Message => ("\",\"message\":{\"role\":\"assistant\",\"content\":", "}"),
            Place::Response => ("\",\"response\":", ""),
        };
        json::raw(out, before);
        json::string(out, said.text);
        if !said.thinking.is_empty() {
            json::raw(out, ",\"thinking\":");
            json::string(out, said.thinking);
        }
        for (i, call) in said.calls.iter().enumerate() {
            json::raw(out, if i == 0 { ",\"tool_calls\":[" } else { "," });
            json::raw(out, "{\"id\":");
            json::string(out, &call.id);
            json::raw(out, ",\"function\":{\"name\":");
            json::string(out, &call.name);
            json::raw(out, ",\"arguments\":");
            json::raw(out, &input(call));
            json::raw(out, "}}");
        }
        json::raw(out, if said.calls.is_empty() { "" } else { "]" });
        json::raw(out, after);
    }

    /// A line of something that is not the end.
    fn line(&self, said: &Said<'_>, at: &At<'_>, out: &mut BytesMut) {
        self.framing.begin(out);
        self.object(said, out);
        self.logprobs(at.logprobs, out);
        self.choice(at.choice, out);
        json::raw(out, ",\"done\":false}");
        self.framing.end(out);
    }

    /// A call that became whole, if it did.
    fn collect(&mut self, call: &Call<'_>) -> Option<WholeCall> {
        let open = &mut self.calls[call.at.choice];
        match call.said {
            CallPart::Start { id, name } => {
                *open = Some(WholeCall {
                    id: id.to_owned(),
                    name: name.to_owned(),
                    arguments: String::new(),
                });
            }
            CallPart::Args(more) => {
                if let Some(open) = open {
                    open.arguments.push_str(more);
                }
            }
            CallPart::End => return open.take(),
        }
        None
    }

    fn choice(&self, choice: usize, out: &mut BytesMut) {
        if self.source.meta().choices > 1 {
            json::raw(out, ",\"choice\":");
            json::integer(out, choice as u64);
        }
    }

    fn logprobs(&self, list: Logprobs<'_>, out: &mut BytesMut) {
        if self.source.meta().logprobs && !list.entries.is_empty() {
            json::raw(out, ",\"logprobs\":");
            logprobs::write_tokens(list, out);
        }
    }

    /// A line without text, while nothing happens: lines have no comments.
    fn nothing_yet(&self, queued: Option<usize>, out: &mut BytesMut) {
        self.object(&Said::default(), out);
        if let Some(position) = queued {
            json::raw(out, ",\"queued\":");
            json::integer(out, position as u64);
        }
        json::raw(out, ",\"done\":false}");
        self.framing.end(out);
    }

    /// What is told at the end of a choice that has `tokens`.
    fn done(&self, choice: usize, end: End, usage: Usage, tokens: u64, out: &mut BytesMut) {
        json::raw(out, ",\"done\":true,\"done_reason\":");
        // A bad ending is an error, and told as one.
        json::string(out, ending::spell(end).unwrap_or("stop"));
        let times = durations(self.source.meta().arrived, usage);
        for (name, value) in [
            (",\"total_duration\":", nanoseconds(times.total)),
            (",\"load_duration\":", nanoseconds(times.load)),
            (",\"prompt_eval_count\":", usage.prompt_tokens),
            (",\"prompt_eval_duration\":", nanoseconds(times.prompt)),
            (",\"eval_count\":", tokens),
            (",\"eval_duration\":", nanoseconds(times.answer)),
        ] {
            json::raw(out, name);
            json::integer(out, value);
        }
        self.context(choice, out);
        json::raw(out, "}");
    }

    /// The ids of the prompt and of the answer, where they are to be told: who sends them again goes on
    /// from here.
    fn context(&self, choice: usize, out: &mut BytesMut) {
        let started = self.source.started();
        let log = started.and_then(|started| started.choices.get(choice));
        let Some((log, prompt)) = log.and_then(|log| Some((log, log.prompt.as_ref()?))) else {
            return;
        };
        json::raw(out, ",\"context\":[");
        for (i, &id) in prompt.iter().enumerate() {
            json::raw(out, if i == 0 { "" } else { "," });
            json::integer(out, u64::from(id));
        }
        // The first token of a log is always there.
        let Ok(mut reader) = log.tokens.attach(0) else {
            return json::raw(out, "]");
        };
        let mut buffer = [Token {
            id: 0,
            logprob: 0.0,
        }; TOKENS_PER_READ];
        while let Read::Items(n) = reader.read(&mut buffer) {
            for token in &buffer[..n] {
                json::raw(out, ",");
                json::integer(out, u64::from(token.id));
            }
        }
        json::raw(out, "]");
    }

    fn error(&self, error: &ApiError, tokens: u64, out: &mut BytesMut) {
        self.framing.begin(out);
        refusal::begin(error, out);
        if tokens > 0 {
            json::raw(out, ",\"eval_count\":");
            json::integer(out, tokens);
        }
        json::raw(out, "}");
        self.framing.end(out);
    }
}

impl Dialect for Frames {
    fn open(&mut self, _choices: usize, _usage: Usage, _out: &mut BytesMut) {}

    fn known(&mut self, event: &Event<'_>) {
        if let Event::Call(call) = event {
            self.collect(call);
        }
    }

    fn event(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        match event {
            Event::Delta(delta) => {
                let (text, thinking) = match delta.kind {
                    Kind::Text => (delta.text, ""),
                    Kind::Reasoning => ("", delta.text),
                };
                let said = Said {
                    text,
                    thinking,
                    calls: &[],
                };
                self.line(&said, &delta.at, out);
            }
            Event::Call(call) => {
                if let Some(whole) = self.collect(call) {
                    let said = Said {
                        calls: &[&whole],
                        ..Said::default()
                    };
                    self.line(&said, &call.at, out);
                }
            }
            Event::End {
                choice,
                end,
                usage,
                tokens,
                ..
            } => {
                self.framing.begin(out);
                self.object(&Said::default(), out);
                self.choice(*choice, out);
                self.done(*choice, *end, *usage, *tokens, out);
                self.framing.end(out);
            }
        }
    }

    fn close(&mut self, _usage: Usage, out: &mut BytesMut) {
        if self.framing == Framing::Events {
            chunk::done(out);
        }
    }

    fn fail(&mut self, end: End, usage: Usage, out: &mut BytesMut) {
        self.error(&ending::refusal(end), usage.completion_tokens, out);
    }

    fn refuse(&mut self, error: &ApiError, out: &mut BytesMut) {
        self.error(error, 0, out);
    }

    fn queued(&self, position: usize, out: &mut BytesMut) {
        match self.framing {
            Framing::Events => chunk::queued(position, out),
            Framing::Lines => self.nothing_yet(Some(position), out),
        }
    }

    fn ping(&self, out: &mut BytesMut) {
        match self.framing {
            Framing::Events => json::raw(out, ": ping\n\n"),
            Framing::Lines => self.nothing_yet(None, out),
        }
    }

    fn whole(&self, answers: &[Answer], tokenizer: &Tokenizer, usage: Usage, out: &mut BytesMut) {
        // There is one: nobody can ask for more in this format.
        for (choice, answer) in answers.iter().enumerate().take(1) {
            let calls: Vec<&WholeCall> = answer.calls().collect();
            let said = Said {
                text: &answer.text(),
                thinking: &answer.reasoning(),
                calls: &calls,
            };
            self.object(&said, out);
            self.logprobs(answer.logprobs(tokenizer), out);
            let end = answer.end.unwrap_or(End::Lost);
            self.done(choice, end, usage, usage.completion_tokens, out);
        }
    }

    fn refusal(&self, end: End) -> ApiError {
        ending::refusal(end)
    }
}

/// What a line says.
#[derive(Default)]
struct Said<'a> {
    text: &'a str,
    thinking: &'a str,
    calls: &'a [&'a WholeCall],
}

/// How long the parts of a request took.
struct Durations {
    total: Duration,
    /// Until its prompt began to be computed: it waited for its place.
    load: Duration,
    /// From there to its first token.
    prompt: Duration,
    /// From the first token to the end.
    answer: Duration,
}

/// What the engine stamped, with the request's arrival before it.
fn durations(arrived: Instant, usage: Usage) -> Durations {
    let times = usage.times;
    let ended = times.ended.unwrap_or_else(clock::now);
    let started = times.started.unwrap_or(ended);
    let first = times.first_token.unwrap_or(ended);
    Durations {
        total: ended.saturating_duration_since(arrived),
        load: started.saturating_duration_since(arrived),
        prompt: first.saturating_duration_since(started),
        answer: ended.saturating_duration_since(first),
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
