//! A relay and engines over a network that loses, repeats, delays and reorders messages, while engines die, stop for a
//! while, reject and leave, and the connection breaks. Each seed is a run in virtual time; what readers get is compared
//! with what an engine alone would compute.

mod client;
mod engine;
mod faults;

use self::client::Client;
use self::engine::SimEngine;
use super::*;
use crate::messages::{ContentIdentity, ReadRequest, RunReply, TokenBatch, encode_orders};
use crate::names::InstanceId;
use crate::placement::EngineLoad;
use ::engine::remote::remote_handle;
use ::engine::{EngineConfig, Handle, Token};
use model::Dims;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use stream::{PoolLimits, SegmentPool};
use testing::random::Random;

const GATEWAY: InstanceId = InstanceId(99);
const CLIENTS: usize = 12;
const SEEDS: u64 = 100;
/// Virtual time after which a run counts as stuck.
const TIME_MAX: Duration = Duration::from_secs(240);
/// Virtual time in which faults happen.
const FAULTS: Duration = Duration::from_secs(20);
/// An engine that was silent for this time counts as dead.
const HEARTBEAT_WAIT: Duration = Duration::from_millis(1000);

const DIMS: Dims = Dims {
    vocab: 2048,
    context_max: 1024,
    page_tokens: 16,
    pages: 4096,
    rows_max: 64,
    logit_rows_max: 64,
};

/// A message on its way.
enum Packet {
    Run(InstanceId, (u64, u32), Vec<Vec<u8>>),
    Orders(InstanceId, Vec<u8>),
    Read(InstanceId, Vec<u8>),
    Submitted(InstanceId, (u64, u32), SubmitOutcome),
    Tokens(Vec<u8>, bool),
    Heartbeat(InstanceId),
}

struct World {
    random: Random,
    now: Instant,
    start: Instant,
    relay: Relay,
    handle: Handle,
    engines: Vec<SimEngine>,
    last_engine: u64,
    heard: BTreeMap<InstanceId, Instant>,
    packets: BTreeMap<(Instant, u64), Packet>,
    sent: u64,
    disconnected_until: Option<Instant>,
    clients: Vec<Client>,
    pool: SegmentPool<Token>,
    released: Arc<AtomicUsize>,
}

#[expect(clippy::disallowed_methods, reason = "a start of virtual time")]
fn epoch() -> Instant {
    Instant::now()
}

impl World {
    fn new(seed: u64) -> Self {
        let start = epoch();
        let (handle, inbox) = remote_handle(DIMS, EngineConfig::default(), start).unwrap();
        let model = RelayedModel {
            context_max: 0,
            key: "model".into(),
            identity: ContentIdentity::default(),
            inbox,
        };
        // Engines die far more often than by a request's fault.
        let config = RelayConfig {
            crashes_max: 1000,
            ..RelayConfig::default()
        };
        let mut relay = Relay::new(GATEWAY, config, vec![model]);
        relay.set_connected(true, start);
        let mut world = Self {
            random: Random(seed),
            now: start,
            start,
            relay,
            handle,
            engines: Vec::new(),
            last_engine: 0,
            heard: BTreeMap::new(),
            packets: BTreeMap::new(),
            sent: 0,
            disconnected_until: None,
            clients: Vec::new(),
            pool: SegmentPool::new(PoolLimits { segments_max: 4096 }),
            released: Arc::default(),
        };
        (0..3).for_each(|_| world.start_engine());
        world
    }

    fn start_engine(&mut self) {
        self.last_engine += 1;
        let id = InstanceId(self.last_engine);
        self.engines.push(SimEngine::new(id, self.now));
    }

    fn has_faults(&self) -> bool {
        self.now - self.start < FAULTS
    }

    /// Puts a message on the network, perhaps never, perhaps twice.
    fn send(&mut self, make: impl Fn() -> Packet) {
        let is_faulty = self.has_faults();
        if self.disconnected_until.is_some() || is_faulty && self.random.chance(4) {
            return;
        }
        let copies = if is_faulty && self.random.chance(4) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let slow = is_faulty && self.random.chance(3);
            let most = if slow { 600_000 } else { 8_000 };
            let delay = Duration::from_micros(100 + self.random.below(most));
            self.sent += 1;
            self.packets.insert((self.now + delay, self.sent), make());
        }
    }

    /// The answer to a request that nobody answers, as the driver gives it.
    fn send_unanswered(&mut self, engine: InstanceId, name: (u64, u32), after: Duration) {
        self.sent += 1;
        let packet = Packet::Submitted(engine, name, SubmitOutcome::Unanswered);
        self.packets.insert((self.now + after, self.sent), packet);
    }

    fn engine(&mut self, id: InstanceId) -> Option<&mut SimEngine> {
        self.engines.iter_mut().find(|engine| engine.id == id)
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.packets.first_entry().filter(|e| e.key().0 <= self.now) {
            let packet = entry.remove();
            let to = match &packet {
                Packet::Run(id, ..) | Packet::Orders(id, _) | Packet::Read(id, _) => Some(*id),
                _ => None,
            };
            let now = self.now;
            let stopped = to.and_then(|id| self.engine(id)).map(|e| e.stopped_until);
            if let Some(until) = stopped.filter(|&until| until > now) {
                // The kernel keeps what arrives for a stopped process.
                self.sent += 1;
                self.packets.insert((until, self.sent), packet);
                continue;
            }
            self.receive(packet);
        }
    }

    fn receive(&mut self, packet: Packet) {
        let now = self.now;
        match packet {
            Packet::Run(id, name, parts) => {
                let is_full = self.has_faults() && self.random.chance(10);
                let reply = self.engine(id).map(|engine| {
                    let replies = parts.iter().map(|part| engine.run(part, is_full, now));
                    replies.last().expect("a part")
                });
                match reply {
                    None => self.send_unanswered(id, name, Duration::from_millis(1)),
                    Some(reply) => self.send(|| {
                        let outcome = SubmitOutcome::Answered(RunReply::clone(&reply));
                        Packet::Submitted(id, name, outcome)
                    }),
                }
            }
            Packet::Orders(id, message) => {
                if let Some(engine) = self.engine(id) {
                    engine.orders(&message);
                }
            }
            Packet::Read(id, message) => {
                let request = ReadRequest::decode(&message).expect("a read");
                if let Some(batch) = self.engine(id).map(|engine| engine.read(&request)) {
                    self.send_tokens(&batch, true);
                }
            }
            Packet::Submitted(id, name, outcome) => {
                self.relay.on_submitted(id, name, &outcome, now);
            }
            Packet::Tokens(message, is_answer) => {
                let mut batch = TokenBatch::default();
                batch.decode_into(&message).expect("tokens");
                self.relay.on_tokens(&batch, is_answer, now);
            }
            Packet::Heartbeat(id) => {
                self.heard.insert(id, now);
            }
        }
    }

    fn send_tokens(&mut self, batch: &TokenBatch, is_answer: bool) {
        let mut message = Vec::new();
        batch.encode(&mut message);
        self.send(|| Packet::Tokens(message.clone(), is_answer));
    }

    fn poll(&mut self) {
        for action in self.relay.poll(self.now) {
            match action {
                Action::Submit { engine, run } => {
                    let (name, parts) = ((run.handle, run.attempt), run.encode_parts().unwrap());
                    self.send(|| Packet::Run(engine, name, parts.clone()));
                    self.send_unanswered(engine, name, Duration::from_secs(5));
                }
                Action::Order { engine, orders } => {
                    let mut message = Vec::new();
                    encode_orders(GATEWAY, &orders, &mut message).unwrap();
                    self.send(|| Packet::Orders(engine, message.clone()));
                }
                Action::Read { engine, request } => {
                    let message = request.encode().unwrap();
                    self.send(|| Packet::Read(engine, message.clone()));
                }
            }
        }
    }

    /// Passes what heartbeats show to the relay.
    fn show_engines(&mut self) {
        let now = self.now;
        self.heard.retain(|_, heard| now - *heard < HEARTBEAT_WAIT);
        let loads = self.heard.iter().filter(|(id, _)| {
            let engine = self.engines.iter().find(|engine| engine.id == **id);
            engine.is_none_or(|engine| !engine.is_leaving)
        });
        let loads = loads.map(|(&id, &heard)| load(id, heard));
        self.relay.set_engines(Engines {
            models: vec![ModelEngines {
                loads: loads.collect(),
                arithmetic: Vec::new(),
            }],
            alive: self.heard.keys().copied().collect(),
        });
    }

    fn step_engines(&mut self, ms: u64) {
        for i in 0..self.engines.len() {
            let engine = &mut self.engines[i];
            if engine.stopped_until > self.now {
                continue;
            }
            let id = engine.id;
            if ms.is_multiple_of(30) {
                let most = 1 + self.random.below(2) as usize;
                let batch = engine.step(most);
                if !batch.is_empty() {
                    self.send_tokens(&batch, false);
                }
            }
            if ms.is_multiple_of(250) {
                self.send(|| Packet::Heartbeat(id));
            }
        }
    }

    fn is_done(&self) -> bool {
        self.clients.len() == CLIENTS && self.clients.iter().all(Client::has_ended)
    }

    fn run(&mut self, label: &str) {
        let mut ms = 0;
        while !self.is_done() {
            ms += 1;
            self.now = self.start + Duration::from_millis(ms);
            assert!(self.now - self.start < TIME_MAX, "{label}: stuck");
            self.deliver();
            self.step_engines(ms);
            if ms.is_multiple_of(5) {
                self.show_engines();
                self.poll();
            }
            if ms.is_multiple_of(20) {
                self.inject_faults();
                self.act_as_clients();
            }
        }
        self.clients.iter().for_each(|client| client.check(label));
        assert!(self.relay.is_empty(), "{label}: requests are left");
        let released = self.released.load(Ordering::Relaxed);
        assert_eq!(
            released, CLIENTS,
            "{label}: resources that are not released"
        );
    }

    /// Runs until the engines have forgotten everything.
    fn settle(&mut self, label: &str) {
        self.disconnected_until = None;
        self.relay.set_connected(true, self.now);
        for ms in 1..20_000 {
            self.now += Duration::from_millis(1);
            self.deliver();
            self.step_engines(ms);
            if ms.is_multiple_of(5) {
                self.show_engines();
                self.poll();
            }
        }
        assert!(
            !self.relay.needs_ticks(),
            "{label}: the relay does not come to rest"
        );
        let live: usize = self.engines.iter().map(SimEngine::live).sum();
        assert_eq!(live, 0, "{label}: requests are left on engines");
    }
}

fn load(id: InstanceId, heard: Instant) -> EngineLoad {
    EngineLoad {
        id,
        heard,
        cache_epoch: 1,
        cache_tokens: 65_536,
        free_tokens: 65_536,
        slots: 64,
        queued: 0,
        running: 0,
        prefill_pending: None,
        prefill_tokens_per_s: None,
        step: Duration::from_millis(10),
    }
}

#[test]
fn readers_get_the_tokens_of_one_engine_whatever_the_network_and_the_engines_do() {
    let mut total = RelayCounters::default();
    for seed in 0..SEEDS {
        let label = format!("seed {seed}");
        let mut world = World::new(seed);
        world.run(&label);
        let counters = world.relay.counters();
        assert_eq!(counters.diverged, 0, "{label}");
        total.attempts += counters.attempts;
        total.resubmitted += counters.resubmitted;
        total.gap_reads += counters.gap_reads;
        total.stale += counters.stale;
        world.settle(&label);
    }
    // The faults happened.
    assert!(
        total.attempts > 1000 && total.resubmitted > 200,
        "{total:?}"
    );
    assert!(total.gap_reads > 500 && total.stale > 200, "{total:?}");
}
