//! Durations of whole requests, as OpenTelemetry's conventions for model servers define them: by operation, once per
//! request, failures by their kind.
//!
//! Other histograms count tokens or frames; a mean over a request is another value, computed at the end of the
//! request.

use super::histogram::{Distribution, Latency};
use super::label_table::LabelTable;
use super::{MeteredProtocol, MeteredRequest};
use crate::streams::end_name;
use generate::output::event::Times;
use std::time::{Duration, Instant};
use stream::End;
use wire::protocol::Protocol;

/// Kinds of failures that are counted by themselves (440 bytes each); there are fewer.
const ERRORS_MAX: usize = 12;
/// The client did not wait for the rest.
const DISCONNECTED: &str = "disconnected";

/// All requests that were answered and are over.
#[derive(Debug, Default)]
pub struct Operations {
    chat: Operation,
    text_completion: Operation,
}

/// Requests of one operation.
#[derive(Debug, Default)]
struct Operation {
    first_token: Latency,
    per_token: Latency,
    complete: Latency,
    /// By `error.type`.
    failed: LabelTable<Latency, ERRORS_MAX>,
}

/// The figures of one operation, read.
pub struct OperationMetrics {
    /// Operation name of the conventions.
    pub operation: &'static str,
    /// From arrival to first token, of complete requests.
    pub first_token: Distribution,
    /// Mean inter-token time of a choice, of complete requests with two tokens or more.
    pub per_token: Distribution,
    /// From arrival to end, by `error.type`; `None`: complete requests.
    pub durations: Vec<(Option<String>, Distribution)>,
}

/// Facts about a request after the last event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FinishedRequest {
    /// End of a failed request.
    pub(crate) broken: Option<End>,
    pub(crate) times: Times,
    /// Tokens of all choices.
    pub(crate) tokens: u64,
    pub(crate) choices: u64,
}

impl Operations {
    /// Records a request after the end. `None`: the client disconnected before.
    pub(crate) fn record_request(
        &self,
        opened: MeteredRequest,
        finished: Option<FinishedRequest>,
        now: Instant,
    ) {
        let operation = self.operation_of(opened.protocol);
        let took = now.saturating_duration_since(opened.arrived);
        match finished {
            None => operation.failed.value_of(DISCONNECTED).record(took),
            Some(FinishedRequest {
                broken: Some(end), ..
            }) => operation.failed.value_of(error_type(end)).record(took),
            Some(finished) => {
                operation.complete.record(took);
                if let Some(first) = finished.times.first_token {
                    let after = first.saturating_duration_since(opened.arrived);
                    operation.first_token.record(after);
                }
                if let Some(each) = finished.per_token() {
                    operation.per_token.record(each);
                }
            }
        }
    }

    /// Operations with at least one request.
    pub fn read_metrics(&self) -> Vec<OperationMetrics> {
        let all = [
            ("chat", &self.chat),
            ("text_completion", &self.text_completion),
        ];
        let read = all.map(|(name, operation)| operation.read_metrics(name));
        let used = |figures: &OperationMetrics| !figures.durations.is_empty();
        read.into_iter().filter(used).collect()
    }

    /// Protocols for conversations count as chats, also where a request has a plain prompt.
    fn operation_of(&self, protocol: MeteredProtocol) -> &Operation {
        match protocol {
            MeteredProtocol::Wire(
                Protocol::Completion
                | Protocol::OllamaGenerate
                | Protocol::LlamaCompletion
                | Protocol::Infill,
            ) => &self.text_completion,
            _ => &self.chat,
        }
    }
}

impl Operation {
    fn read_metrics(&self, operation: &'static str) -> OperationMetrics {
        let complete = (None, self.complete.distribution());
        let failed = self.failed.iter();
        let failed = failed.map(|(error, took)| (Some(error.to_owned()), took.distribution()));
        let durations = [complete].into_iter().chain(failed);
        OperationMetrics {
            operation,
            first_token: self.first_token.distribution(),
            per_token: self.per_token.distribution(),
            durations: durations
                .filter(|(_, took)| took.sample_count() > 0)
                .collect(),
        }
    }
}

impl FinishedRequest {
    /// Mean time from a choice's token to the next: choices run at one time.
    fn per_token(&self) -> Option<Duration> {
        let gaps = self.tokens.checked_sub(self.choices).filter(|&n| n > 0)?;
        let each = self.choices as f64 / gaps as f64;
        Some(self.times.decoding().mul_f64(each))
    }
}

/// Value of `error.type`.
fn error_type(end: End) -> &'static str {
    match (end, end_name(end)) {
        (End::Failed(_), (_, Some(code))) => code,
        (_, (how, _)) => how,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stream::{Clock, FailCode};

    const MS: Duration = Duration::from_millis(1);

    fn opened(protocol: Protocol, arrived: Instant) -> MeteredRequest {
        MeteredRequest {
            protocol: MeteredProtocol::Wire(protocol),
            stream: true,
            attached: false,
            arrived,
        }
    }

    fn finished(start: Instant, tokens: u64, choices: u64) -> FinishedRequest {
        FinishedRequest {
            broken: None,
            times: Times {
                started: None,
                first_token: Some(start + 50 * MS),
                ended: Some(start + 250 * MS),
            },
            tokens,
            choices,
        }
    }

    #[test]
    fn request_counts_once_by_operation_and_outcome() {
        let (operations, start) = (Operations::default(), wire::clock::now());
        let end = start + 300 * MS;
        let chat = opened(Protocol::Chat, start);
        operations.record_request(chat, Some(finished(start, 11, 1)), end);
        operations.record_request(chat, Some(finished(start, 22, 2)), end);
        operations.record_request(chat, Some(finished(start, 1, 1)), end);
        operations.record_request(chat, None, end);
        for end_of in [
            End::Failed(FailCode::Inference),
            End::TimedOut(Clock::Total),
        ] {
            let broken = FinishedRequest {
                broken: Some(end_of),
                ..finished(start, 5, 1)
            };
            operations.record_request(chat, Some(broken), end);
        }
        let read = operations.read_metrics();
        assert_eq!(read.len(), 1, "nobody asked for the other");
        let told = &read[0];
        let figures = |read: &Distribution| (read.sample_count(), (read.sum * 1e3).round());
        assert_eq!(told.operation, "chat");
        assert_eq!(figures(&told.first_token), (3, 150.0));
        assert_eq!(
            figures(&told.per_token),
            (2, 40.0),
            "two choices share the time"
        );
        let durations = told
            .durations
            .iter()
            .map(|(error, took)| (error.as_deref(), figures(took)));
        let each = |error| (Some(error), (1, 300.0));
        assert_eq!(
            durations.collect::<Vec<_>>(),
            [
                (None, (3, 900.0)),
                each(DISCONNECTED),
                each("inference"),
                each("timed_out")
            ]
        );
    }

    #[test]
    fn plain_prompt_is_another_operation() {
        let (operations, now) = (Operations::default(), wire::clock::now());
        operations.record_request(opened(Protocol::Completion, now), None, now);
        let read = operations.read_metrics();
        let names: Vec<_> = read.iter().map(|figures| figures.operation).collect();
        assert_eq!(names, ["text_completion"]);
    }
}
