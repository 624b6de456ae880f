//! Gateways over a simulated network with seeds, beside one bucket that sees all that is admitted.

use super::core::SharesCore;
use super::key_state::SharedLimits;
use super::rate_share::{MINUTE_NS, step_ns};
use super::standing::Standing;
use crate::names::InstanceId;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use testing::random::Random;

/// The key of most tests.
pub(super) const KEY: u64 = 0xfeed;
pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1000 * MS;
/// A simulated step.
const STEP_NS: u64 = 10 * MS;
const INTERVAL_NS: u64 = super::INTERVAL.as_nanos() as u64;

/// What the network does to a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    /// Percent of the messages that are lost, and that arrive twice.
    pub(super) lost: u64,
    pub(super) repeated: u64,
    /// The longest time on the way.
    pub(super) delay_ns: u64,
}

/// Up to 60 ms on the way, which reorders messages of different gateways.
pub(super) const CALM: Faults = Faults {
    lost: 0,
    repeated: 0,
    delay_ns: 60 * MS,
};

pub(super) struct Gateway {
    pub(super) core: SharesCore,
    /// Distance of this gateway's clock from the simulation's.
    skew_ns: u64,
    next_tick_ns: u64,
    pub(super) is_connected: bool,
    /// Gateways of another group get no messages.
    pub(super) group: u8,
    pub(super) is_dead: bool,
    /// Attempts per second.
    pub(super) demand: f64,
    due: f64,
    pub(super) admitted: u64,
}

/// A message for a gateway.
struct Letter {
    to: usize,
    message: Arc<[u8]>,
}

pub(super) struct Simulation {
    pub(super) random: Random,
    pub(super) now_ns: u64,
    pub(super) faults: Faults,
    pub(super) gateways: Vec<Gateway>,
    /// By time of arrival and number.
    on_the_way: BTreeMap<(u64, u64), Letter>,
    messages: u64,
    pub(super) per_min: NonZeroU32,
    /// The bucket that sees all requests.
    full_at_ns: u64,
    /// The largest excess over the limit, in requests.
    pub(super) excess: f64,
}

impl Simulation {
    /// Gateways that start at one time and know each other after two seconds, with a key of this limit.
    pub(super) fn new(gateways: usize, per_min: u32, faults: Faults, seed: u64) -> Self {
        let mut simulation = Self {
            random: Random(seed),
            now_ns: 0,
            faults,
            gateways: Vec::new(),
            on_the_way: BTreeMap::new(),
            messages: 0,
            per_min: NonZeroU32::new(per_min).unwrap(),
            full_at_ns: 0,
            excess: 0.0,
        };
        (0..gateways).for_each(|_| simulation.start_gateway());
        simulation.run(2 * SECOND);
        simulation
    }

    pub(super) fn start_gateway(&mut self) {
        let id = self.gateways.len() as u64 + 1;
        let mut core = SharesCore::new(InstanceId(id));
        let limits = SharedLimits {
            requests_per_min: Some(self.per_min),
            tokens_per_min: Some(self.per_min),
            concurrent_streams: Some(self.per_min),
        };
        core.add_key(KEY, limits);
        self.gateways.push(Gateway {
            core,
            // Epochs of processes differ: by days here.
            skew_ns: self.random.below(1 << 50).wrapping_sub(self.now_ns),
            next_tick_ns: self.now_ns + self.random.below(INTERVAL_NS),
            is_connected: true,
            group: 0,
            is_dead: false,
            demand: 0.0,
            due: 0.0,
            admitted: 0,
        });
    }

    /// Sets one demand for every gateway, in attempts per second.
    pub(super) fn demand(&mut self, per_second: f64) {
        self.gateways
            .iter_mut()
            .for_each(|gateway| gateway.demand = per_second);
    }

    pub(super) fn run(&mut self, time_ns: u64) {
        let end_ns = self.now_ns + time_ns;
        while self.now_ns < end_ns {
            self.now_ns += STEP_NS;
            self.deliver();
            for index in 0..self.gateways.len() {
                if !self.gateways[index].is_dead {
                    self.tick(index);
                    self.attempt(index);
                }
            }
        }
    }

    pub(super) fn local_ns(&self, index: usize) -> u64 {
        self.now_ns.wrapping_add(self.gateways[index].skew_ns)
    }

    pub(super) fn standing(&self, index: usize) -> Standing {
        self.gateways[index].core.standing()
    }

    pub(super) fn admitted(&self) -> u64 {
        self.gateways.iter().map(|gateway| gateway.admitted).sum()
    }

    fn tick(&mut self, index: usize) {
        if self.now_ns < self.gateways[index].next_tick_ns {
            return;
        }
        let now_ns = self.local_ns(index);
        let gateway = &mut self.gateways[index];
        gateway.next_tick_ns += INTERVAL_NS;
        let report = gateway.core.tick(gateway.is_connected, now_ns);
        if gateway.is_connected {
            self.send(index, &report.encode().unwrap().into());
        }
    }

    pub(super) fn send(&mut self, from: usize, message: &Arc<[u8]>) {
        for to in 0..self.gateways.len() {
            let copies = match self.random.below(100) {
                dice if dice < self.faults.lost => 0,
                dice if dice < self.faults.lost + self.faults.repeated => 2,
                _ => 1,
            };
            // A gateway gets its own messages, too.
            for _ in 0..copies {
                self.messages += 1;
                let arrival = self.now_ns + self.random.below(self.faults.delay_ns + 1);
                let is_cut = self.gateways[from].group != self.gateways[to].group;
                if !is_cut {
                    let message = Arc::clone(message);
                    let letter = Letter { to, message };
                    self.on_the_way.insert((arrival, self.messages), letter);
                }
            }
        }
    }

    fn deliver(&mut self) {
        while let Some(first) = self.on_the_way.first_entry() {
            if first.key().0 > self.now_ns {
                return;
            }
            let Letter { to, message } = first.remove();
            let now_ns = self.local_ns(to);
            let gateway = &mut self.gateways[to];
            if gateway.is_connected && !gateway.is_dead {
                gateway.core.receive(&message, now_ns);
            }
        }
    }

    fn attempt(&mut self, index: usize) {
        let gateway = &mut self.gateways[index];
        gateway.due += gateway.demand * STEP_NS as f64 / SECOND as f64;
        let attempts = gateway.due as u64;
        gateway.due -= attempts as f64;
        for _ in 0..attempts {
            self.request(index);
        }
    }

    /// One request; whether it was admitted.
    pub(super) fn request(&mut self, index: usize) -> bool {
        let (now_ns, per_min) = (self.local_ns(index), self.per_min);
        let gateway = &mut self.gateways[index];
        let (key, standing) = gateway.core.key_mut(KEY);
        let is_admitted = key.requests.try_take(per_min, 1, standing, now_ns).is_ok();
        if is_admitted {
            gateway.admitted += 1;
            let step_ns = step_ns(per_min, 1);
            self.full_at_ns = self.full_at_ns.max(self.now_ns) + step_ns;
            let excess_ns = (self.full_at_ns - self.now_ns).saturating_sub(MINUTE_NS);
            self.excess = self.excess.max(excess_ns as f64 / step_ns as f64);
        }
        is_admitted
    }

    /// Time until a gateway's bucket of requests is full.
    pub(super) fn full_in_ns(&mut self, index: usize) -> u64 {
        let now_ns = self.local_ns(index);
        let (key, _) = self.gateways[index].core.key_mut(KEY);
        key.requests.full_in_ns(now_ns)
    }
}
