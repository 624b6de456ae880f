//! Gateways over a JetStream that loses, repeats and delays requests and answers, has no leader for a while, and is
//! wiped, while gateways die, are stopped, are cut off, and have clocks that run wrong. Each seed is a run in virtual time.
//!
//! An owner that was replaced never appends to the store ([`store::SimStore::publish`]); a takeover finds everything that
//! was acknowledged; an owner that was replaced learns so; in the end each stream has one owner, and one text.

mod claims;
mod faults;
mod gateway;
mod store;

use self::gateway::{ClaimStage, SimGateway};
use self::store::SimStore;
use super::{ClaimPlan, LastMessage, PublishOutcome, StoreRequest, SubjectMessage};
use crate::names::InstanceId;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use testing::random::Random;

const DESCRIPTION: &[u8] = b"{\"prompt\":[1,2,3]}";
const STEP: Duration = Duration::from_millis(10);
const SEEDS: u64 = 200;
const GATEWAYS: usize = 3;
const STREAMS: u64 = 8;
/// Virtual time in which faults happen.
const FAULTS: Duration = Duration::from_secs(40);
/// Virtual time after them in which tokens are appended.
const RECOVERY: Duration = Duration::from_secs(40);
/// Silence after which an instance counts as gone.
const GONE: Duration = Duration::from_secs(3);
/// Longest time in which an owner that was replaced, is connected, and has a store with a leader may go on: some lost
/// requests and answers.
const DEPOSED_MAX: Duration = Duration::from_secs(20);

/// Token of a text.
fn token(id: u128, index: u64, owner: u64) -> u32 {
    let seed = (id as u64) << 40 | owner << 24 | index;
    Random(seed).next() as u32
}

#[derive(Clone)]
enum Request {
    Publish(u64, u64, Bytes),
    Check,
    Purge(u64),
    Read,
    Claim(u64, Bytes),
    CheckClaim,
}

#[derive(Clone)]
enum Reply {
    Published(u64, PublishOutcome),
    Checked(Result<Option<LastMessage>, ()>),
    Read(Vec<SubjectMessage>),
    Claimed(PublishOutcome),
    ClaimChecked(Option<LastMessage>),
}

enum Packet {
    Request(InstanceId, u128, Request),
    Reply(InstanceId, u128, Reply),
    /// The time limit of a request, which does not travel.
    Timeout(InstanceId, u128, Reply),
}

struct World {
    random: Random,
    start: Instant,
    now: Instant,
    store: SimStore,
    gateways: Vec<SimGateway>,
    packets: BTreeMap<(Instant, u64), Packet>,
    sent: u64,
    last_instance: u64,
    opened: u64,
    /// What owners know to be stored, since the store was wiped last.
    acknowledged: BTreeMap<u128, Vec<u32>>,
    is_drawn: bool,
    /// Whether owners go on without a connection, as those with an engine of their own.
    has_engine: bool,
    takeovers: u64,
    fenced: usize,
}

#[expect(clippy::disallowed_methods, reason = "a start of virtual time")]
fn epoch() -> Instant {
    Instant::now()
}

impl World {
    fn new(seed: u64) -> Self {
        let start = epoch();
        let mut world = Self {
            random: Random(seed),
            start,
            now: start,
            store: SimStore::default(),
            gateways: Vec::new(),
            packets: BTreeMap::new(),
            sent: 0,
            last_instance: 0,
            opened: 0,
            acknowledged: BTreeMap::new(),
            is_drawn: seed % 2 == 1,
            has_engine: seed.is_multiple_of(3),
            takeovers: 0,
            fenced: 0,
        };
        (0..GATEWAYS).for_each(|_| world.start_gateway());
        world
    }

    fn start_gateway(&mut self) {
        self.last_instance += 1;
        let offset = Duration::from_secs(self.random.below(7200));
        let rate = 0.9 + self.random.below(200) as f64 / 1000.0;
        let gateway = SimGateway::new(self.last_instance, self.now, (offset, rate));
        self.gateways.push(gateway);
    }

    fn has_faults(&self) -> bool {
        self.now - self.start < FAULTS
    }

    fn step(&mut self) {
        self.now += STEP;
        if self.has_faults() {
            self.inject_fault();
        }
        self.heal();
        self.beat();
        self.deliver();
        self.act();
        self.visit();
        for at in 0..self.gateways.len() {
            self.drive(at);
        }
    }

    /// Heartbeats arrive where both are connected and run.
    fn beat(&mut self) {
        let now = self.now;
        let speaks = |g: &SimGateway| g.is_connected() && g.runs(now);
        let speaking = self.gateways.iter().filter(|gateway| speaks(gateway));
        let speaking: Vec<_> = speaking.map(|gateway| gateway.instance).collect();
        for gateway in self.gateways.iter_mut().filter(|gateway| speaks(gateway)) {
            let clock = gateway.clock(now);
            for instance in &speaking {
                gateway.heard.insert(*instance, clock);
            }
        }
    }

    fn send(&mut self, packet: impl Fn() -> Packet) {
        let is_faulty = self.has_faults();
        if is_faulty && self.random.chance(3) {
            return;
        }
        let copies = if is_faulty && self.random.chance(3) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let is_slow = is_faulty && self.random.chance(3);
            let delay = self.random.below(if is_slow { 4000 } else { 20 });
            self.sent += 1;
            let at = (self.now + Duration::from_millis(delay), self.sent);
            self.packets.insert(at, packet());
        }
    }

    fn is_reachable(&self, instance: InstanceId) -> bool {
        let found = self.gateways.iter().find(|g| g.instance == instance);
        found.is_some_and(SimGateway::is_connected)
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.packets.first_entry() {
            if entry.key().0 > self.now {
                return;
            }
            match entry.remove() {
                Packet::Request(from, id, request) => {
                    // A request of a process that died, or was cut off, may still arrive.
                    let has_leader = self.store.has_leader(self.now);
                    if has_leader || self.random.chance(20) {
                        let reply = self.answer(id, request);
                        if let Some(reply) = reply.filter(|_| has_leader) {
                            self.send(|| Packet::Reply(from, id, reply.clone()));
                        }
                    }
                }
                Packet::Reply(to, id, reply) if self.is_reachable(to) => self.take(to, id, reply),
                Packet::Timeout(to, id, reply) => self.take(to, id, reply),
                Packet::Reply(..) => {}
            }
        }
    }

    fn answer(&mut self, id: u128, request: Request) -> Option<Reply> {
        let mut publish = |expected, payload| match self.store.publish(id, expected, payload) {
            Some(sequence) => PublishOutcome::Stored(sequence),
            None => PublishOutcome::WrongSequence,
        };
        Some(match request {
            Request::Publish(serial, expected, payload) => {
                Reply::Published(serial, publish(expected, payload))
            }
            Request::Claim(expected, payload) => Reply::Claimed(publish(expected, payload)),
            Request::Check => Reply::Checked(Ok(self.store.last(id))),
            Request::CheckClaim => Reply::ClaimChecked(self.store.last(id)),
            Request::Read => Reply::Read(self.store.read(id)),
            Request::Purge(below) => {
                self.store.purge(id, below);
                return None;
            }
        })
    }

    fn take(&mut self, to: InstanceId, id: u128, reply: Reply) {
        let now = self.now;
        let Some(at) = self.gateways.iter().position(|g| g.instance == to) else {
            return;
        };
        let gateway = &mut self.gateways[at];
        let clock = gateway.clock(now);
        match reply {
            Reply::Published(serial, outcome) => {
                gateway.replicator.on_published(id, serial, outcome, clock);
            }
            Reply::Checked(last) => gateway.replicator.on_checked(id, last, clock),
            Reply::Read(messages) => self.take_messages(at, id, &messages),
            Reply::Claimed(outcome) => self.take_claimed(at, id, outcome),
            Reply::ClaimChecked(last) => self.take_checked_claim(at, id, last),
        }
    }

    /// New streams, and tokens.
    fn act(&mut self) {
        let now = self.now;
        let at = self.random.below(self.gateways.len() as u64) as usize;
        if self.opened < STREAMS && self.random.chance(5) && self.gateways[at].runs(now) {
            self.opened += 1;
            self.gateways[at].open(u128::from(self.opened), now);
        }
        let is_over = now - self.start > FAULTS + RECOVERY;
        for gateway in &mut self.gateways {
            let goes_on = gateway.is_connected() || self.has_engine;
            if !gateway.runs(now) || !goes_on || is_over {
                continue;
            }
            let ids: Vec<_> = gateway.streams.keys().copied().collect();
            for id in ids {
                if self.random.chance(10) && gateway.owns(id) {
                    let count = 1 + self.random.below(4);
                    gateway.append(id, count, self.is_drawn, now);
                }
            }
        }
    }

    /// One gateway's work of a step.
    fn drive(&mut self, at: usize) {
        let now = self.now;
        if !self.gateways[at].runs(now) {
            return;
        }
        let (created, last) = (self.store.created, self.store.last_sequence);
        let is_fresh = self.store.has_leader(now) && self.gateways[at].is_connected();
        let gateway = &mut self.gateways[at];
        let clock = gateway.clock(now);
        if is_fresh && self.random.chance(1) {
            gateway.replicator.note_store(created, last, clock);
            gateway.replicator.look_at_ages(clock);
        }
        gateway.copy_streams(now);
        let mut requests = Vec::new();
        while let Some(action) = gateway.replicator.poll(clock) {
            requests.push(action);
        }
        gateway.replicator.check();
        self.fenced += gateway.take_fenced();
        let instance = gateway.instance;
        for action in requests {
            self.request(instance, action);
        }
        self.drive_claims(at);
        self.note_stored(at);
        self.count_deposed(at);
    }

    fn request(&mut self, from: InstanceId, action: StoreRequest) {
        let (id, request, give_up) = match action {
            StoreRequest::Publish {
                id,
                serial,
                expected,
                payload,
            } => {
                let unknown = Reply::Published(serial, PublishOutcome::Unknown);
                (
                    id,
                    Request::Publish(serial, expected, payload),
                    Some((5000, unknown)),
                )
            }
            StoreRequest::Check { id } => {
                (id, Request::Check, Some((2000, Reply::Checked(Err(())))))
            }
            StoreRequest::Purge { id, below, .. } => (id, Request::Purge(below), None),
            StoreRequest::Files { .. } | StoreRequest::PurgeFiles { .. } => {
                unreachable!("the descriptions name no files")
            }
        };
        self.send(|| Packet::Request(from, id, request.clone()));
        if let Some((ms, reply)) = give_up {
            self.sent += 1;
            let at = (self.now + Duration::from_millis(ms), self.sent);
            self.packets.insert(at, Packet::Timeout(from, id, reply));
        }
    }

    /// What a gateway with an empty buffer has replicated is acknowledged.
    fn note_stored(&mut self, at: usize) {
        let gateway = &self.gateways[at];
        if gateway.replicator.behind_bytes() > 0 {
            return;
        }
        for (id, stream) in gateway.streams.iter().filter(|(_, s)| !s.is_deposed) {
            let is_followed =
                gateway.replicator.state_of(*id) == Some(super::ReplicaState::Followed);
            let owner = self.store.last(*id).map(|last| last.head.instance);
            if is_followed && owner == Some(gateway.instance) {
                self.acknowledged.insert(*id, stream.tokens.clone());
            }
        }
    }

    fn count_deposed(&mut self, at: usize) {
        let now = self.now;
        let gateway = &mut self.gateways[at];
        if !gateway.is_connected() || !self.store.has_leader(now) {
            return;
        }
        for (id, stream) in gateway.streams.iter_mut().filter(|(_, s)| !s.is_deposed) {
            let last = self.store.last(*id);
            let is_deposed = last.is_some_and(|last| {
                last.head.generation > stream.generation && last.head.instance != gateway.instance
            });
            if is_deposed {
                stream.deposed_for += STEP;
                assert!(stream.deposed_for < DEPOSED_MAX, "stream {id}");
            } else {
                stream.deposed_for = Duration::ZERO;
            }
        }
    }
}

fn run(seed: u64) -> World {
    let mut world = World::new(seed);
    let end = world.start + FAULTS + RECOVERY + Duration::from_secs(10);
    while world.now < end {
        world.step();
    }
    world
}

/// Promise (Records of streams in JetStream): an owner that was replaced appends nothing more, and learns so; a
/// takeover finds everything that was acknowledged; in the end a stream has one owner and one text, whatever dies,
/// stops, is cut off, lost, repeated or wiped, and whatever clocks show.
#[test]
fn streams_have_one_owner_and_one_text() {
    let (mut takeovers, mut fenced, mut copies, mut overflows) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let world = run(seed);
        world.check_end(seed);
        takeovers += world.takeovers;
        fenced += world.fenced;
        for gateway in &world.gateways {
            let counters = gateway.replicator.counters();
            copies += counters.copies;
            overflows += counters.overflows;
        }
    }
    // The faults that the runs are about did happen.
    let counts =
        format!("{takeovers} takeovers, {fenced} fenced, {copies} copies, {overflows} overflows");
    assert!(takeovers > 4 * SEEDS && fenced > 100, "{counts}");
    assert!(copies > takeovers && overflows > 100, "{counts}");
}
