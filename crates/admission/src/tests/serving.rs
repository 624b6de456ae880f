//! The defaults beside the batch preset: a real scheduler behind admission, clients that wait for their answers, and
//! machines of known speed, in virtual time.
#![expect(clippy::print_stdout, reason = "the figures")]

use super::plant::Arrivals;
use super::*;
use engine::fake::{FakeConfig, FakeModel};
use engine::{Choice, Engine, EngineConfig, Handle, Request, SamplingParams, Token};
use std::sync::Arc;
use stream::{PoolLimits, Read, Reader, SegmentPool};

/// The target of the defaults, and how far p99 may be above it.
const TARGET: Duration = Duration::from_millis(100);
const P99_MAX: f64 = 1.5;

/// Steps vary: on average they take this much longer than they should.
const NOISE: f64 = 0.05;

/// Tokens whose mean gap is reported to admission, as by `LatencySampler`.
const TOKENS_PER_SAMPLE: u32 = 16;

/// Times of a step's parts, in milliseconds. Fitted to the 1B rows of docs/performance.md.
#[derive(Clone, Copy)]
struct Machine {
    name: &'static str,
    /// Reading the weights, once for a step.
    read: f64,
    /// Whether reading goes on beside the arithmetic.
    overlaps: bool,
    /// A row that decodes.
    decode: f64,
    /// A row of a prompt, in a step of 32 rows and fewer, and in one of 128 and more.
    prompt: [f64; 2],
}

const AVX512: Machine = Machine {
    name: "AVX-512",
    read: 26.0,
    overlaps: true,
    decode: 5.3,
    prompt: [4.2, 3.6],
};

const AVX2: Machine = Machine {
    name: "AVX2",
    read: 26.0,
    overlaps: true,
    decode: 10.0,
    prompt: [7.9, 7.35],
};

/// A knee at twenty rows: up to there a prompt's rows are free.
const KNEE: Machine = Machine {
    name: "knee",
    read: 40.0,
    overlaps: true,
    decode: 2.0,
    prompt: [2.0, 2.0],
};

const AMX: Machine = Machine {
    name: "AMX",
    read: 31.0,
    overlaps: false,
    decode: 1.95,
    prompt: [1.5, 1.05],
};

impl Machine {
    fn step(&self, decodes: usize, prompts: usize) -> Duration {
        let large = ((decodes + prompts) as f64 - 32.0).clamp(0.0, 96.0) / 96.0;
        let prompt = self.prompt[0] + (self.prompt[1] - self.prompt[0]) * large;
        let rows = self.decode * decodes as f64 + prompt * prompts as f64;
        let ms = if self.overlaps {
            self.read.max(rows)
        } else {
            self.read + rows
        };
        Duration::from_secs_f64(ms / 1e3)
    }
}

/// The settings that differ between the presets here.
#[derive(Clone, Copy)]
struct Preset {
    engine: EngineConfig,
    adaptive: AdaptiveLimits,
}

fn defaults() -> Preset {
    Preset {
        engine: EngineConfig {
            sequences_max: 256,
            ..EngineConfig::default()
        },
        adaptive: AdaptiveLimits::default(),
    }
}

/// As in presets/batch.yaml.
fn batch() -> Preset {
    Preset {
        engine: EngineConfig {
            step_tokens: 2048,
            step_target: None,
            ..defaults().engine
        },
        adaptive: AdaptiveLimits {
            min_streams: 16,
            max_streams: 256,
            target_ttft: 60 * S,
            target_itl: 5 * S,
            ..AdaptiveLimits::default()
        },
    }
}

/// Clients, each with one request at a time.
#[derive(Clone, Copy)]
struct Load {
    clients: usize,
    requests: usize,
    prompt: usize,
    answer: usize,
    /// Lengths vary by so much.
    vary: f64,
}

struct LoadOutcome {
    tokens_per_s: f64,
    p99: Duration,
    limit: usize,
}

/// A prompt and the length of the answer.
struct Asked {
    prompt: Vec<u32>,
    answer: usize,
}

struct Answering {
    id: u64,
    reader: Reader<Token>,
    last: Option<Instant>,
    /// Since the last sample.
    gaps: (Duration, u32),
}

struct Scene {
    core: Core,
    engine: Engine,
    handle: Handle,
    pool: SegmentPool<Token>,
    random: Arrivals,
    now: Instant,
    /// When a client asks next.
    asking: Vec<Instant>,
    waiting: Vec<(u64, Asked)>,
    running: Vec<Answering>,
    gaps: Vec<Duration>,
    tokens: usize,
}

impl Scene {
    fn new(preset: Preset, seed: u64) -> Self {
        let now = start();
        let mut config = FakeConfig {
            eos_probability: 0.0,
            tokens: 1..60,
            ..FakeConfig::default()
        };
        config.dims.vocab = 64;
        config.dims.pages = 4096;
        config.dims.rows_max = preset.engine.step_tokens;
        let bounds = AdmissionBounds {
            adaptive: preset.adaptive,
            queue: QueueLimits::default(),
            ..fixed(0, 0)
        };
        let model = Box::new(FakeModel::new(config));
        let mut engine = Engine::new(model, preset.engine, now).expect("sizes that fit");
        Self {
            core: Core::new(bounds, now),
            handle: engine.handle(),
            engine,
            pool: SegmentPool::new(PoolLimits {
                segments_max: 1 << 12,
            }),
            random: Arrivals::new(seed, now),
            now,
            asking: Vec::new(),
            waiting: Vec::new(),
            running: Vec::new(),
            gaps: Vec::new(),
            tokens: 0,
        }
    }

    fn run(mut self, machine: Machine, load: Load) -> LoadOutcome {
        let (began, mut left) = (self.now, load.requests);
        for _ in 0..load.clients.min(load.requests) {
            self.ask_soon();
            left -= 1;
        }
        while !(self.asking.is_empty() && self.waiting.is_empty() && self.running.is_empty()) {
            self.enter(load);
            self.start_admitted();
            let report = self.engine.step(self.now);
            if report.rows == 0 {
                self.now += MS;
                continue;
            }
            let decodes = report.rows - report.rows_prefill;
            let noise = 1.0 - NOISE * self.random.unit().ln();
            self.now += machine.step(decodes, report.rows_prefill).mul_f64(noise);
            for _ in 0..self.read_tokens() {
                if left > 0 {
                    self.ask_soon();
                    left -= 1;
                }
            }
        }
        let took = self.now - began;
        self.gaps.sort_unstable();
        LoadOutcome {
            tokens_per_s: self.tokens as f64 / took.as_secs_f64(),
            p99: self.gaps[self.gaps.len() * 99 / 100],
            limit: self.core.snapshot().limit,
        }
    }

    /// A client asks within ten milliseconds.
    fn ask_soon(&mut self) {
        let pause = 10.0 * self.random.unit();
        self.asking.push(self.now + MS.mul_f64(pause));
    }

    /// Gives tickets to those who have asked by now.
    fn enter(&mut self, load: Load) {
        let (now, before) = (self.now, self.asking.len());
        self.asking.retain(|&at| at > now);
        for _ in self.asking.len()..before {
            let mut length = |mean: usize| {
                let part = 1.0 + load.vary * (2.0 * self.random.unit() - 1.0);
                (mean as f64 * part) as usize
            };
            let (prompt, answer) = (length(load.prompt), length(load.answer));
            let mut token = || 1 + (self.random.unit() * 58.0) as u32;
            let prompt: Vec<u32> = (0..prompt).map(|_| token()).collect();
            let asked = request(Priority::Normal, 1, prompt.len());
            let id = self.core.add_ticket(asked, now).expect("room in the queue");
            self.waiting.push((id, Asked { prompt, answer }));
        }
    }

    /// Submits the requests that were admitted.
    fn start_admitted(&mut self) {
        for (id, asked) in std::mem::take(&mut self.waiting) {
            match poll(&mut self.core, id, self.now) {
                TicketStatus::Waiting { .. } => self.waiting.push((id, asked)),
                TicketStatus::Running => self.submit(id, asked),
                TicketStatus::Rejected(rejection) => panic!("{rejection:?}"),
            }
        }
    }

    fn submit(&mut self, id: u64, asked: Asked) {
        let (tokens, reader) = stream::open(&self.pool, asked.answer).expect("segments");
        let request = Request {
            sampling: SamplingParams {
                temperature: 0.0,
                ..SamplingParams::default()
            },
            eos: Arc::from([0]),
            choices: vec![Choice::new(tokens)],
            ..Request::new(asked.prompt, asked.answer)
        };
        self.handle.submit(request).expect("accepted");
        self.running.push(Answering {
            id,
            reader,
            last: None,
            gaps: (Duration::ZERO, 0),
        });
    }

    /// Reads what the step generated. Returns how many answers ended.
    fn read_tokens(&mut self) -> usize {
        let (core, now, gaps) = (&mut self.core, self.now, &mut self.gaps);
        let decode_time = Duration::from_nanos(self.engine.stats().decode_ns_total());
        core.set_decode_time(Some(decode_time));
        let before = self.running.len();
        let tokens = &mut self.tokens;
        self.running.retain_mut(|answer| {
            let mut buffer = [Token::default(); 4];
            if let Read::Items(count) = answer.reader.read(&mut buffer) {
                assert_eq!(count, 1, "a token per step");
                *tokens += 1;
                match answer.last.replace(now) {
                    None => core.first_token(answer.id, now, now),
                    Some(last) => {
                        gaps.push(now - last);
                        answer.gaps.0 += now - last;
                        answer.gaps.1 += 1;
                    }
                }
            }
            if answer.gaps.1 >= TOKENS_PER_SAMPLE {
                core.token_gap(answer.gaps.0 / answer.gaps.1, now);
                answer.gaps = (Duration::ZERO, 0);
            }
            let ended = matches!(answer.reader.read(&mut buffer), Read::Ended(_));
            if ended {
                core.remove_ticket(answer.id, now);
            }
            !ended
        });
        core.check_invariants();
        before - self.running.len()
    }
}

/// Both presets under the same load, the defaults' rate as a part of the batch preset's, and their p99.
fn compare(machine: Machine, load: Load, seed: u64) -> (f64, Duration) {
    let ours = Scene::new(defaults(), seed).run(machine, load);
    let batch = Scene::new(batch(), seed).run(machine, load);
    let part = ours.tokens_per_s / batch.tokens_per_s;
    println!(
        "{}, {} clients, lengths ±{:.0} %: {:.1} tokens/s, p99 {:.0?}, limit {}; batch {:.1}, {:.0?}, {}: {part:.2}",
        machine.name,
        load.clients,
        100.0 * load.vary,
        ours.tokens_per_s,
        ours.p99,
        ours.limit,
        batch.tokens_per_s,
        batch.p99,
        batch.limit,
    );
    (part, ours.p99)
}

fn loads() -> impl Iterator<Item = Load> {
    [(8, 0.0), (8, 0.5), (32, 0.0), (32, 0.5)]
        .into_iter()
        .map(|(clients, vary)| Load {
            clients,
            requests: 4 * clients,
            prompt: 128,
            answer: 64,
            vary,
        })
}

#[test]
fn defaults_serve_nine_tenths_of_the_batch_preset() {
    for machine in [AVX512, AVX2, KNEE] {
        for load in loads() {
            let (part, p99) = compare(machine, load, 1);
            let label = format!("{}, {} clients", machine.name, load.clients);
            assert!(part >= 0.9, "{label}: {part}");
            assert!(p99 <= TARGET.mul_f64(P99_MAX), "{label}: {p99:?}");
        }
    }
}

/// Where a prompt's row costs a third less in large steps, and reading the weights takes a third of a step, the target
/// itself costs throughput.
#[test]
fn defaults_keep_the_target_where_large_steps_are_much_cheaper() {
    for load in loads() {
        let (part, p99) = compare(AMX, load, 1);
        assert!(part >= 0.6, "{part}");
        assert!(p99 <= TARGET.mul_f64(P99_MAX), "{p99:?}");
    }
}
