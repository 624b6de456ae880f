//! One request: its record and its choices.

use super::Shared;
use super::choice_run::{CallKey, ChoiceRun, RunningCall};
use crate::chunk::Finish;
use crate::config::UpstreamModel;
use crate::http_call::{CallError, HttpCall, Report};
use crate::request_body::{CallBody, continues_exactly, unsupported_part};
use engine::remote::{AppendError, RelayedCounts, RelayedProgress, RelayedRequest};
use engine::{Phase, Token};
use generate::remote_request::RemoteRequest;
use std::sync::Arc;
use std::time::Instant;
use stream::{End, FailCode, Stop};
use tokio::sync::watch;

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
        let end = match self.relayed.is_cancelled() {
            true => Some(End::Cancelled),
            false => self.relayed.expired(now),
        };
        if let Some(end) = end {
            return self.end_all(end, shared, now);
        }
        if let Err(why) = &self.request {
            tracing::warn!("a request for an upstream: {why}");
            return self.end_all(End::Failed(FailCode::Inference), shared, now);
        }
        self.relayed.finish_abandoned(now);
        let may_run = self.relayed.update_permits(now);
        for choice in 0..self.choices.len() {
            if self.relayed.log_ids(choice).is_none() {
                self.drop_call(choice, shared);
            } else if self.choices[choice].call.is_some() {
                self.give_credit(choice);
            } else if may_run {
                self.begin_call(choice, model, shared, now);
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
            Report::Tokens {
                ids,
                logprobs,
                finish,
            } => {
                call.received += ids.len() as u64;
                let end = self.append(key.choice, (&ids, &logprobs), finish, model, now);
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
        (ids, logprobs): (&[u32], &[f32]),
        finish: Option<Finish>,
        model: &UpstreamModel,
        now: Instant,
    ) -> Option<End> {
        let params = &self.request.as_ref().ok()?.params;
        let stops = matches!(finish, Some(Finish::Stop(_)));
        let is_stop = |id: &u32| model.eos.contains(id) || params.stop_token_ids.contains(id);
        // An end-of-sequence token is no part of the answer.
        let kept = ids.len() - usize::from(stops && ids.last().is_some_and(is_stop));
        let end = finish.map(|finish| match finish {
            Finish::Length => End::Length,
            Finish::Stop(text) => {
                let is_text = |stop: &String| Some(stop) == text.as_ref();
                let index = params.stops.iter().position(is_text);
                let index = index.and_then(|index| u16::try_from(index).ok());
                End::Stop(index.map_or(Stop::Eos, Stop::StopString))
            }
        });
        for (place, &id) in ids[..kept].iter().enumerate() {
            let logprob = logprobs.get(place).copied().unwrap_or(0.0);
            match self.relayed.append(choice, Token { id, logprob }, &[], now) {
                Ok(()) => self.choices[choice].note_token(),
                Err(AppendError::Full) => return Some(End::Length),
                Err(why) => {
                    tracing::warn!("token {id} of an upstream: {why:?}");
                    return Some(End::Failed(FailCode::Inference));
                }
            }
        }
        if kept > 0 {
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
        let address = &shared.config.addresses[upstream];
        let is_exact = self
            .request
            .as_ref()
            .is_ok_and(|r| continues_exactly(&r.params));
        let run = &mut self.choices[choice];
        let end = match error {
            CallError::Refused(why) => {
                tracing::warn!(%address, "an upstream refused or misunderstood a request: {why}");
                Some(End::Failed(FailCode::Inference))
            }
            CallError::Unavailable(why) => {
                tracing::info!(%address, "a call of an upstream failed: {why}");
                shared.upstreams.failed(upstream, now);
                run.note_failure(was_accepted, shared.config.retry, now);
                let crashed = run.crashes >= shared.config.crashes_max;
                match run.generated > 0 && !is_exact {
                    true => Some(End::Lost),
                    false => crashed.then_some(End::Failed(FailCode::CrashedEngines)),
                }
            }
        };
        self.drop_call(choice, shared);
        if let Some(end) = end {
            self.relayed.finish(choice, end, now);
        }
    }

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
        if now.saturating_duration_since(run.unplaced_since) >= shared.config.unplaced_max {
            return self.relayed.finish(choice, End::Lost, now);
        }
        let (Ok(request), Some(log)) = (&self.request, self.relayed.log_ids(choice)) else {
            return;
        };
        let mut ids = self.relayed.prompt().to_vec();
        ids.extend_from_slice(&log[log.len().saturating_sub(run.generated)..]);
        let max_tokens = self.relayed.tokens_max().saturating_sub(ids.len());
        if max_tokens == 0 {
            return self.relayed.finish(choice, End::Length, now);
        }
        let body = CallBody {
            model: &model.name,
            request,
            choice,
            ids: &ids,
            max_tokens,
            generated: run.generated,
        };
        let body = body.to_json().to_string().into_bytes();
        let Some(upstream) = shared.upstreams.begin_call(now) else {
            return;
        };
        let run = &mut self.choices[choice];
        run.calls += 1;
        let (credit, allowed) = watch::channel(0);
        let call = HttpCall {
            key: CallKey {
                handle: self.handle,
                choice,
                call: run.calls,
            },
            config: Arc::clone(&shared.config),
            address: shared.config.addresses[upstream].clone(),
            body,
            prompt: ids,
            credit: allowed,
            reports: shared.sender.clone(),
        };
        run.call = Some(RunningCall {
            upstream,
            credit,
            received: 0,
            is_accepted: false,
            task: tokio::spawn(call.run()).abort_handle(),
        });
        self.give_credit(choice);
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
