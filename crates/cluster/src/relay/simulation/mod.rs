//! A relay and engines over a network that loses, repeats, delays and reorders messages, while engines die, stop for a
//! while, reject and leave, and the connection breaks. Each seed is a run in virtual time; what readers get is compared
//! with what an engine alone would compute.

mod client;
mod engine;
mod faults;
mod network;
mod slots;
mod takeover;

use self::client::Client;
use self::engine::SimEngine;
use self::slots::Slots;
use super::*;
use crate::messages::ContentIdentity;
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

/// The first gateway.
const GATEWAY: InstanceId = InstanceId(99);
const CLIENTS: usize = 12;
/// Slots of a gateway, fewer than the choices of all clients.
const SLOTS: usize = 10;
const SEEDS: u64 = 100;
/// Later seeds that found faults.
const FOUND: [u64; 6] = [219, 293, 617, 802, 969, 1154];
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

/// A message on its way. Where it has two instances, the gateway comes first.
enum Packet {
    Run(InstanceId, InstanceId, (u64, u32), Vec<Vec<u8>>),
    Orders(InstanceId, Vec<u8>),
    Read(InstanceId, Vec<u8>),
    Submitted(InstanceId, InstanceId, (u64, u32), SubmitOutcome),
    Tokens(InstanceId, Vec<u8>, bool),
    Heartbeat(InstanceId),
}

struct World {
    random: Random,
    now: Instant,
    start: Instant,
    gateway: InstanceId,
    relay: Relay,
    handle: Handle,
    /// With the times of their deaths.
    dead_gateways: Vec<(InstanceId, Instant)>,
    /// Requests that gateways have submitted for streams of dead ones.
    resumed: u64,
    has_deaths_of_gateways: bool,
    has_other_faults: bool,
    /// Clients whose readers rest until the others have their answers.
    resting: usize,
    slots: Slots,
    /// Of the dead gateways' relays.
    counters: RelayCounters,
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
        let (handle, mut relay) = new_relay(GATEWAY, start);
        relay.set_connected(true, start);
        let mut world = Self {
            random: Random(seed),
            now: start,
            start,
            gateway: GATEWAY,
            relay,
            handle,
            dead_gateways: Vec::new(),
            resumed: 0,
            has_deaths_of_gateways: false,
            has_other_faults: true,
            resting: 0,
            slots: Slots::new(SLOTS),
            counters: RelayCounters::default(),
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

    fn engine(&mut self, id: InstanceId) -> Option<&mut SimEngine> {
        self.engines.iter_mut().find(|engine| engine.id == id)
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
                hidden_dims: Vec::new(),
                towers: Vec::new(),
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
                for (gateway, batch) in engine.step(most) {
                    self.send_tokens(gateway, &batch, false);
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
                self.forget_gateways();
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
        assert_eq!(self.slots.used(), 0, "{label}: slots that are not released");
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
                self.forget_gateways();
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

/// A relay of one model without a connection, and the model's handle.
fn new_relay(gateway: InstanceId, start: Instant) -> (Handle, Relay) {
    let (handle, inbox) = remote_handle(DIMS, EngineConfig::default(), start).unwrap();
    let model = RelayedModel {
        context_max: 0,
        key: "model".into(),
        identity: ContentIdentity::default(),
        tower: String::new(),
        inbox,
    };
    // Engines die far more often than by a request's fault.
    let config = RelayConfig {
        crashes_max: 1000,
        ..RelayConfig::default()
    };
    (handle, Relay::new(gateway, config, vec![model]))
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

/// The seed in `MILLRACE_SEED`, or all.
fn seeds() -> impl Iterator<Item = u64> {
    let one = one_seed();
    let all = (0..SEEDS).chain(FOUND);
    one.into_iter().chain(all.filter(move |_| one.is_none()))
}

fn one_seed() -> Option<u64> {
    let seed = std::env::var("MILLRACE_SEED").ok()?;
    Some(seed.parse().expect("MILLRACE_SEED is a number"))
}

/// Whether the faults of all seeds together are expected.
fn is_whole() -> bool {
    one_seed().is_none()
}

#[test]
fn readers_get_the_tokens_of_one_engine_whatever_the_network_and_the_engines_do() {
    let mut total = RelayCounters::default();
    for seed in seeds() {
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
    let resubmitted = total.attempts > 1000 && total.resubmitted > 200;
    let is_late = total.gap_reads > 500 && total.stale > 200;
    assert!(!is_whole() || (resubmitted && is_late), "{total:?}");
}

#[test]
fn readers_get_the_tokens_of_one_engine_while_gateways_die_too() {
    let mut total = RelayCounters::default();
    let (mut deaths, mut resumed) = (0, 0);
    for seed in seeds() {
        let label = format!("seed {seed}, gateways die");
        let mut world = World::new(seed);
        world.has_deaths_of_gateways = true;
        world.run(&label);
        total.add(&world.counters);
        total.add(&world.relay.counters());
        (deaths, resumed) = (deaths + world.dead_gateways.len(), resumed + world.resumed);
        world.settle(&label);
    }
    assert_eq!(total.diverged, 0);
    let happened = deaths > 300 && resumed > 1000;
    assert!(!is_whole() || happened, "{deaths}, {resumed}");
}

#[test]
fn streams_are_resumed_once_where_only_gateways_die() {
    let mut deaths = 0;
    for seed in seeds() {
        let label = format!("seed {seed}, only gateways die");
        let mut world = World::new(seed);
        (world.has_deaths_of_gateways, world.has_other_faults) = (true, false);
        world.run(&label);
        let mut total = world.counters;
        total.add(&world.relay.counters());
        let submitted = CLIENTS as u64 + world.resumed;
        assert!(total.attempts <= submitted, "{label}: {total:?}");
        assert_eq!((total.resubmitted, total.diverged), (0, 0), "{label}");
        deaths += world.dead_gateways.len();
        world.settle(&label);
    }
    assert!(!is_whole() || deaths > 50, "{deaths}");
}

/// Readers that rest keep nobody out, and their streams outlive engines that die meanwhile.
#[test]
fn readers_that_rest_keep_no_request_out() {
    let mut total = RelayCounters::default();
    for seed in seeds() {
        let label = format!("seed {seed}, readers rest");
        let mut world = World::new(seed);
        // Each of these has a window of tokens, and as many choices as there are slots.
        (world.resting, world.slots) = (CLIENTS / 2, Slots::new(3));
        world.run(&label);
        assert_eq!(world.relay.counters().diverged, 0, "{label}");
        total.add(&world.relay.counters());
        world.settle(&label);
    }
    assert!(!is_whole() || total.resubmitted > 200, "{total:?}");
}
