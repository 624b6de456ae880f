//! The event loop of a simulated cluster.

use super::super::tests::epoch;
use super::super::{EngineLoad, PlacementPolicy};
use super::engine::{Outcome, SimulatedEngine, Work};
use super::policy::Gateway;
use super::workload::{Conversation, Dice, Workload};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

const HEARTBEAT_US: u64 = 250_000;
/// First tokens of the first minute are not counted: caches are empty.
const WARM_UP_US: u64 = 60_000_000;

pub(super) struct Scenario {
    pub(super) workload: Workload,
    pub(super) engines: usize,
    pub(super) gateways: usize,
    pub(super) policy: PlacementPolicy,
    /// Each fourth engine has half of the speed of the others.
    pub(super) has_slow_engines: bool,
    /// Of arrivals that are counted.
    pub(super) minutes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figures {
    pub(super) hit_share: f64,
    pub(super) ttft_p50_ms: f64,
    pub(super) ttft_p99_ms: f64,
}

impl Figures {
    pub(super) fn mean(runs: &[Self]) -> Self {
        let mean = |of: fn(&Self) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        Self {
            hit_share: mean(|f| f.hit_share),
            ttft_p50_ms: mean(|f| f.ttft_p50_ms),
            ttft_p99_ms: mean(|f| f.ttft_p99_ms),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Heartbeat(usize),
    StepEnds(usize),
    Opens,
    Asks(usize),
}

struct Cluster {
    start: Instant,
    now_us: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    dice: Dice,
    engines: Vec<SimulatedEngine>,
    busy: Vec<bool>,
    loads: Vec<EngineLoad>,
    gateways: Vec<Gateway>,
    conversations: Vec<Conversation>,
    /// By conversation: the gateway of the present turn.
    gateway_of: Vec<usize>,
    ttft_us: Vec<u64>,
    cached: u64,
    prompt: u64,
}

pub(super) fn run(scenario: &Scenario, seed: u64) -> Figures {
    let mut cluster = Cluster::new(scenario, seed);
    let end_us = WARM_UP_US + scenario.minutes * 60_000_000;
    while let Some(Reverse((at, _, event))) = cluster.events.pop() {
        if at > end_us {
            break;
        }
        cluster.now_us = at;
        cluster.handle(event, scenario, seed);
    }
    cluster.figures()
}

impl Cluster {
    fn new(scenario: &Scenario, seed: u64) -> Self {
        let start = epoch();
        let is_slow = |i: usize| scenario.has_slow_engines && i % 4 == 3;
        let slowness = |i: usize| if is_slow(i) { 20 } else { 10 };
        let engines: Vec<_> = (0..scenario.engines)
            .map(|i| SimulatedEngine::new(i as u64, slowness(i)))
            .collect();
        let gateways = 0..scenario.gateways;
        let mut cluster = Self {
            start,
            now_us: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            dice: Dice::new(seed),
            busy: vec![false; engines.len()],
            loads: engines.iter().map(|engine| engine.load(start)).collect(),
            engines,
            gateways: gateways.map(|_| Gateway::new(scenario.policy)).collect(),
            conversations: Vec::new(),
            gateway_of: Vec::new(),
            ttft_us: Vec::new(),
            cached: 0,
            prompt: 0,
        };
        for i in 0..scenario.engines {
            let first = cluster.dice.draw() % HEARTBEAT_US;
            cluster.at(first, Event::Heartbeat(i));
        }
        cluster.at(0, Event::Opens);
        cluster
    }

    fn at(&mut self, after_us: u64, event: Event) {
        self.sequence += 1;
        let at = self.now_us + after_us;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    fn now(&self) -> Instant {
        self.start + Duration::from_micros(self.now_us)
    }

    fn handle(&mut self, event: Event, scenario: &Scenario, seed: u64) {
        match event {
            Event::Heartbeat(i) => {
                self.loads[i] = self.engines[i].load(self.now());
                self.at(HEARTBEAT_US, Event::Heartbeat(i));
            }
            Event::StepEnds(i) => self.step_ends(i),
            Event::Opens => {
                let mean_s = scenario.workload.interval_s() / scenario.engines as f64;
                let next = self.dice.exponential(mean_s);
                self.at((next * 1e6) as u64, Event::Opens);
                let number = self.conversations.len();
                let conversation = Conversation::new(scenario.workload, seed, number as u64);
                self.conversations.push(conversation);
                self.gateway_of.push(0);
                self.asks(number);
            }
            Event::Asks(conversation) => self.asks(conversation),
        }
    }

    fn asks(&mut self, number: usize) {
        let now = self.now();
        let gateway = self.dice.draw() as usize % self.gateways.len();
        self.gateway_of[number] = gateway;
        let conversation = &self.conversations[number];
        let prompt = conversation.prompt.clone();
        let engine = self.gateways[gateway].place(number as u64, &self.loads, &prompt, now);
        self.engines[engine].submit(Work {
            conversation: number,
            arrived_us: self.now_us,
            prompt,
            answer: conversation.answer.clone(),
        });
        if !self.busy[engine] {
            self.begin_step(engine);
        }
    }

    fn begin_step(&mut self, engine: usize) {
        let took = self.engines[engine].begin_step();
        self.busy[engine] = took.is_some();
        if let Some(took) = took {
            self.at(took, Event::StepEnds(engine));
        }
    }

    fn step_ends(&mut self, engine: usize) {
        let now = self.now();
        for outcome in self.engines[engine].end_step() {
            match outcome {
                Outcome::FirstToken {
                    work,
                    arrived_us,
                    cached,
                    prompt,
                } => {
                    let gateway = &mut self.gateways[self.gateway_of[work]];
                    gateway.placement.first_token(work as u64, cached, now);
                    if arrived_us >= WARM_UP_US {
                        self.ttft_us.push(self.now_us - arrived_us);
                        self.cached += cached;
                        self.prompt += prompt;
                    }
                }
                Outcome::Ended { work, answer } => {
                    let gateway = &mut self.gateways[self.gateway_of[work]];
                    gateway.placement.ended(work as u64, &answer, now);
                    if let Some(pause_s) = self.conversations[work].next_turn() {
                        self.at((pause_s * 1e6) as u64, Event::Asks(work));
                    }
                }
            }
        }
        self.begin_step(engine);
    }

    fn figures(mut self) -> Figures {
        self.ttft_us.sort_unstable();
        let quantile_ms = |q: f64| {
            let at = ((self.ttft_us.len() - 1) as f64 * q).round();
            self.ttft_us[at as usize] as f64 / 1e3
        };
        Figures {
            hit_share: self.cached as f64 / self.prompt as f64,
            ttft_p50_ms: quantile_ms(0.5),
            ttft_p99_ms: quantile_ms(0.99),
        }
    }
}
