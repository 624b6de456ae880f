//! Commands of a client over the WebSocket.

use crate::control_request::{ControlRequest, INDEX_MESSAGE};
use crate::fields::{Fields, OrReject, RawJson};
use crate::protocol::Protocol;
use generate::error::{ApiError, Problem};
use std::borrow::Cow;

/// Limit of acknowledgements in one message.
const ACKS_MAX: usize = 256;
/// Limit of a `request` in bytes.
const REQUEST_BYTES_MAX: usize = 64;
/// Names of all commands, for the error message.
const COMMAND_NAMES: &str = "open, attach, ack, control, pause, resume, cancel or detach";

/// A parsed message of a client.
pub struct ClientMessage<'a> {
    /// Client's id of the message, which the reply repeats.
    pub request: Option<Cow<'a, str>>,
    /// Id of the stream that the message names.
    pub stream: Option<Cow<'a, str>>,
    /// The command, or the error that rejects the message.
    pub command: Result<Command<'a>, ApiError>,
}

/// A command of a client.
#[derive(Debug)]
pub enum Command<'a> {
    /// Opens a stream.
    Open(OpenCommand<'a>),
    /// Attaches to a stream.
    Attach(AttachCommand<'a>),
    /// Acknowledges tokens.
    Ack(Vec<Ack<'a>>),
    /// Updates a running stream.
    Control(Box<ControlRequest>),
    /// Pauses a stream.
    Pause,
    /// Resumes a paused stream.
    Resume,
    /// Cancels a stream.
    Cancel,
    /// Detaches from a stream.
    Detach,
}

/// Parameters of `open`.
#[derive(Debug)]
pub struct OpenCommand<'a> {
    /// Wire protocol of the request.
    pub protocol: Protocol,
    /// Body of the request, as for the HTTP route.
    pub body: &'a str,
    /// Whether the stream is resumable; `None`: the default of the wire protocol.
    pub resumable: Option<bool>,
    /// Whether a resumable stream is recorded in the journal.
    pub durable: bool,
    /// Whether credit is returned by acknowledgements only.
    pub explicit_acks: bool,
}

/// Parameters of `attach`.
#[derive(Debug)]
pub struct AttachCommand<'a> {
    /// Position from which the stream is sent.
    pub place: StartPosition<'a>,
    /// Whether this subscriber becomes the credit owner.
    pub govern: bool,
}

/// Position from which a subscriber is sent a stream.
#[derive(Debug)]
pub enum StartPosition<'a> {
    /// The beginning of the stream.
    Beginning,
    /// A cursor.
    After(Cow<'a, str>),
    /// After this many tokens of each choice.
    From(u64),
}

/// An acknowledgement: the number of tokens that the client has received.
#[derive(Debug)]
pub struct Ack<'a> {
    /// Id of the stream.
    pub stream: Cow<'a, str>,
    /// Tokens that the client has received.
    pub index: u64,
    /// Index of the choice; `None`: every choice.
    pub choice: Option<u64>,
}

/// Parses a message of a client.
pub fn parse_message(text: &str) -> ClientMessage<'_> {
    let mut fields = match Fields::parse(text.as_bytes()) {
        Ok(fields) => fields,
        Err(error) => {
            return ClientMessage {
                request: None,
                stream: None,
                command: Err(error),
            };
        }
    };
    let request = fields.string("request");
    let request = match request {
        Some(text) if text.len() > REQUEST_BYTES_MAX => fields.no_value(
            "request",
            format_args!("must be at most {REQUEST_BYTES_MAX} bytes"),
        ),
        request => request,
    };
    let stream = fields.string("stream");
    let command = parse_command(&mut fields, stream.is_some());
    let command = match (fields.finish(), command) {
        (Err(error), _) => Err(error),
        (Ok(()), Some(command)) => Ok(command),
        (Ok(()), None) => Err(ApiError::ours("internal_error", "not a valid command")),
    };
    ClientMessage {
        request,
        stream,
        command,
    }
}

/// Parses the command; `None` on errors, which are recorded in `fields`.
fn parse_command<'a>(fields: &mut Fields<'a>, has_stream: bool) -> Option<Command<'a>> {
    let kind = fields.string("type");
    let kind = kind.as_deref().unwrap_or_default();
    let several = kind == "ack" && fields.raw("acks").is_some();
    let needs_stream = !several
        && matches!(
            kind,
            "attach" | "ack" | "control" | "pause" | "resume" | "cancel" | "detach"
        );
    if needs_stream && !has_stream && fields.raw("stream").is_none() {
        fields.reject("stream", "must be a stream's id");
    }
    match kind {
        "open" => open_command(fields).map(Command::Open),
        "attach" => Some(Command::Attach(attach_command(fields))),
        "ack" if several => parse_acks(fields).map(Command::Ack),
        "ack" => parse_ack(fields).map(|ack| Command::Ack(vec![ack])),
        "control" => Some(Command::Control(Box::new(ControlRequest::from_fields(
            fields,
        )))),
        "pause" => Some(Command::Pause),
        "resume" => Some(Command::Resume),
        "cancel" => Some(Command::Cancel),
        "detach" => Some(Command::Detach),
        _ => fields.no_value("type", format_args!("must be {COMMAND_NAMES}")),
    }
}

fn open_command<'a>(fields: &mut Fields<'a>) -> Option<OpenCommand<'a>> {
    let protocol = match fields.string("dialect") {
        None => Some(Protocol::Job),
        Some(name) => Protocol::from_name(&name),
    };
    if protocol.is_none() {
        let known = Protocol::ALL.map(Protocol::name).join(", ");
        fields.reject("dialect", format!("must be one of {known}"));
    }
    let resumable = fields.boolean("resumable");
    let durable = fields.boolean("durable").unwrap_or(true);
    let explicit_acks = match fields.string("acks").as_deref() {
        None | Some("socket") => false,
        Some("explicit") => true,
        Some(_) => {
            fields.reject("acks", "must be explicit or socket");
            false
        }
    };
    let body = fields.raw("body").map(RawJson::get).or_reject(
        fields,
        "body",
        "is required: the body of a request to the dialect's route",
    );
    Some(OpenCommand {
        protocol: protocol?,
        body: body?,
        resumable,
        durable,
        explicit_acks,
    })
}

fn attach_command<'a>(fields: &mut Fields<'a>) -> AttachCommand<'a> {
    let after = fields.string("after").filter(|after| !after.is_empty());
    let from = fields.integer_as("from", 0..=i128::from(u64::MAX));
    if after.is_some() && from.is_some() {
        fields.reject("from", "must not be given together with after");
    }
    AttachCommand {
        place: match (after, from) {
            (Some(after), _) => StartPosition::After(after),
            (None, Some(from)) => StartPosition::From(from),
            (None, None) => StartPosition::Beginning,
        },
        govern: fields.boolean("govern").unwrap_or(false),
    }
}

/// Parses one acknowledgement; `None` on errors, which are recorded in `fields`.
fn parse_ack<'a>(fields: &mut Fields<'a>) -> Option<Ack<'a>> {
    let stream = fields.string("stream");
    if stream.is_none() && fields.raw("stream").is_none() {
        // The caller has recorded this error.
        return None;
    }
    if fields.raw("index").is_none() {
        fields.reject("index", INDEX_MESSAGE);
    }
    let index = fields.integer_as("index", 0..=i128::from(u64::MAX));
    let choice = fields.integer_as("choice", 0..=i128::from(u64::MAX));
    Some(Ack {
        stream: stream?,
        index: index?,
        choice,
    })
}

/// Parses a list of acknowledgements; errors are recorded in `fields`.
fn parse_acks<'a>(fields: &mut Fields<'a>) -> Option<Vec<Ack<'a>>> {
    let items = fields.array("acks", ACKS_MAX)?;
    let mut acks = Vec::with_capacity(items.len());
    for (i, item) in items.into_iter().enumerate() {
        let Ok(mut inner) = Fields::parse(item.get().as_bytes()) else {
            fields.reject(format!("acks[{i}]"), "must be an object");
            continue;
        };
        if inner.raw("stream").is_none() {
            inner.reject("stream", "must be a stream's id");
        }
        acks.extend(parse_ack(&mut inner));
        if let Err(error) = inner.finish() {
            for Problem {
                field, constraint, ..
            } in error.problems
            {
                fields.reject(format!("acks[{i}].{field}"), constraint);
            }
        }
    }
    Some(acks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message and its invalid fields; none for a valid message.
    const ROWS: &[(&str, &[&str])] = &[
        (r#"{"type":"open","body":{}}"#, &[]),
        (
            r#"{"type":"open","dialect":"openai.chat","body":{},"acks":"explicit","resumable":true,"durable":false}"#,
            &[],
        ),
        (r#"{"type":"open"}"#, &["body"]),
        (
            r#"{"type":"open","dialect":"x","acks":"y","resumable":1,"durable":2}"#,
            &["dialect", "resumable", "durable", "acks", "body"],
        ),
        (r#"{"type":"attach","stream":"a"}"#, &[]),
        (
            r#"{"type":"attach","stream":"a","after":"a:3","from":3}"#,
            &["from"],
        ),
        (r#"{"type":"attach","from":-1}"#, &["stream", "from"]),
        (r#"{"type":"attach","stream":7}"#, &["stream"]),
        (r#"{"type":"ack","stream":"a","index":3,"choice":0}"#, &[]),
        (r#"{"type":"ack","stream":"a"}"#, &["index"]),
        (r#"{"type":"ack","stream":"a","index":"3"}"#, &["index"]),
        (
            r#"{"type":"ack","acks":[{"stream":"a","index":3},{"stream":"b","index":4}]}"#,
            &[],
        ),
        (
            r#"{"type":"ack","acks":[{"stream":"a"},7,{"index":1}]}"#,
            &["acks[0].index", "acks[1]", "acks[2].stream"],
        ),
        (r#"{"type":"pause","stream":"a","request":"r"}"#, &[]),
        (
            r#"{"type":"control","stream":"a","temperature":0,"text":"so","stop":true,"pause":false}"#,
            &[],
        ),
        (
            r#"{"type":"control","temperature":-1,"text":"so","tokens":[1,"x"]}"#,
            &["stream", "temperature", "tokens[1]", "text"],
        ),
        (r#"{"type":"cancel"}"#, &["stream"]),
        (r#"{"type":"dance"}"#, &["type"]),
        (r#"{}"#, &["type"]),
        (
            r#"{"type":"resume","stream":"a","request":"0123456789012345678901234567890123456789012345678901234567890123456789"}"#,
            &["request"],
        ),
    ];

    #[test]
    fn message_is_parsed_or_its_invalid_fields_are_named() {
        for (text, wrong) in ROWS {
            let fields = match parse_message(text).command {
                Ok(_) => Vec::new(),
                Err(error) => error.problems.into_iter().map(|p| p.field).collect(),
            };
            assert_eq!(fields, *wrong, "{text}");
        }
    }

    #[test]
    fn message_that_is_no_object_is_rejected_without_a_field() {
        for text in ["", "nonsense", "[]", "7", "{\"type\":\"open\"", "\u{0}"] {
            let error = parse_message(text).command.expect_err(text);
            assert_eq!(
                (error.code, error.problems.len()),
                ("invalid_json", 0),
                "{text}"
            );
        }
    }
}
