//! Gateways that die, and gateways that continue their streams.

use super::client::Client;
use super::engine::{SimChoice, SimEngine, SimRequest};
use super::slots::Slots;
use super::{Packet, SLOTS, World, new_relay};
use crate::messages::{AdoptAnswer, AdoptEntry, AdoptRequest, Adoption};
use crate::names::InstanceId;
use std::time::Duration;
use stream::End;

/// Time after which engines forget a gateway that has died.
pub(super) const GATEWAY_KEPT: Duration = Duration::from_secs(10);

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
            let deaths = self.dead_gateways.len() as u64;
            client.go_on(&self.handle, (&self.pool, &self.slots), (deaths, lag));
        }
    }

    /// Engines cancel what no gateway has adopted.
    pub(super) fn forget_gateways(&mut self) {
        let now = self.now;
        for &(gateway, died) in &self.dead_gateways {
            if now - died >= GATEWAY_KEPT {
                let engines = self.engines.iter_mut();
                engines.for_each(|engine| engine.forget_gateway(gateway));
            }
        }
    }

    pub(super) fn receive_adoption(&mut self, id: InstanceId, message: &[u8]) {
        let request = AdoptRequest::decode(message).expect("an adoption");
        let gateway = request.gateway;
        let Some(engine) = self.engine(id) else {
            return;
        };
        let entries = request.entries.iter();
        let answers = entries.map(|entry| AdoptAnswer {
            handle: entry.handle,
            attempt: entry.attempt,
            adoption: engine.adopt(gateway, entry),
        });
        let answers: Vec<_> = answers.collect();
        self.send(|| Packet::Adopted(gateway, id, answers.clone()));
    }
}

impl SimEngine {
    fn forget_gateway(&mut self, gateway: InstanceId) {
        self.requests.retain(|key, _| key.0 != gateway);
    }

    fn adopt(&mut self, gateway: InstanceId, wanted: &AdoptEntry) -> Adoption {
        let key = (gateway, wanted.handle);
        if let Some(known) = self.requests.get(&key) {
            let is_same = known.attempt == wanted.attempt;
            return if is_same {
                known.adopted()
            } else {
                Adoption::Unknown
            };
        }
        let mut requests = self.requests.iter_mut();
        let found = requests.find_map(|(_, request)| Some((request.find(wanted)?, request)));
        let Some((at, request)) = found else {
            return Adoption::Unknown;
        };
        let taken = request.take(at, wanted);
        if !taken.choices[0].ids.starts_with(&wanted.ids) {
            return Adoption::Differs;
        }
        let adoption = taken.adopted();
        self.requests.insert(key, taken);
        adoption
    }
}

impl SimRequest {
    fn adopted(&self) -> Adoption {
        match self.is_paused {
            true => Adoption::AdoptedPaused,
            false => Adoption::Adopted,
        }
    }

    fn find(&self, wanted: &AdoptEntry) -> Option<usize> {
        let at = (wanted.choice.choice as usize).checked_sub(self.first)?;
        let is_here =
            self.generation <= wanted.generation && self.choices.get(at)?.end != Some(End::Lost);
        (u128::from(self.seed) == wanted.choice.stream && is_here).then_some(at)
    }

    /// The choice as a request of its own; it is gone here.
    fn take(&mut self, at: usize, wanted: &AdoptEntry) -> Self {
        let choice = self.choices[at].clone();
        self.choices[at].end = Some(End::Lost);
        self.choices[at].is_end_sent = true;
        Self {
            attempt: wanted.attempt,
            generation: wanted.generation,
            first: self.first + at,
            choices: vec![SimChoice {
                sent: wanted.ids.len(),
                is_end_sent: false,
                ..choice
            }],
            updates: Vec::new(),
            updates_applied: 0,
            orders_applied: 0,
            last: None,
            silent_steps: 0,
            ..*self
        }
    }
}
