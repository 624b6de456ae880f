//! Gateways over a network that loses, repeats and reorders messages, with engines that die: every log is that of an
//! uninterrupted local generation, bit for bit.

use super::engine_process::{Case, EngineProcess, LogBits, decode, epoch, sampled};
use crate::messages::{
    Order, OrderKind, ReadEntry, ReadRequest, Rejection, Run, RunChoice, RunReply, TokenBatch,
    decode_orders, encode_orders,
};
use crate::names::InstanceId;
use engine::SamplingParams;
use generate::request::{GenerationParams, ResponseFormat};
use serde_json::json;
use testing::random::Random;
use text::GrammarSource;

/// Runs of the simulation.
const SEEDS: u64 = 60;
/// Log-probability of a token without context.
const UNSCORED: f32 = f32::NAN;
const GATEWAYS: [InstanceId; 2] = [InstanceId(1), InstanceId(2)];

fn cases() -> Vec<Case> {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "integer", "maximum": 5}, "b": {"enum": ["x", "yy"]},
    }, "required": ["a", "b"], "additionalProperties": false});
    let format = ResponseFormat {
        source: GrammarSource::JsonSchema(schema),
        field: "response_format".to_owned(),
    };
    let greedy = SamplingParams {
        temperature: 0.0,
        ..SamplingParams::default()
    };
    let case = |label, params, n, credit_window| Case {
        label,
        params,
        n,
        credit_window,
    };
    let plain = GenerationParams {
        sampling: greedy,
        max_tokens: Some(40),
        ..GenerationParams::default()
    };
    let stops = GenerationParams {
        stops: vec!["ab".to_owned(), "zz".to_owned()],
        ..sampled(60)
    };
    let formatted = GenerationParams {
        response_format: Some(format),
        ..sampled(60)
    };
    let echoed = GenerationParams {
        prompt_logprobs: true,
        ..sampled(20)
    };
    vec![
        case("greedy", plain, 1, 0),
        case("three choices", sampled(40), 3, 0),
        case("credit", sampled(50), 2, 6),
        case("stop strings", stops, 2, 16),
        case("a schema", formatted, 2, 0),
        case("prompt log-probabilities", echoed, 1, 0),
    ]
}

/// A request as its gateway sees it.
struct View {
    run: Run,
    logs: Vec<LogBits>,
    /// Orders of the current attempt.
    orders: Vec<OrderKind>,
    /// Orders that the engine applied.
    applied: u32,
}

struct Network {
    random: Random,
    process: EngineProcess,
    views: Vec<View>,
    flight: Vec<(InstanceId, Vec<u8>)>,
    losses: u64,
}

impl View {
    fn new(run: Run) -> Self {
        let mut view = Self {
            logs: vec![LogBits::default(); run.choices.len()],
            run,
            orders: Vec::new(),
            applied: 0,
        };
        // The prompt's first token has no log-probability.
        for (log, choice) in view.logs.iter_mut().zip(&view.run.choices) {
            let unscored = |&id: &u32| (id, UNSCORED.to_bits());
            log.tokens.extend(choice.ids.iter().map(unscored));
            let top = choice.ids.iter().flat_map(|id| [id; 2]);
            log.top.extend(top.map(unscored));
        }
        view
    }

    fn has_ended(&self) -> bool {
        self.logs.iter().all(|log| log.end.is_some())
    }

    fn take(&mut self, batch: &TokenBatch) {
        let (handle, attempt) = (self.run.handle, self.run.attempt);
        for run in batch.runs() {
            if (run.key.handle, run.key.attempt) != (handle, attempt) {
                continue;
            }
            let log = &mut self.logs[run.key.choice as usize];
            let have = log.tokens.len();
            let first = run.key.first as usize;
            if first > have {
                continue;
            }
            let known = (have - first).min(run.tokens.len());
            let top_n = run.top.len() / run.tokens.len();
            for (token, known) in run.tokens[..known].iter().zip(&log.tokens[first..]) {
                assert_eq!(token.id, known.0, "tokens are sent again as they were");
            }
            log.push(&run.tokens[known..], &run.top[known * top_n..]);
        }
        for end in batch.ends() {
            if (end.handle, end.attempt) == (handle, attempt) {
                let log = &mut self.logs[end.choice as usize];
                if log.tokens.len() == end.len as usize {
                    log.end = Some(end.end);
                }
            }
        }
        for progress in batch.progress() {
            if (progress.handle, progress.attempt) == (handle, attempt) {
                self.applied = self.applied.max(progress.orders_applied);
            }
        }
    }

    /// The next attempt, with the tokens so far.
    fn next_attempt(&mut self) -> Run {
        self.run.attempt += 1;
        self.run.is_paused = self.is_paused();
        let choices = self.logs.iter().map(|log| RunChoice {
            ids: log.ids(),
            has_ended: log.end.is_some(),
        });
        self.run.choices = choices.collect();
        (self.orders, self.applied) = (Vec::new(), 0);
        self.run.clone()
    }

    fn is_paused(&self) -> bool {
        let last = self.orders.last();
        last.map_or(self.run.is_paused, |order| *order == OrderKind::Pause)
    }

    fn orders(&self) -> Vec<Order> {
        let order = |sequence: u32, kind| Order {
            handle: self.run.handle,
            attempt: self.run.attempt,
            sequence,
            kind,
        };
        let numbered = (1..).zip(&self.orders).skip(self.applied as usize);
        let mut orders: Vec<_> = numbered
            .map(|(sequence, kind)| order(sequence, kind.clone()))
            .collect();
        for (choice, log) in (0..).zip(&self.logs) {
            let accepted = log.tokens.len() as u32;
            orders.push(order(0, OrderKind::Credit { choice, accepted }));
        }
        orders
    }
}

impl Network {
    fn new(seed: u64) -> Self {
        let mut network = Self {
            random: Random(seed),
            process: EngineProcess::new(epoch(), 4),
            views: Vec::new(),
            flight: Vec::new(),
            losses: 30,
        };
        for (handle, case) in (1..).zip(&cases()) {
            let gateway = GATEWAYS[network.random.below(2) as usize];
            let run = network.process.run_of(case, gateway, handle);
            network.submit(&run);
            network.views.push(View::new(run));
        }
        network
    }

    fn submit(&mut self, run: &Run) {
        while self.process.submit(run.clone()) != Some(RunReply::Accepted) {
            self.process.step();
        }
    }

    fn is_lost(&mut self) -> bool {
        self.random.chance(self.losses)
    }

    fn tick(&mut self) {
        if self.random.chance(80) {
            self.process.step();
        }
        for message in self.process.messages() {
            if self.random.chance(10) {
                self.flight.push(message.clone());
            }
            if !self.is_lost() {
                self.flight.push(message);
            }
        }
        while !self.flight.is_empty() && self.random.chance(60) {
            let at = self.random.below(self.flight.len() as u64) as usize;
            let (gateway, bytes) = self.flight.swap_remove(at);
            self.deliver(gateway, &bytes);
        }
        for number in 0..self.views.len() {
            if self.random.chance(3) {
                let order = if self.views[number].is_paused() {
                    OrderKind::Resume
                } else {
                    OrderKind::Pause
                };
                self.views[number].orders.push(order);
            }
            if self.random.chance(30) && !self.is_lost() {
                self.send_orders(number);
            }
            if self.random.chance(5) && !self.is_lost() {
                self.read(number);
            }
        }
        if self.random.chance(1) {
            self.kill_engine();
        }
    }

    fn deliver(&mut self, gateway: InstanceId, bytes: &[u8]) {
        let batch = decode(bytes);
        let views = self.views.iter_mut();
        views
            .filter(|view| view.run.gateway == gateway)
            .for_each(|view| view.take(&batch));
    }

    fn send_orders(&mut self, number: usize) {
        let gateway = self.views[number].run.gateway;
        let mut bytes = Vec::new();
        encode_orders(gateway, &self.views[number].orders(), &mut bytes).unwrap();
        let (gateway, orders) = decode_orders(&bytes).unwrap();
        let now = self.process.now;
        self.process.attempts.apply_orders(gateway, &orders, now);
    }

    fn read(&mut self, number: usize) {
        let view = &self.views[number];
        let have = view.logs.iter().map(|log| log.tokens.len() as u32);
        let entry = ReadEntry {
            handle: view.run.handle,
            attempt: view.run.attempt,
            have: have.collect(),
        };
        let request = ReadRequest {
            gateway: view.run.gateway,
            entries: vec![entry],
        };
        let request = ReadRequest::decode(&request.encode().unwrap()).unwrap();
        let now = self.process.now;
        let mut bytes = Vec::new();
        let answer = self.process.attempts.read(&request, now);
        answer.encode(&mut bytes);
        let answer = decode(&bytes);
        let known = answer.progress().len() + answer.unknown().len();
        assert_eq!(known, 1, "each entry is answered");
        assert!(answer.unknown().is_empty(), "no attempt was forgotten");
        self.views[number].take(&answer);
    }

    /// Another engine takes over what has not ended.
    fn kill_engine(&mut self) {
        self.process = EngineProcess::new(self.process.now, 4);
        for number in 0..self.views.len() {
            let run = self.views[number].next_attempt();
            self.submit(&run);
        }
    }

    /// Without losses, until all requests have ended.
    fn finish(&mut self) {
        self.losses = 0;
        for _ in 0..4_000 {
            self.process.step();
            for (gateway, bytes) in self.process.messages() {
                self.deliver(gateway, &bytes);
            }
            for number in 0..self.views.len() {
                if self.views[number].is_paused() {
                    self.views[number].orders.push(OrderKind::Resume);
                }
                self.send_orders(number);
                self.read(number);
            }
            if self.views.iter().all(View::has_ended) {
                return;
            }
        }
        let open = self.views.iter().filter(|view| !view.has_ended());
        let open: Vec<_> = open.map(|view| view.run.handle).collect();
        panic!("requests {open:?} did not end");
    }
}

#[test]
fn logs_survive_losses_and_deaths() {
    let expected: Vec<_> = cases()
        .iter()
        .map(|case| EngineProcess::local(case, epoch()))
        .collect();
    for seed in 0..SEEDS {
        let mut network = Network::new(seed);
        for _ in 0..150 {
            network.tick();
        }
        network.finish();
        for ((view, expected), case) in network.views.iter().zip(&expected).zip(&cases()) {
            assert_eq!(view.logs, *expected, "seed {seed}, {}", case.label);
        }
        assert_eq!(network.process.attempts.open(), 0, "seed {seed}");
    }
}

#[test]
fn full_engine_rejects_and_has_room_again() {
    let mut process = EngineProcess::new(epoch(), 4);
    let case = &cases()[0];
    let mut handle = 0;
    let rejection = loop {
        handle += 1;
        let run = process.run_of(case, GATEWAYS[0], handle);
        match process.submit(run) {
            Some(RunReply::Accepted) => assert!(handle < 10_000),
            reply => break reply,
        }
    };
    assert!(
        matches!(
            &rejection,
            Some(RunReply::Rejected {
                code: Rejection::Full,
                ..
            })
        ),
        "{rejection:?}"
    );
    process.run_until_idle();
    let run = process.run_of(case, GATEWAYS[0], handle);
    assert_eq!(process.submit(run), Some(RunReply::Accepted));
}
