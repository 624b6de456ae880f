//! Faults of engines and of the network, and what clients do.

use super::client::Client;
use super::{CLIENTS, Packet, World};
use std::time::Duration;

impl World {
    pub(super) fn inject_faults(&mut self) {
        if let Some(until) = self.disconnected_until.filter(|&until| until <= self.now) {
            assert!(until <= self.now);
            self.disconnected_until = None;
            self.relay.set_connected(true, self.now);
        }
        if !self.has_faults() || !self.random.chance(5) {
            return;
        }
        if self.has_deaths_of_gateways && self.random.chance(20) {
            return self.replace_gateway();
        }
        if !self.has_other_faults {
            return;
        }
        let at = self.random.below(self.engines.len() as u64) as usize;
        match self.random.below(9) {
            0..=1 => {
                self.engines.remove(at);
                self.start_engine();
            }
            2..=4 => {
                let pause = Duration::from_millis(self.random.below(4000));
                self.engines[at].stopped_until = self.now + pause;
            }
            5 if !self.engines[at].is_leaving => {
                self.engines[at].is_leaving = true;
                self.start_engine();
            }
            6 if self.disconnected_until.is_none() => {
                let pause = Duration::from_millis(self.random.below(5000));
                self.disconnected_until = Some(self.now + pause);
                self.relay.set_connected(false, self.now);
                self.packets
                    .retain(|_, p| matches!(p, Packet::Submitted(..)));
            }
            _ => {}
        }
    }

    pub(super) fn act_as_clients(&mut self) {
        if self.clients.len() < CLIENTS && self.random.chance(20) {
            // Readers that rest come first.
            let is_resting = self.clients.len() < self.resting;
            let client = Client::submit(
                &self.handle,
                (&self.pool, &self.slots),
                &self.released,
                (&mut self.random, is_resting),
            );
            self.clients.push(client);
        }
        if self.clients.len() == CLIENTS {
            self.wake_resting();
        }
        let is_faulty = self.has_faults() && self.has_other_faults;
        for client in &mut self.clients {
            if self.random.chance(40) && !client.is_resting {
                client.read();
            }
            match self.random.below(2000) {
                0 if is_faulty => {
                    client.is_cancelled = true;
                    client.ids.iter().for_each(|&id| self.handle.cancel(id));
                }
                1..=9 if client.updates < 4 && !self.has_deaths_of_gateways => {
                    client.update(&self.handle);
                }
                10..=14 if is_faulty => {
                    client.is_paused = true;
                    client.ids.iter().for_each(|&id| self.handle.pause(id));
                }
                15..=40 => {
                    client.is_paused = false;
                    client.ids.iter().for_each(|&id| self.handle.resume(id));
                }
                _ => {}
            }
        }
    }

    /// Readers that rest come back when all others have their answers, after all faults.
    fn wake_resting(&mut self) {
        let mut others = self.clients.iter().filter(|client| !client.is_resting);
        if others.all(Client::has_ended) && !self.has_faults() {
            let resting = self.clients.iter_mut();
            resting.for_each(|client| client.is_resting = false);
        }
    }
}
