//! Faults of gateways, of the network and of the store.

use super::World;
use std::time::Duration;

impl World {
    pub(super) fn inject_fault(&mut self) {
        if !self.random.chance(1) {
            return;
        }
        let at = self.random.below(self.gateways.len() as u64) as usize;
        let ms = Duration::from_millis(self.random.below(9000));
        match self.random.below(40) {
            0..=11 => {
                self.gateways.remove(at);
                self.start_gateway();
            }
            12..=18 => {
                self.gateways[at].partitioned_until = Some(self.now + ms);
                let clock = self.gateways[at].clock(self.now);
                self.gateways[at].replicator.set_connected(false, clock);
            }
            19..=26 => self.gateways[at].stopped_until = Some(self.now + ms),
            27..=33 => {
                let gap = Duration::from_millis(4000 + self.random.below(5000));
                self.store.leaderless_until = Some(self.now + gap);
            }
            34 => {
                self.store.wipe();
                self.acknowledged.clear();
            }
            _ => {}
        }
    }

    pub(super) fn heal(&mut self) {
        let now = self.now;
        for gateway in &mut self.gateways {
            if gateway.partitioned_until.is_some_and(|until| until <= now) {
                gateway.partitioned_until = None;
                gateway.heard.clear();
                let clock = gateway.clock(now);
                gateway.replicator.set_connected(true, clock);
            }
        }
    }
}
