//! Gateways that die, and gateways that continue their streams.

use super::client::Client;
use super::slots::Slots;
use super::{SLOTS, World, new_relay};
use std::time::Duration;

/// Time after which engines forget a gateway that has died.
const GATEWAY_KEPT: Duration = Duration::from_secs(10);

impl World {
    /// The gateway dies. Another one continues all streams, from records that lag behind what clients have read.
    pub(super) fn replace_gateway(&mut self) {
        self.dead_gateways.push((self.gateway, self.now));
        self.gateway.0 += 1;
        self.clients.iter_mut().for_each(Client::read_all);
        let counters = self.relay.counters();
        self.counters.add(&counters);
        let (handle, relay) = new_relay(self.gateway, self.start);
        (self.handle, self.relay) = (handle, relay);
        self.slots = Slots::new(SLOTS);
        self.disconnected_until = None;
        self.relay.set_connected(true, self.now);
        for client in &mut self.clients {
            let lag = self.random.below(4) as usize;
            self.resumed += client.resume(&self.handle, (&self.pool, &self.slots), lag);
        }
    }

    /// Engines cancel the requests of dead gateways.
    pub(super) fn forget_gateways(&mut self) {
        let now = self.now;
        for &(gateway, died) in &self.dead_gateways {
            if now - died >= GATEWAY_KEPT {
                for engine in &mut self.engines {
                    engine.requests.retain(|key, _| key.0 != gateway);
                }
            }
        }
    }
}
