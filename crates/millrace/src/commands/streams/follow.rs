//! `millrace streams follow`: the messages of a stream (`/v1/stream/{id}`), from the beginning to the end.
//!
//! A connection that ends before the stream does is followed by another one from the last offset on; while the server
//! is restarted, for [`RECONNECT_MAX`]. Messages are printed when their offset is known, so that none is printed twice.

use super::super::running_server::{NO_MILLRACE, RequestError, RunningServer};
use super::{StreamDescription, parse, stream_path};
use crate::args::FollowArgs;
use crate::clock::now;
use crate::failure::Failure;
use crate::generation::AnswerPrinter;
use generate::output::event::{DeltaKind, ToolCallPart};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::{BufRead, Write};
use std::thread;
use std::time::{Duration, Instant};

/// Time without a server after which following ends.
const RECONNECT_MAX: Duration = Duration::from_secs(60);
/// Time between two attempts to reach the server.
const RECONNECT_EACH: Duration = Duration::from_millis(250);

/// A message; see docs/durable-streams.md.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Message {
    Token {
        t: String,
        kind: Option<String>,
    },
    ToolCall {
        id: String,
        name: String,
    },
    ToolArgs {
        t: String,
    },
    ToolEnd,
    End {
        stop_reason: String,
    },
    Error {
        message: String,
    },
    /// A message of a newer server.
    #[serde(other)]
    Unknown,
}

/// The choice and the tokens of a message.
#[derive(Deserialize)]
struct MessageOrigin {
    #[serde(default)]
    choice: usize,
    #[serde(default = "one")]
    n: u64,
}

fn one() -> u64 {
    1
}

/// The position after messages.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Control {
    stream_next_offset: String,
    #[serde(default)]
    stream_closed: bool,
}

/// Prints a stream to its end.
pub(super) fn follow_stream(args: &FollowArgs) -> Result<(), Failure> {
    let server = RunningServer::new(&args.server)?;
    let stream: Box<RawValue> = server.get(&stream_path(&args.id)?)?;
    let stream: StreamDescription = parse(&stream)?;
    let mut out = std::io::stdout().lock();
    let output = if args.json {
        FollowOutput::Json(&mut out)
    } else {
        FollowOutput::Text(AnswerPrinter::new(&mut out))
    };
    let mut follower = Follower {
        offset: "-1".to_owned(),
        pace: args.replay.map(|speed| ReplayPace::new(&stream, speed)),
        output,
        choice: 0,
        has_text: false,
    };
    let mut reached_at = now();
    loop {
        let path = format!("/v1/stream/{}?offset={}&live=sse", args.id, follower.offset);
        match server.read_lines(&path) {
            Ok(lines) => {
                if follower.print_events(lines)? {
                    return Ok(());
                }
                reached_at = now();
            }
            Err(RequestError::Unavailable(failure)) if has_passed(reached_at) => {
                return Err(failure);
            }
            Err(RequestError::Unavailable(_)) => thread::park_timeout(RECONNECT_EACH),
            Err(RequestError::Rejected(failure)) => return Err(failure),
        }
    }
}

fn has_passed(reached_at: Instant) -> bool {
    now().saturating_duration_since(reached_at) > RECONNECT_MAX
}

enum FollowOutput<'a> {
    Text(AnswerPrinter<'a>),
    /// A line for each message.
    Json(&'a mut dyn Write),
}

/// Prints the messages of a stream.
struct Follower<'a> {
    /// The offset after the messages that were printed.
    offset: String,
    pace: Option<ReplayPace>,
    output: FollowOutput<'a>,
    /// The choice of the last message.
    choice: usize,
    /// Whether the choice has a message that was printed as text.
    has_text: bool,
}

impl Follower<'_> {
    /// Prints the messages of a body of server-sent events; true at the end of the stream. An unfinished event, and
    /// messages without the position after them, are read again from a later connection.
    fn print_events(&mut self, lines: impl BufRead) -> Result<bool, Failure> {
        let mut messages: Vec<Box<RawValue>> = Vec::new();
        let mut event = String::new();
        for line in lines.lines() {
            // The connection is cut.
            let Ok(line) = line else { return Ok(false) };
            if let Some(name) = line.strip_prefix("event: ") {
                name.clone_into(&mut event);
            } else if let Some(data) = line.strip_prefix("data: ") {
                match &*event {
                    "data" => messages.extend(parsed_event::<Vec<Box<RawValue>>>(data)?),
                    "control" => {
                        let control: Control = parsed_event(data)?;
                        for message in messages.drain(..) {
                            self.print_message(&message)?;
                        }
                        self.offset = control.stream_next_offset;
                        if control.stream_closed {
                            return Ok(true);
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(false)
    }

    fn print_message(&mut self, message: &RawValue) -> Result<(), Failure> {
        let origin: MessageOrigin = parsed_event(message.get())?;
        if let Some(pace) = &mut self.pace {
            pace.wait(origin.choice, origin.n);
        }
        let printer = match &mut self.output {
            FollowOutput::Json(out) => {
                writeln!(out, "{}", message.get())?;
                out.flush()?;
                return Ok(());
            }
            FollowOutput::Text(printer) => printer,
        };
        if origin.choice != self.choice {
            self.choice = origin.choice;
            let _ = writeln!(std::io::stderr(), "[choice {}]", origin.choice);
        }
        let message: Message = parsed_event(message.get())?;
        self.has_text |= !matches!(message, Message::End { .. } | Message::Error { .. });
        match message {
            Message::Token { t, kind } => {
                let reasoning = kind.as_deref() == Some("reasoning");
                let kind = if reasoning {
                    DeltaKind::Reasoning
                } else {
                    DeltaKind::Text
                };
                printer.print_text(kind, &t)?;
            }
            Message::ToolCall { id, name } => {
                let (id, name) = (&*id, &*name);
                printer.print_call(ToolCallPart::Start { id, name })?;
            }
            Message::ToolArgs { t } => printer.print_call(ToolCallPart::Args(&t))?,
            Message::ToolEnd => printer.print_call(ToolCallPart::End)?,
            Message::End { stop_reason } => return self.end_choice(&stop_reason),
            Message::Error { message } => {
                self.end_text()?;
                return Err(Failure::user(format!("the stream failed: {message}")));
            }
            Message::Unknown => {}
        }
        Ok(printer.flush()?)
    }

    fn end_choice(&mut self, stop_reason: &str) -> Result<(), Failure> {
        self.end_text()?;
        match stop_reason {
            "CANCELLED" => Err(Failure::user("the stream was cancelled")),
            _ => Ok(()),
        }
    }

    /// Ends the last line, if text was printed.
    fn end_text(&mut self) -> Result<(), Failure> {
        match &mut self.output {
            FollowOutput::Text(printer) if std::mem::take(&mut self.has_text) => {
                Ok(printer.begin_next()?)
            }
            _ => Ok(()),
        }
    }
}

/// JSON that the server sent.
fn parsed_event<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|_| {
        let why = "the server sent an event that this version cannot read";
        Failure::user(format!("{why}: {NO_MILLRACE}"))
    })
}

/// Lateness after which the pace begins anew: the text is still being generated.
const LATE: Duration = Duration::from_millis(100);

/// When messages are due.
pub(super) struct ReplayPace {
    /// Time of a token, for each choice.
    token_times: Vec<Duration>,
    due: Option<Instant>,
}

impl ReplayPace {
    /// The pace of a stream's generation, `speed` times as fast. Without the times of the stream, everything is due at
    /// once.
    pub(super) fn new(stream: &StreamDescription, speed: f64) -> Self {
        let times = stream.timings_ms;
        let last = times.ended.unwrap_or(times.age);
        let span = times
            .first_token
            .map_or(0, |first| last.saturating_sub(first));
        let span = Duration::from_millis(span).div_f64(speed);
        let gaps = |tokens: u64| u32::try_from(tokens.saturating_sub(1)).unwrap_or(u32::MAX);
        let choices = stream.choices.iter();
        let token_times = choices.map(|choice| span / gaps(choice.tokens).max(1));
        Self {
            token_times: token_times.collect(),
            due: None,
        }
    }

    /// Waits until a message with so many tokens of a choice is due.
    pub(super) fn wait(&mut self, choice: usize, tokens: u64) {
        loop {
            let left = self.due.map(|due| due.saturating_duration_since(now()));
            match left.filter(|left| !left.is_zero()) {
                Some(left) => thread::park_timeout(left),
                None => return self.advance(choice, tokens, now()),
            }
        }
    }

    /// The next message is due after these tokens.
    fn advance(&mut self, choice: usize, tokens: u64, now: Instant) {
        let each = self.token_times.get(choice).copied().unwrap_or_default();
        let time = each.saturating_mul(u32::try_from(tokens).unwrap_or(u32::MAX));
        let due = self
            .due
            .filter(|due| now.saturating_duration_since(*due) < LATE);
        self.due = Some(due.unwrap_or(now) + time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stream(first: Option<u64>, ended: Option<u64>) -> StreamDescription {
        let stream = json!({
            "id": "1", "model": "m", "dialect": "native.job", "state": "running", "resumable": true, "attached": false,
            "prompt_tokens": 1, "cached_tokens": 0, "completion_tokens": 32,
            "choices": [{"tokens": 11, "end": null}, {"tokens": 21, "end": null}],
            "timings_ms": {"age": 5000, "started": 10, "first_token": first, "ended": ended},
        });
        serde_json::from_value(stream).expect("a description")
    }

    #[test]
    fn tokens_are_due_at_even_times() {
        let ms = Duration::from_millis;
        let rows = [
            (Some(1000), Some(2000), 1.0, [100, 50]),
            (Some(1000), Some(2000), 4.0, [25, 12]),
            (Some(1000), None, 0.5, [800, 400]),
            (None, None, 1.0, [0, 0]),
        ];
        for (first, ended, speed, want) in rows {
            let pace = ReplayPace::new(&stream(first, ended), speed);
            let found = pace.token_times.iter().map(Duration::as_millis);
            assert_eq!(
                found.collect::<Vec<_>>(),
                want,
                "{first:?} {ended:?} {speed}"
            );
        }
        let mut pace = ReplayPace::new(&stream(Some(1000), Some(2000)), 1.0);
        let start = now();
        pace.advance(0, 1, start);
        assert_eq!(pace.due, Some(start + ms(100)));
        pace.advance(0, 2, start + ms(130));
        assert_eq!(pace.due, Some(start + ms(300)), "a little late");
        pace.advance(1, 1, start + ms(1000));
        assert_eq!(pace.due, Some(start + ms(1050)), "from now on");
    }
}
