//! Messages between the relay and the engines.

use super::{Packet, World};
use crate::messages::{ReadRequest, RunReply, TokenBatch, encode_orders};
use crate::names::InstanceId;
use crate::relay::{Action, SubmitOutcome};
use std::time::Duration;

impl World {
    /// Puts a message on the network, perhaps never, perhaps twice.
    pub(super) fn send(&mut self, make: impl Fn() -> Packet) {
        let is_faulty = self.has_faults() && self.has_other_faults;
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
    pub(super) fn send_unanswered(
        &mut self,
        engine: InstanceId,
        name: (u64, u32),
        after: Duration,
    ) {
        self.sent += 1;
        let to = self.gateway;
        let packet = Packet::Submitted(to, engine, name, SubmitOutcome::Unanswered);
        self.packets.insert((self.now + after, self.sent), packet);
    }

    pub(super) fn deliver(&mut self) {
        while let Some(entry) = self.packets.first_entry().filter(|e| e.key().0 <= self.now) {
            let packet = entry.remove();
            let to = match &packet {
                Packet::Run(_, id, ..) | Packet::Orders(id, _) | Packet::Read(id, _) => Some(*id),
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
            Packet::Run(to, id, name, parts) => {
                let is_faulty = self.has_faults() && self.has_other_faults;
                let is_full = is_faulty && self.random.chance(10);
                let reply = self.engine(id).map(|engine| {
                    let replies = parts.iter().map(|part| engine.run(part, is_full, now));
                    replies.last().expect("a part")
                });
                match reply {
                    None if to == self.gateway => {
                        self.send_unanswered(id, name, Duration::from_millis(1));
                    }
                    None => {}
                    Some(reply) => self.send(|| {
                        let outcome = SubmitOutcome::Answered(RunReply::clone(&reply));
                        Packet::Submitted(to, id, name, outcome)
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
                    self.send_tokens(request.gateway, &batch, true);
                }
            }
            // The process that waits for the answer is gone.
            Packet::Tokens(to, ..) | Packet::Submitted(to, ..) if to != self.gateway => {}
            Packet::Submitted(_, id, name, outcome) => {
                self.relay.on_submitted(id, name, &outcome, now);
            }
            Packet::Tokens(_, message, is_answer) => {
                let mut batch = TokenBatch::default();
                batch.decode_into(&message).expect("tokens");
                self.relay.on_tokens(&batch, is_answer, now);
            }
            Packet::Heartbeat(id) => {
                self.heard.insert(id, now);
            }
        }
    }

    pub(super) fn send_tokens(&mut self, to: InstanceId, batch: &TokenBatch, is_answer: bool) {
        let mut message = Vec::new();
        batch.encode(&mut message);
        self.send(|| Packet::Tokens(to, message.clone(), is_answer));
    }

    pub(super) fn poll(&mut self) {
        for action in self.relay.poll(self.now) {
            match action {
                Action::Submit { engine, run, .. } => {
                    let (name, parts) = ((run.handle, run.attempt), run.encode_parts().unwrap());
                    let from = self.gateway;
                    self.send(|| Packet::Run(from, engine, name, parts.clone()));
                    self.send_unanswered(engine, name, Duration::from_secs(5));
                }
                Action::Order { engine, orders } => {
                    let mut message = Vec::new();
                    encode_orders(self.gateway, &orders, &mut message).unwrap();
                    self.send(|| Packet::Orders(engine, message.clone()));
                }
                Action::Read { engine, request } => {
                    let message = request.encode().unwrap();
                    self.send(|| Packet::Read(engine, message.clone()));
                }
            }
        }
    }
}
