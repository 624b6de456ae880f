//! `millrace streams`: the streams of a running server.
//!
//! A stream's state is printed as the server describes it; `follow` prints the messages of a stream, as they are generated
//! or replayed.

mod follow;

use super::running_server::{NO_MILLRACE, RunningServer};
use crate::args::{StreamArgs, StreamListArgs, StreamsArgs, StreamsCommand};
use crate::failure::Failure;
use crate::terminal_text;
use crate::terminal_text::Align;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::fmt::Write as _;
use std::io::Write as _;

/// A page of the list.
#[derive(Deserialize)]
struct StreamPage {
    data: Vec<Box<RawValue>>,
    next: Option<u64>,
}

/// Runs a command about streams.
pub(crate) fn streams(args: &StreamsArgs) -> Result<(), Failure> {
    match &args.command {
        StreamsCommand::List(args) => list_streams(args),
        StreamsCommand::Show(args) => show_stream(args),
        StreamsCommand::Follow(args) => follow::follow_stream(args),
        StreamsCommand::Cancel(args) => cancel_stream(args),
    }
}

fn list_streams(args: &StreamListArgs) -> Result<(), Failure> {
    let server = RunningServer::new(&args.server)?;
    let (mut streams, mut after) = (Vec::new(), 0);
    loop {
        let page: StreamPage = server.get(&format!("/v1/streams?limit=100&after={after}"))?;
        streams.extend(page.data);
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        let streams: Vec<&str> = streams.iter().map(|stream| stream.get()).collect();
        writeln!(out, "[{}]", streams.join(","))?;
        return Ok(());
    }
    let parsed = streams.iter().map(|stream| parse(stream));
    let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
    write!(out, "{}", stream_table(&parsed))?;
    Ok(())
}

fn show_stream(args: &StreamArgs) -> Result<(), Failure> {
    let server = RunningServer::new(&args.server)?;
    let stream: Box<RawValue> = server.get(&stream_path(&args.id)?)?;
    print_stream(&stream, args.json)
}

/// Cancels a running stream. An ended stream, which `DELETE` would remove, stays unchanged.
fn cancel_stream(args: &StreamArgs) -> Result<(), Failure> {
    let server = RunningServer::new(&args.server)?;
    let path = stream_path(&args.id)?;
    let mut stream: Box<RawValue> = server.get(&path)?;
    if !parse(&stream)?.has_ended() {
        stream = server.delete(&path)?;
    } else if !args.json {
        let _ = writeln!(std::io::stderr(), "the stream has ended before");
    }
    print_stream(&stream, args.json)
}

fn print_stream(stream: &RawValue, as_json: bool) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if as_json {
        writeln!(out, "{}", stream.get())?;
    } else {
        write!(out, "{}", parse(stream)?.details())?;
    }
    Ok(())
}

fn parse(stream: &RawValue) -> Result<StreamDescription, Failure> {
    serde_json::from_str(stream.get()).map_err(|_| {
        let why = "the server sent a description that this version cannot read";
        Failure::user(format!("{why}: {NO_MILLRACE}"))
    })
}

/// The path of a stream. The id is checked here, since other text could name another path.
fn stream_path(id: &str) -> Result<String, Failure> {
    if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(format!("/v1/streams/{id}"))
    } else {
        Err(Failure::user(format!(
            "{id:?} is no stream id: the header x-stream-id of a response has one, `millrace streams list` shows all"
        )))
    }
}

/// The fields that are shown.
#[derive(Deserialize)]
struct StreamDescription {
    id: String,
    model: String,
    dialect: String,
    state: String,
    #[serde(default)]
    position: Option<u64>,
    #[serde(default)]
    refused: Option<String>,
    #[serde(default)]
    parked: Option<String>,
    resumable: bool,
    #[serde(default)]
    durable: Option<bool>,
    #[serde(default)]
    recovered: Option<u64>,
    attached: bool,
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    choices: Vec<ChoiceDescription>,
    timings_ms: Timings,
}

#[derive(Deserialize)]
struct ChoiceDescription {
    tokens: u64,
    end: Option<String>,
    #[serde(default)]
    detail: Option<String>,
}

/// Milliseconds since the opening of the stream.
#[derive(Clone, Copy, Default, Deserialize)]
struct Timings {
    age: u64,
    first_token: Option<u64>,
    ended: Option<u64>,
}

impl StreamDescription {
    /// Whether nothing more is generated.
    fn has_ended(&self) -> bool {
        self.state == "ended"
    }

    /// The state with the reason or the position.
    fn shown_state(&self) -> String {
        let ends = self.choices.iter().filter_map(|choice| {
            let end = choice.end.as_deref()?;
            Some(match &choice.detail {
                Some(detail) => format!("{end}: {detail}"),
                None => end.to_owned(),
            })
        });
        let detail = match &*self.state {
            "ended" => self.refused.clone().or_else(|| {
                let mut ends: Vec<String> = ends.collect();
                ends.dedup();
                (!ends.is_empty()).then(|| ends.join(", "))
            }),
            "queued" => self.position.map(|position| position.to_string()),
            "parked" => self.parked.clone(),
            _ => None,
        };
        match detail {
            Some(detail) => format!("{} ({detail})", self.state),
            None => self.state.clone(),
        }
    }

    /// A line for each property.
    fn details(&self) -> String {
        let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        let ms = |ms: u64| format!("{:.1} s", ms as f64 / 1000.0);
        let mut rows = vec![
            ("id", self.id.clone()),
            ("model", self.model.clone()),
            ("API", self.dialect.clone()),
            ("state", self.shown_state()),
            ("resumable", yes(self.resumable)),
        ];
        rows.extend(self.durable.map(|durable| ("durable", yes(durable))));
        rows.extend(self.recovered.map(|times| ("recovered", times.to_string())));
        rows.push(("reader", yes(self.attached)));
        let prompt = format!(
            "{} tokens ({} cached)",
            self.prompt_tokens, self.cached_tokens
        );
        rows.push(("prompt", prompt));
        rows.push(("answer", format!("{} tokens", self.completion_tokens)));
        if self.choices.len() > 1 {
            let tokens = self.choices.iter().map(|choice| choice.tokens.to_string());
            rows.push(("choices", tokens.collect::<Vec<_>>().join(", ")));
        }
        rows.push(("age", ms(self.timings_ms.age)));
        rows.extend(
            self.timings_ms
                .first_token
                .map(|at| ("first token", format!("after {}", ms(at)))),
        );
        rows.extend(
            self.timings_ms
                .ended
                .map(|at| ("end", format!("after {}", ms(at)))),
        );
        let mut out = String::new();
        for (name, value) in rows {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{name:<12} {value}");
        }
        out
    }
}

/// A line for each stream.
fn stream_table(streams: &[StreamDescription]) -> String {
    let rows = streams.iter().map(|stream| {
        [
            stream.id.clone(),
            stream.model.clone(),
            stream.dialect.clone(),
            stream.shown_state(),
            stream.completion_tokens.to_string(),
            terminal_text::span(stream.timings_ms.age / 1000),
        ]
    });
    let head = ["ID", "MODEL", "API", "STATE", "TOKENS", "AGE"];
    let align = [
        Align::Left,
        Align::Left,
        Align::Left,
        Align::Left,
        Align::Right,
        Align::Left,
    ];
    terminal_text::table(head, align, rows)
}
