//! One choice between its submission and its end, and its calls.

use super::Shared;
use crate::body::CallBody;
use crate::config::UpstreamModel;
use crate::event::{EventParser, LlamaCppEvents, OpenAiEvents, TextEvents};
use crate::http_call::HttpCall;
use crate::model_probe::UpstreamKind;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Identifies a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallKey {
    pub(crate) handle: u64,
    pub(crate) choice: usize,
    /// Reports of earlier calls are left out.
    pub(crate) call: u32,
}

/// A choice.
#[derive(Debug)]
pub(super) struct ChoiceRun {
    pub(super) call: Option<RunningCall>,
    /// Number of the last call.
    pub(super) calls: u32,
    /// The upstream of the last call.
    pub(super) last_upstream: Option<usize>,
    /// Tokens in the log since the submission.
    pub(super) generated: usize,
    /// The kind of upstream that has computed tokens since the submission.
    pub(super) source: Option<UpstreamKind>,
    /// Some tokens are not an upstream's own: they only have its text.
    pub(super) has_cover: bool,
    /// Since when the choice has no upstream.
    pub(super) unplaced_since: Instant,
    /// Before this time, there is no next call.
    pub(super) not_before: Instant,
    /// Failed calls since the last token.
    pub(super) failures: u32,
    /// Accepted calls that were cut since the last token.
    pub(super) crashes: u32,
}

/// A call of an upstream; its drop closes the connection.
#[derive(Debug)]
pub(super) struct RunningCall {
    pub(super) upstream: usize,
    pub(super) kind: UpstreamKind,
    pub(super) credit: watch::Sender<u64>,
    /// Tokens of this call that were received.
    pub(super) received: u64,
    pub(super) is_accepted: bool,
    pub(super) task: AbortHandle,
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ChoiceRun {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            call: None,
            calls: 0,
            last_upstream: None,
            generated: 0,
            source: None,
            has_cover: false,
            unplaced_since: now,
            not_before: now,
            failures: 0,
            crashes: 0,
        }
    }

    /// A call failed: the next one begins after a pause.
    pub(super) fn note_failure(&mut self, was_accepted: bool, retry: Duration, now: Instant) {
        self.failures += 1;
        self.crashes += u32::from(was_accepted);
        if was_accepted {
            self.unplaced_since = now;
        }
        let doubled = retry.saturating_mul(1 << (self.failures - 1).min(16));
        self.not_before = now + doubled.min(retry.saturating_mul(10));
        if self.failures == 1 && was_accepted {
            // A stream that was running goes on at once.
            self.not_before = now;
        }
    }

    /// A token arrived.
    pub(super) fn note_token(&mut self) {
        self.generated += 1;
        (self.failures, self.crashes) = (0, 0);
    }
}

/// A call that is not sent yet.
pub(super) struct PreparedCall {
    kind: UpstreamKind,
    route: &'static str,
    body: Vec<u8>,
    parser: EventParser,
}

impl PreparedCall {
    /// A call with this body; `None` where text would come and cannot be covered.
    pub(super) fn new(
        body: &CallBody<'_>,
        (model, shared): (&UpstreamModel, &Shared),
    ) -> Option<Self> {
        let parser = event_parser(body, (model, shared))?;
        let (route, json) = body.route_and_json();
        Some(Self {
            kind: body.model.kind.clone(),
            route,
            body: json.to_string().into_bytes(),
            parser,
        })
    }

    /// Sends the call; its reports come to the relay.
    pub(super) fn start(self, key: CallKey, upstream: usize, shared: &Shared) -> RunningCall {
        let config = shared.status.config();
        let (credit, allowed) = watch::channel(0);
        let call = HttpCall {
            key,
            config: Arc::clone(config),
            client: shared.status.client().clone(),
            address: config.addresses[upstream].clone(),
            route: self.route,
            body: self.body,
            parser: self.parser,
            credit: allowed,
            reports: shared.sender.clone(),
        };
        RunningCall {
            upstream,
            kind: self.kind,
            credit,
            received: 0,
            is_accepted: false,
            task: tokio::spawn(call.run()).abort_handle(),
        }
    }
}

/// The parser of a call's response.
fn event_parser(
    body: &CallBody<'_>,
    (model, shared): (&UpstreamModel, &Shared),
) -> Option<EventParser> {
    let request = body.request;
    let has_logprobs = request.params.sampling.logprobs;
    let at_text_start = request.prompt.at_text_start && body.answered.is_empty();
    let cover = || shared.cover.clone();
    let prompt = &request.prompt.ids;
    Some(match body.model.kind {
        UpstreamKind::Millrace(_) => {
            let events = OpenAiEvents::new(prompt.clone(), body.answered, has_logprobs);
            EventParser::OpenAi(events)
        }
        UpstreamKind::OpenAi => {
            let prompt = [prompt, body.answered].concat();
            EventParser::OpenAi(OpenAiEvents::new(prompt, &[], has_logprobs))
        }
        UpstreamKind::OpenAiText => {
            EventParser::Text(TextEvents::new(cover()?, at_text_start, has_logprobs))
        }
        UpstreamKind::LlamaCpp => {
            let vocabulary = (Arc::clone(&model.tokenizer), cover()?);
            let events = LlamaCppEvents::new(vocabulary, at_text_start, has_logprobs);
            EventParser::LlamaCpp(events)
        }
    })
}
