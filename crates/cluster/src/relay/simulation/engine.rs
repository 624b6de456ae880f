//! An engine without a model: tokens are a function of the request, the choice and the index.

use crate::messages::{
    Assembled, Attempt, ChoiceEnd, OrderKind, PartAssembly, ReadRequest, Rejection,
    RequestProgress, Run, RunKey, RunReply, TokenBatch, decode_orders,
};
use crate::names::InstanceId;
use engine::{Phase, RequestUpdate, Token};
use std::collections::BTreeMap;
use std::time::Instant;
use stream::{End, Stop};

/// Injected ids begin here; sampled ones are below.
pub(super) const INJECTED: u32 = 1000;

/// Steps after which progress is repeated.
const SILENT_STEPS: u32 = 100;

/// The token at an index of a choice's log.
pub(super) fn token_at(seed: u64, choice: usize, index: usize, top_k: u32) -> u32 {
    let mixed = (seed ^ 0x9E37)
        .wrapping_mul(0x94D0_49BB_1331_11EB)
        .wrapping_add((choice as u64) << 40 | (index as u64) << 8 | u64::from(top_k))
        .wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 33) as u32 % (INJECTED - 1) + 1
}

/// Length of a choice's log at its end, and the end.
pub(super) fn end_of(seed: u64, choice: usize) -> (usize, End) {
    let len = 5 + (seed % 997 * 31) as usize % 60 + choice * 3;
    let end = match seed % 3 {
        0 => End::Length,
        1 => End::Stop(Stop::Eos),
        _ => End::Stop(Stop::StopString(seed as u16)),
    };
    (len, end)
}

#[derive(Clone)]
pub(super) struct SimChoice {
    pub(super) ids: Vec<u32>,
    pub(super) sent: usize,
    pub(super) credit: usize,
    pub(super) end: Option<End>,
    pub(super) is_end_sent: bool,
}

pub(super) struct SimRequest {
    pub(super) attempt: u32,
    pub(super) seed: u64,
    /// Number of the first choice.
    pub(super) first: usize,
    pub(super) window: usize,
    pub(super) choices: Vec<SimChoice>,
    pub(super) top_k: u32,
    pub(super) is_paused: bool,
    pub(super) updates: Vec<RequestUpdate>,
    pub(super) updates_applied: u32,
    pub(super) orders_applied: u32,
    pub(super) last: Option<RequestProgress>,
    /// Steps since anything was sent: progress is repeated after a while, for a gateway that has given the attempt up.
    pub(super) silent_steps: u32,
}

/// An engine, or with `is_leaving` one that ends its requests.
pub(super) struct SimEngine {
    pub(super) id: InstanceId,
    pub(super) stopped_until: Instant,
    pub(super) is_leaving: bool,
    pub(super) requests: BTreeMap<(InstanceId, u64), SimRequest>,
    assembly: PartAssembly,
}

impl SimEngine {
    pub(super) fn new(id: InstanceId, now: Instant) -> Self {
        Self {
            id,
            stopped_until: now,
            is_leaving: false,
            requests: BTreeMap::new(),
            assembly: PartAssembly::default(),
        }
    }

    pub(super) fn live(&self) -> usize {
        self.requests.len()
    }

    /// Takes a part of a request.
    pub(super) fn run(&mut self, part: &[u8], is_full: bool, now: Instant) -> RunReply {
        let run = match self.assembly.push(part, now).expect("a part") {
            Assembled::Incomplete => return RunReply::Received,
            Assembled::Run(run) => *run,
        };
        let key = (run.gateway, run.handle);
        let known = self.requests.get(&key).map(|known| known.attempt);
        if known.is_some_and(|known| known >= run.attempt) {
            return RunReply::Accepted;
        }
        if is_full || self.is_leaving {
            let code = if is_full {
                Rejection::Full
            } else {
                Rejection::Leaving
            };
            let message = String::new();
            return RunReply::Rejected { code, message };
        }
        self.requests.insert(key, SimRequest::new(&run));
        RunReply::Accepted
    }

    pub(super) fn orders(&mut self, message: &[u8]) {
        let (gateway, orders) = decode_orders(message).expect("orders");
        for order in orders {
            let key = (gateway, order.handle);
            let request = self.requests.get_mut(&key);
            let Some(request) = request.filter(|r| r.attempt == order.attempt) else {
                continue;
            };
            match order.kind {
                OrderKind::Forget => {
                    self.requests.remove(&key);
                }
                OrderKind::Credit { choice, accepted } => {
                    let choice = &mut request.choices[choice as usize];
                    choice.credit = choice.credit.max(accepted as usize);
                }
                _ if order.sequence != request.orders_applied + 1 => {}
                kind => {
                    request.orders_applied += 1;
                    match kind {
                        OrderKind::Pause => request.is_paused = true,
                        OrderKind::Resume => request.is_paused = false,
                        OrderKind::Update(update) => request.updates.push(*update),
                        _ => panic!("an order that the relay does not send"),
                    }
                }
            }
        }
    }

    pub(super) fn read(&self, request: &ReadRequest) -> TokenBatch {
        let mut batch = TokenBatch::new(self.id);
        for entry in &request.entries {
            let (handle, attempt) = (entry.handle, entry.attempt);
            let known = self.requests.get(&(request.gateway, handle));
            let known = known.filter(|r| r.attempt == attempt);
            let Some(known) = known else {
                batch.push_unknown(Attempt { handle, attempt }).unwrap();
                continue;
            };
            for (i, (choice, &have)) in known.choices.iter().zip(&entry.have).enumerate() {
                let have = (have as usize).min(choice.sent);
                known.push_tokens(&mut batch, handle, i, have..choice.sent);
                if choice.is_end_sent {
                    known.push_end(&mut batch, handle, i);
                }
            }
            let progress = known.last.unwrap_or_else(|| known.progress(handle));
            batch.push_progress(progress).unwrap();
        }
        batch
    }

    /// Computes up to `most` tokens of each choice, and returns what is new.
    pub(super) fn step(&mut self, most: usize) -> BTreeMap<InstanceId, TokenBatch> {
        let mut batches = BTreeMap::new();
        for (&(gateway, handle), request) in &mut self.requests {
            let new = || TokenBatch::new(self.id);
            let batch = batches.entry(gateway).or_insert_with(new);
            let begun = request.sent();
            request.step(most, self.is_leaving);
            for (i, sent) in begun.iter().enumerate() {
                let len = request.choices[i].ids.len();
                request.push_tokens(batch, handle, i, *sent..len);
                request.choices[i].sent = len;
                if request.choices[i].end.is_some() && !request.choices[i].is_end_sent {
                    request.choices[i].is_end_sent = true;
                    request.push_end(batch, handle, i);
                }
            }
            let progress = request.progress(handle);
            request.silent_steps += 1;
            let is_silent = request.silent_steps >= SILENT_STEPS;
            if is_silent || request.last != Some(progress) || request.sent() != begun {
                request.silent_steps = 0;
                request.last = Some(progress);
                batch.push_progress(progress).unwrap();
            }
        }
        batches.retain(|_, batch| !batch.is_empty());
        batches
    }
}

impl SimRequest {
    fn new(run: &Run) -> Self {
        let seed = u64::from_le_bytes(run.request[..8].try_into().expect("a seed"));
        let choices = run.choices.iter().map(|choice| SimChoice {
            sent: choice.ids.len(),
            credit: choice.ids.len(),
            ids: choice.ids.clone(),
            end: choice.has_ended.then_some(End::Lost),
            is_end_sent: choice.has_ended,
        });
        Self {
            attempt: run.attempt,
            seed,
            first: run.request[9].into(),
            window: run.request[8].into(),
            choices: choices.collect(),
            top_k: run.updates.last().and_then(|u| u.top_k).unwrap_or(0),
            is_paused: run.is_paused,
            updates: Vec::new(),
            updates_applied: 0,
            orders_applied: 0,
            last: None,
            silent_steps: 0,
        }
    }

    fn sent(&self) -> Vec<usize> {
        self.choices.iter().map(|choice| choice.sent).collect()
    }

    fn step(&mut self, most: usize, is_leaving: bool) {
        if self.is_paused || self.choices.iter().all(|choice| choice.end.is_some()) {
            return;
        }
        if self
            .choices
            .iter()
            .all(|c| c.end.is_some() || !c.ids.is_empty())
        {
            for update in std::mem::take(&mut self.updates) {
                self.top_k = update.top_k.unwrap_or(self.top_k);
                self.updates_applied += 1;
                let open = self.choices.iter_mut().filter(|c| c.end.is_none());
                open.for_each(|choice| choice.ids.extend(&update.inject));
            }
        }
        for (i, choice) in self.choices.iter_mut().enumerate() {
            let number = self.first + i;
            let (len, end) = end_of(self.seed, number);
            for _ in 0..most {
                let room = self.window == 0 || choice.ids.len() < choice.credit + self.window;
                if choice.end.is_none() && choice.ids.len() < len && room {
                    let next = token_at(self.seed, number, choice.ids.len(), self.top_k);
                    choice.ids.push(next);
                }
            }
            if choice.end.is_none() && choice.ids.len() >= len {
                choice.end = Some(end);
            }
            if choice.end.is_none() && is_leaving {
                choice.end = Some(End::Failed(stream::FailCode::Shutdown));
            }
        }
    }

    fn progress(&self, handle: u64) -> RequestProgress {
        let has_ended = self.choices.iter().all(|choice| choice.end.is_some());
        let phase = match (has_ended, self.is_paused) {
            (true, _) => Phase::Ended,
            (_, true) => Phase::Paused,
            _ => Phase::Running,
        };
        RequestProgress {
            handle,
            attempt: self.attempt,
            phase,
            prompt_done: 2,
            cached_tokens: 0,
            updates_applied: self.updates_applied,
            orders_applied: self.orders_applied,
        }
    }

    fn push_tokens(
        &self,
        batch: &mut TokenBatch,
        handle: u64,
        choice: usize,
        range: std::ops::Range<usize>,
    ) {
        let key = RunKey {
            handle,
            attempt: self.attempt,
            choice: choice as u32,
            first: range.start as u32,
        };
        let ids = self.choices[choice].ids[range].iter();
        let tokens: Vec<_> = ids.map(|&id| Token { id, logprob: -1.0 }).collect();
        batch.push_run(key, &tokens, &[]).unwrap();
    }

    fn push_end(&self, batch: &mut TokenBatch, handle: u64, choice: usize) {
        let Some(end) = self.choices[choice].end else {
            return;
        };
        let end = ChoiceEnd {
            handle,
            attempt: self.attempt,
            choice: choice as u32,
            len: self.choices[choice].ids.len() as u32,
            end,
        };
        batch.push_end(end).unwrap();
    }
}
