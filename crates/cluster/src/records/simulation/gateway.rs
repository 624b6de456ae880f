//! One gateway: its streams, its replicator, and a clock that runs wrong.

use super::{DESCRIPTION, token};
use crate::names::InstanceId;
use crate::records::{ClaimPlan, RecordsConfig, Replicator};
use journal::{Record, StreamKey, Tokens};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A stream in the memory of a gateway.
pub(super) struct SimStream {
    pub(super) tokens: Vec<u32>,
    pub(super) generation: u64,
    /// Whether the gateway knows that another one owns the stream.
    pub(super) is_deposed: bool,
    /// Time in which the stream went on although it had another owner and this gateway could learn so.
    pub(super) deposed_for: Duration,
}

/// A takeover that is being attempted.
pub(super) struct ClaimJob {
    pub(super) stage: ClaimStage,
    pub(super) timeout_at: Instant,
}

pub(super) enum ClaimStage {
    Reading,
    Publishing(Box<ClaimPlan>),
    Checking(Box<ClaimPlan>),
}

pub(super) struct SimGateway {
    pub(super) instance: InstanceId,
    pub(super) replicator: Replicator,
    pub(super) streams: BTreeMap<u128, SimStream>,
    pub(super) jobs: BTreeMap<u128, ClaimJob>,
    pub(super) partitioned_until: Option<Instant>,
    pub(super) stopped_until: Option<Instant>,
    /// When the heartbeats of others arrived.
    pub(super) heard: BTreeMap<InstanceId, Instant>,
    start: Instant,
    offset: Duration,
    rate: f64,
}

impl SimGateway {
    pub(super) fn new(id: u64, now: Instant, (offset, rate): (Duration, f64)) -> Self {
        let config = RecordsConfig {
            behind_bytes: 2048,
            age_max: Duration::from_secs(20),
            ..RecordsConfig::default()
        };
        let mut replicator = Replicator::new(InstanceId(id), config, |_| 0);
        replicator.set_connected(true, now + offset);
        Self {
            instance: InstanceId(id),
            replicator,
            streams: BTreeMap::new(),
            jobs: BTreeMap::new(),
            partitioned_until: None,
            stopped_until: None,
            heard: BTreeMap::new(),
            start: now,
            offset,
            rate,
        }
    }

    /// What the gateway's clock shows.
    pub(super) fn clock(&self, now: Instant) -> Instant {
        self.start + self.offset + (now - self.start).mul_f64(self.rate)
    }

    pub(super) fn runs(&self, now: Instant) -> bool {
        self.stopped_until.is_none_or(|until| until <= now)
    }

    pub(super) fn is_connected(&self) -> bool {
        self.partitioned_until.is_none()
    }

    pub(super) fn owns(&self, id: u128) -> bool {
        self.streams.get(&id).is_some_and(|s| !s.is_deposed)
    }

    pub(super) fn open(&mut self, id: u128, now: Instant) {
        let at = self.clock(now);
        self.replicator
            .open_stream(StreamKey::NONE, id, DESCRIPTION, at);
        self.insert(id, Vec::new(), 1);
    }

    fn insert(&mut self, id: u128, tokens: Vec<u32>, generation: u64) {
        let stream = SimStream {
            tokens,
            generation,
            is_deposed: false,
            deposed_for: Duration::ZERO,
        };
        self.streams.insert(id, stream);
    }

    /// Appends tokens; every owner draws others where `is_drawn`.
    pub(super) fn append(&mut self, id: u128, count: u64, is_drawn: bool, now: Instant) {
        let at = self.clock(now);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let first = stream.tokens.len();
        let owner = if is_drawn { stream.generation } else { 0 };
        for index in first as u64..first as u64 + count {
            stream.tokens.push(token(id, index, owner));
        }
        let record = Record::Tokens(Tokens {
            first: first as u32,
            ids: &stream.tokens[first..],
            ..Tokens::default()
        });
        self.replicator.append(id, &record, at);
    }

    /// Writes streams once more, as the journal's thread does.
    pub(super) fn copy_streams(&mut self, now: Instant) {
        let at = self.clock(now);
        while let Some((_, id)) = self.replicator.next_copy() {
            let Some(stream) = self.streams.get(&id) else {
                continue;
            };
            let record = Record::Tokens(Tokens {
                ids: &stream.tokens,
                ..Tokens::default()
            });
            self.replicator
                .copy_stream(id, DESCRIPTION, &mut |append| append(&record), at);
        }
    }

    /// A claim was stored.
    pub(super) fn adopt(&mut self, id: u128, plan: &ClaimPlan, sequence: u64, now: Instant) {
        let at = self.clock(now);
        let place = plan.place(sequence);
        let tokens = plan.stream.choices.first();
        let tokens = tokens.map_or_else(Vec::new, |choice| choice.ids.clone());
        self.replicator.claim_stream(id, place, at);
        self.insert(id, tokens, place.generation);
        self.replicator
            .open_stream(StreamKey::NONE, id, DESCRIPTION, at);
    }

    /// Takes what the replicator has learned.
    pub(super) fn take_fenced(&mut self) -> usize {
        let fenced = self.replicator.take_fenced();
        for fenced in &fenced {
            if let Some(stream) = self.streams.get_mut(&fenced.id) {
                assert!(fenced.generation >= stream.generation);
                stream.is_deposed = true;
            }
        }
        fenced.len()
    }
}
