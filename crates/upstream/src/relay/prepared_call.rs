//! A call on the way to an upstream: route, body, and the parser of the response.

use super::Shared;
use super::choice_run::{CallKey, RunningCall};
use crate::body::CallBody;
use crate::config::UpstreamModel;
use crate::event::{EventParser, LlamaCppEvents, OpenAiEvents, TextEvents};
use crate::http_call::HttpCall;
use crate::model_probe::UpstreamKind;
use std::sync::Arc;
use tokio::sync::watch;

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
