//! `millrace streams`: the streams of a running server.
//!
//! ```text
//! description   a stream's state, as the server describes it, on the terminal
//! follow        the messages of a stream, as they are generated or replayed
//! replay_pace   times of replayed messages
//! ```

mod description;
mod follow;

use self::description::StreamDescription;
use super::running_server::{NO_MILLRACE, RunningServer};
use crate::args::{StreamArgs, StreamListArgs, StreamsArgs, StreamsCommand};
use crate::failure::Failure;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::Write;

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
    write!(out, "{}", description::stream_table(&parsed))?;
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
