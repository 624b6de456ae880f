//! A relay on virtual time with one model, whose engines a test plays.

use super::super::*;
use crate::messages::{ChoiceEnd, ContentIdentity, Order, Run, RunKey, RunReply, TokenBatch};
use crate::names::InstanceId;
use crate::placement::EngineLoad;
use ::engine::remote::{RemoteModel, remote_handle};
use ::engine::{
    Choice, EngineConfig, Follower, Handle, Progress, Request, RequestId, Token, Transition,
};
use model::Dims;
use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stream::{End, PoolLimits, Read, Reader, SegmentPool};
pub(super) const DIMS: Dims = Dims {
    vocab: 64,
    context_max: 128,
    page_tokens: 4,
    pages: 64,
    rows_max: 16,
    logit_rows_max: 16,
};
/// Entries of the model's hidden states.
pub(super) const HIDDEN_DIM: usize = 4;
pub(super) const A: InstanceId = InstanceId(0xa);
pub(super) const B: InstanceId = InstanceId(0xb);

pub(super) struct Bench {
    pub(super) handle: Handle,
    pub(super) relay: Relay,
    pub(super) now: Instant,
    pub(super) pool: SegmentPool<Token>,
    pub(super) told: Told,
    submitted: RefCell<Vec<RequestId>>,
}

/// The transitions of all requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Told(Arc<Mutex<Vec<Transition>>>);

impl Told {
    /// How often a request has moved to another engine.
    pub(super) fn moves(&self) -> usize {
        let told = self.0.lock().unwrap();
        told.iter()
            .filter(|what| **what == Transition::Moved)
            .count()
    }
}

impl Follower for Told {
    fn transition(&self, what: Transition, _: Instant) {
        self.0.lock().unwrap().push(what);
    }
}

#[expect(clippy::disallowed_methods, reason = "a start of virtual time")]
pub(super) fn bench() -> Bench {
    let start = Instant::now();
    let served = RemoteModel {
        hidden_dim: HIDDEN_DIM,
        ..DIMS.into()
    };
    let (handle, inbox) = remote_handle(served, EngineConfig::default(), start).unwrap();
    let model = RelayedModel {
        context_max: 0,
        key: "model".into(),
        identity: ContentIdentity::default(),
        tower: "eyes".into(),
        inbox,
    };
    let mut relay = Relay::new(InstanceId(1), RelayConfig::default(), vec![model]);
    relay.set_connected(true, start);
    Bench {
        handle,
        relay,
        now: start + Duration::from_secs(10),
        pool: SegmentPool::new(PoolLimits { segments_max: 64 }),
        told: Told::default(),
        submitted: RefCell::default(),
    }
}

impl Bench {
    pub(super) fn submit(&self) -> Reader<Token> {
        let mut readers = self.submit_with(1, |_| {});
        readers.remove(0)
    }

    /// Submits a changed request with so many choices.
    pub(super) fn submit_with(
        &self,
        choices: usize,
        change: impl FnOnce(&mut Request),
    ) -> Vec<Reader<Token>> {
        let logs = (0..choices).map(|_| stream::open(&self.pool, 8).unwrap());
        let (writers, readers): (Vec<_>, Vec<_>) = logs.unzip();
        let choices = writers.into_iter().map(Choice::new);
        let mut request = Request {
            eos: Arc::from([0]),
            choices: choices.collect(),
            progress: Arc::new(Progress::followed(Box::new(self.told.clone()))),
            remote: Some(b"record".to_vec().into()),
            ..Request::new(vec![1, 2, 3], 8)
        };
        change(&mut request);
        let id = self.handle.submit(request).unwrap();
        self.submitted.borrow_mut().push(id);
        readers
    }

    pub(super) fn cancel_all(&self) {
        let submitted = self.submitted.borrow();
        submitted.iter().for_each(|id| self.handle.cancel(*id));
    }

    pub(super) fn show(&mut self, alive: &[InstanceId]) {
        self.show_dims(alive, &vec![HIDDEN_DIM as u64; alive.len()]);
    }

    /// Shows engines that give vectors with so many entries.
    pub(super) fn show_dims(&mut self, alive: &[InstanceId], hidden_dims: &[u64]) {
        let loads = alive.iter().map(|&id| EngineLoad {
            id,
            heard: self.now,
            cache_epoch: 1,
            cache_tokens: 256,
            free_tokens: 256,
            slots: 16,
            queued: 0,
            running: 0,
            prefill_pending: None,
            prefill_tokens_per_s: None,
            step: Duration::from_millis(10),
        });
        self.relay.set_engines(Engines {
            models: vec![ModelEngines {
                loads: loads.collect(),
                arithmetic: Vec::new(),
                hidden_dims: hidden_dims.to_vec(),
                towers: Vec::new(),
            }],
            alive: alive.iter().copied().collect(),
        });
    }

    /// Polls; returns the request that is sent.
    pub(super) fn sent(&mut self) -> Option<(InstanceId, Run)> {
        self.now += Duration::from_millis(200);
        self.relay
            .poll(self.now)
            .into_iter()
            .find_map(|action| match action {
                Action::Submit { engine, run, .. } => Some((engine, *run)),
                _ => None,
            })
    }

    /// A request on engine `A`.
    pub(super) fn running(&mut self) -> (Reader<Token>, Run) {
        let reader = self.submit();
        (reader, self.placed())
    }

    /// The request that is sent, after `A` has accepted it.
    pub(super) fn placed(&mut self) -> Run {
        let (_, run) = self.sent().expect("placed");
        self.answer(A, &run, RunReply::Accepted);
        run
    }

    pub(super) fn orders(&mut self) -> Vec<Order> {
        self.now += Duration::from_millis(200);
        let actions = self.relay.poll(self.now).into_iter();
        let orders = actions.filter_map(|action| match action {
            Action::Order { orders, .. } => Some(orders),
            _ => None,
        });
        orders.flatten().collect()
    }

    pub(super) fn answer(&mut self, engine: InstanceId, run: &Run, reply: RunReply) {
        let outcome = SubmitOutcome::Answered(reply);
        let name = (run.handle, run.attempt);
        self.relay.on_submitted(engine, name, &outcome, self.now);
    }

    pub(super) fn tokens(&mut self, engine: InstanceId, run: &Run, first: u32, ids: &[u32]) {
        self.tokens_of(engine, run, (0, first), ids);
    }

    /// Tokens of a choice from this index on.
    pub(super) fn tokens_of(
        &mut self,
        engine: InstanceId,
        run: &Run,
        (choice, first): (u32, u32),
        ids: &[u32],
    ) {
        let batch = token_batch(engine, run, (choice, first), ids);
        self.relay.on_tokens(&batch, false, self.now);
    }

    pub(super) fn end(&mut self, engine: InstanceId, run: &Run, len: u32, end: End) {
        let mut batch = TokenBatch::new(engine);
        let end = ChoiceEnd {
            handle: run.handle,
            attempt: run.attempt,
            choice: 0,
            len,
            end,
        };
        batch.push_end(end).unwrap();
        self.relay.on_tokens(&batch, false, self.now);
    }
}

pub(super) fn token_batch(
    engine: InstanceId,
    run: &Run,
    (choice, first): (u32, u32),
    ids: &[u32],
) -> TokenBatch {
    let mut batch = TokenBatch::new(engine);
    let key = RunKey {
        handle: run.handle,
        attempt: run.attempt,
        choice,
        first,
    };
    let tokens: Vec<_> = ids.iter().map(|&id| Token { id, logprob: 0.0 }).collect();
    batch.push_run(key, &tokens, &[]).unwrap();
    batch
}

pub(super) fn read(reader: &mut Reader<Token>) -> (Vec<u32>, Option<End>) {
    let (mut buf, mut ids) = ([Token::default(); 16], Vec::new());
    loop {
        match reader.read(&mut buf) {
            Read::Items(count) => ids.extend(buf[..count].iter().map(|t| t.id)),
            Read::Ended(end) => return (ids, Some(end)),
            Read::Empty => return (ids, None),
        }
    }
}
