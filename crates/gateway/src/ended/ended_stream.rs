//! Report of a stream that has ended.

use crate::records::{RecordedPrompts, StreamDescription, end_name};
use crate::streams::{ChoiceLog, StreamRecord};
use generate::error::ApiError;
use generate::output::generation_reader::is_good;
use journal::RecoveredStream;
use serde::{Deserialize, Serialize};
use stream::{End, StreamId};
use wire::clock;
use wire::protocol::Protocol;
use wire::shared::finish_reason::end_error;

/// The end of a response, a job, or another stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedStream {
    /// Id of the response or job; of the stream for other objects.
    pub id: String,
    /// `response`, `job` or `stream`.
    pub object: String,
    /// Id of the stream.
    pub stream_id: String,
    /// Wire protocol of the request.
    pub dialect: String,
    /// Name of the model in the response.
    pub model: String,
    /// `completed`, `incomplete` (token limit), `cancelled` or `failed`.
    pub status: String,
    /// End of the first choice, or of the one that failed; `rejected` for a request that never started.
    pub ending: String,
    /// The error of a failed stream; `null` otherwise.
    pub error: Option<EndedError>,
    /// Numbers of tokens.
    pub usage: EndedUsage,
    /// Time of the request, in seconds since the Unix epoch.
    pub created_at: i64,
    /// Time of the end, in seconds since the Unix epoch.
    pub ended_at: i64,
    /// Where the result is.
    pub links: EndedLinks,
}

/// Why a stream failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedError {
    /// Error code.
    pub code: String,
    /// Error message.
    pub message: String,
}

/// Tokens of all choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedUsage {
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Generated tokens.
    pub output_tokens: u64,
    /// The sum of both.
    pub total_tokens: u64,
}

/// Paths of this server, valid as long as response and stream are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedLinks {
    /// The stored response, or the state of the job or stream.
    pub result: String,
    /// The stream's events from the beginning.
    pub events: String,
}

/// The outcome of a stream.
enum Outcome<'a> {
    Rejected(&'a ApiError),
    Ends { first: End, bad: Option<End> },
}

impl Outcome<'_> {
    fn of_ends(ends: impl Iterator<Item = End> + Clone) -> Self {
        let bad = ends.clone().find(|end| !is_good(*end));
        let first = ends.into_iter().next().unwrap_or(End::Lost);
        Self::Ends { first, bad }
    }

    fn error(&self) -> Option<ApiError> {
        match self {
            Self::Rejected(error) => Some((*error).clone()),
            Self::Ends { bad, .. } => bad.map(end_error),
        }
    }

    fn ending(&self) -> &'static str {
        match self {
            Self::Rejected(_) => "rejected",
            Self::Ends { first, bad } => end_name(bad.unwrap_or(*first)).0,
        }
    }

    fn status(&self, error: Option<&ApiError>) -> &'static str {
        match (error, self) {
            (Some(error), _) if error.code == "cancelled" => "cancelled",
            (Some(_), _) => "failed",
            (
                None,
                Self::Ends {
                    first: End::Length, ..
                },
            ) => "incomplete",
            (None, _) => "completed",
        }
    }
}

/// Names of a stream.
struct Names<'a> {
    id: StreamId,
    response_id: &'a str,
    protocol: Protocol,
    model: &'a str,
    created_unix_s: i64,
}

impl EndedStream {
    /// The end of a stream that is over.
    pub(crate) fn of_record(record: &StreamRecord) -> Self {
        let meta = record.meta();
        let names = Names {
            id: record.id(),
            response_id: &meta.response_id,
            protocol: record.terms().protocol,
            model: &meta.model,
            created_unix_s: meta.created_unix_s,
        };
        let choices = record.started().map_or(&[][..], |started| &started.choices);
        let outcome = match record.rejection() {
            Some(error) => Outcome::Rejected(error),
            None => Outcome::of_ends(choices.iter().filter_map(|choice| choice.tokens.end())),
        };
        let input = record.started().map_or(0, |started| started.prompt_tokens);
        let output = choices.iter().map(ChoiceLog::answered).sum();
        Self::new(&names, &outcome, (input, output), clock::unix_s())
    }

    /// The end of a stream of an earlier process that is no longer readable.
    pub(crate) fn of_recovered(
        description: &StreamDescription,
        recovered: &RecoveredStream,
        ended_unix_us: u64,
    ) -> Self {
        let names = Names {
            id: StreamId::from_bits(recovered.id),
            response_id: &description.response_id,
            protocol: description.protocol,
            model: &description.model,
            created_unix_s: description.created_unix_s,
        };
        let choices = &recovered.choices;
        let ends = choices.iter().filter_map(|choice| choice.end);
        let outcome = Outcome::of_ends(ends.map(|(code, _)| End::from_code(code)));
        let input = match &description.prompts {
            RecordedPrompts::Prepared(prompts) => prompts.iter().map(|p| p.ids.len() as u64).sum(),
            RecordedPrompts::Requested(_) => 0,
        };
        let output = choices.iter().map(|choice| choice.ids.len() as u64).sum();
        let ended_unix_s = i64::try_from(ended_unix_us / 1_000_000).unwrap_or(0);
        Self::new(&names, &outcome, (input, output), ended_unix_s)
    }

    fn new(names: &Names<'_>, outcome: &Outcome<'_>, tokens: (u64, u64), ended_at: i64) -> Self {
        let (stream, (input_tokens, output_tokens)) = (names.id.to_string(), tokens);
        let (object, id, result) = match names.protocol {
            Protocol::Responses => {
                let id = names.response_id.to_owned();
                ("response", id.clone(), format!("/v1/responses/{id}"))
            }
            Protocol::Job => {
                let id = names.response_id.to_owned();
                ("job", id.clone(), format!("/v1/jobs/{id}"))
            }
            _ => ("stream", stream.clone(), format!("/v1/streams/{stream}")),
        };
        let error = outcome.error();
        let status = outcome.status(error.as_ref());
        Self {
            id,
            object: object.to_owned(),
            dialect: names.protocol.name().to_owned(),
            model: names.model.to_owned(),
            status: status.to_owned(),
            ending: outcome.ending().to_owned(),
            error: error
                .filter(|_| status == "failed")
                .map(|error| EndedError {
                    code: error.code.to_owned(),
                    message: error.message,
                }),
            usage: EndedUsage {
                input_tokens,
                output_tokens,
                total_tokens: input_tokens + output_tokens,
            },
            created_at: names.created_unix_s,
            ended_at,
            links: EndedLinks {
                result,
                events: format!("/v1/streams/{stream}/events"),
            },
            stream_id: stream,
        }
    }
}
