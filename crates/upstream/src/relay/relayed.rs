//! One request: its record and its choices.

use super::Shared;
use super::choice_run::{CallKey, ChoiceRun, PreparedCall};
use super::placement::Placement;
use crate::body::{CallBody, unsupported_part};
use crate::config::UpstreamModel;
use crate::event::{Finish, TokenChunk};
use crate::http_call::{CallError, Report};
use crate::upstream_status::Counted;
use engine::remote::{AppendError, RelayedCounts, RelayedProgress, RelayedRequest};
use engine::{Phase, Token};
use generate::remote_request::RemoteRequest;
use std::sync::Arc;
use std::time::Instant;
use stream::{End, FailCode, Stop};

/// A request between its submission and its end.
pub(super) struct Relayed {
    handle: u64,
    relayed: RelayedRequest,
    /// Or why no upstream gets the request.
    request: Result<RemoteRequest, String>,
    choices: Vec<ChoiceRun>,
}

impl Relayed {
    pub(super) fn new(handle: u64, relayed: RelayedRequest, now: Instant) -> Self {
        let decoded = RemoteRequest::decode(relayed.record()).map_err(|why| why.to_string());
        let request = decoded.and_then(|request| match unsupported_part(&request) {
            Some(part) => Err(format!("{part}: not supported by upstreams")),
            None => Ok(request),
        });
        let choices = (0..relayed.choices()).map(|_| ChoiceRun::new(now));
        Self {
            handle,
            choices: choices.collect(),
            relayed,
            request,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.relayed.has_ended()
    }

    pub(super) fn count(&self, counts: &mut RelayedCounts) {
        let count = match self.relayed.phase() {
            Phase::Queued => &mut counts.queued,
            Phase::Parked => &mut counts.parked,
            Phase::Paused => &mut counts.paused,
            _ => &mut counts.running,
        };
        *count += 1;
    }

    /// Ends what is to end, gives credit to running calls, and begins calls.
    pub(super) fn poll(&mut self, model: &UpstreamModel, shared: &mut Shared, now: Instant) {
        let end = if self.relayed.is_cancelled() {
            Some(End::Cancelled)
        } else {
            self.relayed.expired(now)
        };
        if let Some(end) = end {
            return self.end_all(end, shared, now);
        }
        if let Err(why) = &self.request {
            tracing::warn!("a request for an upstream: {why}");
            return self.end_all(End::Failed(FailCode::Inference), shared, now);
        }
        self.relayed.finish_abandoned(now);
        self.relayed.finish_stalled(now);
        let may_run = self.relayed.update_permits(now);
        for choice in 0..self.choices.len() {
            let may_compute = self.relayed.may_compute(choice);
            if self.relayed.log_ids(choice).is_none() {
                self.drop_call(choice, shared);
            } else if self.choices[choice].call.is_none() {
                if may_run && may_compute {
                    self.begin_call(choice, model, shared, now);
                } else {
                    self.choices[choice].unplaced_since = now;
                }
            } else if may_compute || self.relayed.is_paused() {
                self.give_credit(choice);
            }
        }
    }

    /// Takes what a call reports.
    pub(super) fn take_report(
        &mut self,
        key: CallKey,
        report: Report,
        model: &UpstreamModel,
        shared: &mut Shared,
        now: Instant,
    ) {
        let Some(run) = self.choices.get_mut(key.choice) else {
            return;
        };
        let is_current = key.call == run.calls;
        let Some(call) = run.call.as_mut().filter(|_| is_current) else {
            return;
        };
        match report {
            Report::Accepted => {
                call.is_accepted = true;
                shared.upstreams.succeeded(call.upstream);
                self.set_phase(Phase::Prefilling, now);
            }
            Report::Tokens(chunk) => {
                call.received += chunk.ids.len() as u64;
                let tokens = Counted::Tokens(chunk.ids.len() as u64);
                shared.status.count(tokens);
                let end = self.append(key.choice, chunk, model, now);
                if let Some(end) = end {
                    self.drop_call(key.choice, shared);
                    self.relayed.finish(key.choice, end, now);
                }
            }
            Report::Failed(error) => self.take_failure(key.choice, error, shared, now),
        }
    }

    /// Appends tokens. Returns the end of the choice.
    fn append(
        &mut self,
        choice: usize,
        chunk: TokenChunk,
        model: &UpstreamModel,
        now: Instant,
    ) -> Option<End> {
        let params = &self.request.as_ref().ok()?.params;
        let ignores_eos = params.ignore_eos || params.sampling.ignore_eos;
        let (eos, stops) = (&model.eos, &params.stop_token_ids);
        let ends = |id: &u32| !ignores_eos && eos.contains(id) || stops.contains(id);
        let run = &mut self.choices[choice];
        run.source = run.call.as_ref().map(|call| call.kind.clone());
        run.has_cover |= chunk.is_cover;
        for (place, &id) in chunk.ids.iter().enumerate() {
            if ends(&id) {
                // Such a token is no part of the answer.
                return Some(End::Stop(Stop::Eos));
            }
            let logprob = chunk.logprobs.get(place).copied().unwrap_or(0.0);
            match self.relayed.append(choice, Token { id, logprob }, &[], now) {
                Ok(()) => self.choices[choice].note_token(),
                Err(AppendError::Full) => return Some(End::Length),
                Err(why) => {
                    let upstream = self.choices[choice].last_upstream;
                    let why = match why {
                        AppendError::UnknownToken => "is not in the model's vocabulary",
                        _ => "has no place in the answer",
                    };
                    tracing::warn!(upstream, "token {id} of an upstream {why}");
                    return Some(failed(upstream));
                }
            }
        }
        let end = match chunk.finish {
            None => None,
            Some(Finish::Length) => Some(End::Length),
            Some(Finish::Stop(text)) => {
                let is_text = |stop: &String| Some(stop) == text.as_ref();
                let index = params.stops.iter().position(is_text);
                let index = index.and_then(|index| u16::try_from(index).ok());
                Some(End::Stop(index.map_or(Stop::Eos, Stop::StopString)))
            }
        };
        if !chunk.ids.is_empty() {
            self.set_phase(Phase::Running, now);
        }
        end
    }

    /// A call failed: the choice continues elsewhere where that is exact, else ends.
    fn take_failure(&mut self, choice: usize, error: CallError, shared: &mut Shared, now: Instant) {
        let Some(call) = &self.choices[choice].call else {
            return;
        };
        let (upstream, was_accepted) = (call.upstream, call.is_accepted);
        let config = Arc::clone(shared.status.config());
        let address = &config.addresses[upstream];
        let has_errored = matches!(error, CallError::Errored(_));
        let (counted, end) = match error {
            CallError::Refused(why) => {
                tracing::warn!(%address, "an upstream refused or misunderstood a request: {why}");
                (Counted::Refused, Some(failed(Some(upstream))))
            }
            CallError::Unavailable(why) | CallError::Errored(why) => {
                tracing::info!(%address, "a call of an upstream failed: {why}");
                shared.upstreams.failed(upstream, now);
                let run = &mut self.choices[choice];
                run.note_failure(was_accepted, config.retry, now);
                // An upstream that fails on the request each time is named as the cause.
                run.crashes += u32::from(has_errored && !was_accepted);
                let crashed = run.crashes >= config.crashes_max;
                let is_last = crashed || self.placement(choice, shared) == Placement::Lost;
                let end = is_last.then_some(failed(Some(upstream)));
                let counted = if was_accepted {
                    Counted::Cut
                } else {
                    Counted::Unavailable
                };
                (counted, end)
            }
        };
        shared.status.count(counted);
        self.drop_call(choice, shared);
        if let Some(end) = end {
            self.relayed.finish(choice, end, now);
        }
    }

    /// Tokens of the answer from before the submission.
    fn answered_before(&self) -> &[u32] {
        let prompt = self.request.as_ref().map_or(0, |r| r.prompt.ids.len());
        self.relayed.prompt().get(prompt..).unwrap_or_default()
    }

    fn placement(&self, choice: usize, shared: &Shared) -> Placement {
        let before = (self.answered_before().len(), shared.status.may_cover_text());
        match &self.request {
            Ok(request) => Placement::of(&self.choices[choice], before, &request.params),
            Err(_) => Placement::Lost,
        }
    }

    /// Begins a call on an upstream that may have the choice, if there is one.
    fn begin_call(
        &mut self,
        choice: usize,
        model: &UpstreamModel,
        shared: &mut Shared,
        now: Instant,
    ) {
        let run = &self.choices[choice];
        if now < run.not_before {
            return;
        }
        let placement = self.placement(choice, shared);
        let waited = now.saturating_duration_since(run.unplaced_since);
        let has_begun = run.generated > 0 || !self.answered_before().is_empty();
        if placement == Placement::Lost || waited >= shared.unplaced_max(has_begun) {
            let end = if has_begun {
                failed(run.last_upstream)
            } else {
                // Nothing was sent: the client may send the request again.
                End::Failed(FailCode::NoEngine)
            };
            return self.relayed.finish(choice, end, now);
        }
        let Ok(request) = &self.request else {
            return;
        };
        let answered = self.answered(choice);
        let tokens_max = self.relayed.tokens_max();
        let max_tokens = tokens_max.saturating_sub(request.prompt.ids.len());
        if answered.len() >= max_tokens {
            return self.relayed.finish(choice, End::Length, now);
        }
        let allowed = shared
            .status
            .allowed_models(|model| placement.allows(model, tokens_max, &request.params));
        let is_usable = |place: usize| allowed[place].is_some();
        let Some(upstream) = shared.upstreams.begin_call(now, is_usable) else {
            return;
        };
        let prepared = allowed[upstream].as_ref().and_then(|found| {
            let body = CallBody {
                model: found,
                request,
                choice: request.first_choice + u32::try_from(choice).unwrap_or(0),
                answered: &answered,
                max_tokens,
                salt: self.relayed.salt(),
            };
            PreparedCall::new(&body, (model, shared))
        });
        let Some(prepared) = prepared else {
            shared.upstreams.end_call(upstream);
            let end = End::Failed(FailCode::Inference);
            return self.relayed.finish(choice, end, now);
        };
        shared.status.count_call(!answered.is_empty());
        shared.status.set_in_flight(shared.upstreams.calls());
        let run = &mut self.choices[choice];
        run.calls += 1;
        let key = CallKey {
            handle: self.handle,
            choice,
            call: run.calls,
        };
        run.last_upstream = Some(upstream);
        run.call = Some(prepared.start(key, upstream, shared));
        self.give_credit(choice);
    }

    /// Tokens of the answer so far, from its beginning.
    fn answered(&self, choice: usize) -> Vec<u32> {
        let log = self.relayed.log_ids(choice).unwrap_or_default();
        let generated = self.choices[choice].generated;
        let new = &log[log.len().saturating_sub(generated)..];
        [self.answered_before(), new].concat()
    }

    /// Lets a call read as far as the reader's credit window reaches.
    fn give_credit(&self, choice: usize) {
        let relayed = &self.relayed;
        let Some(call) = &self.choices[choice].call else {
            return;
        };
        let window = match (relayed.is_paused(), relayed.credit_window()) {
            (true, _) => 0,
            (false, 0) => u64::MAX,
            (false, window) => window,
        };
        let log = relayed.log_ids(choice).map_or(0, |ids| ids.len() as u64);
        let ahead = log.saturating_sub(relayed.accepted(choice).unwrap_or(0));
        let credit = call.received.saturating_add(window.saturating_sub(ahead));
        call.credit.send_if_modified(|allowed| {
            let is_more = *allowed != credit;
            *allowed = credit;
            is_more
        });
    }

    fn drop_call(&mut self, choice: usize, shared: &mut Shared) {
        if let Some(call) = self.choices[choice].call.take() {
            shared.upstreams.end_call(call.upstream);
            shared.status.set_in_flight(shared.upstreams.calls());
        }
    }

    fn end_all(&mut self, end: End, shared: &mut Shared, now: Instant) {
        for choice in 0..self.choices.len() {
            self.drop_call(choice, shared);
        }
        self.relayed.finish_all(end, now);
    }

    fn set_phase(&mut self, phase: Phase, now: Instant) {
        let done = self.relayed.prompt().len() as u64;
        let is_running = phase == Phase::Running;
        let report = RelayedProgress {
            phase,
            prompt_done: if is_running { done } else { 0 },
            cached_tokens: 0,
        };
        self.relayed.apply_progress(report, now);
    }
}

/// The end of an answer that an upstream did not complete. The last one is not known where the answer is from before a restart.
fn failed(upstream: Option<usize>) -> End {
    let place = upstream.and_then(|place| u8::try_from(place).ok());
    place.map_or(End::Lost, |place| End::Failed(FailCode::Upstream(place)))
}
