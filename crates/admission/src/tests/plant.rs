//! An engine as admission sees it, in virtual time: steps that take longer the more is in them.
//!
//! A step costs a base, a bit per sequence that generates and a bit per prompt token; prompt tokens go in chunks, the
//! oldest prompt first. Tickets are polled each step, as their timers would. Each row has an equal share of the step's time,
//! as in the engine.

use super::*;
use crate::rejection::Rejection;
use std::collections::VecDeque;

/// Chunk of prompt tokens per step.
const CHUNK: usize = 256;

/// What a step costs.
pub(crate) const BASE: Duration = Duration::from_millis(8);
const PER_SEQUENCE: Duration = Duration::from_micros(400);
const PER_PROMPT_TOKEN: Duration = Duration::from_micros(100);

/// A request of the simulation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) class: Priority,
    pub(crate) prompt: usize,
    pub(crate) answer: usize,
    pub(crate) deadline: Option<Instant>,
}

pub(crate) const JOB: Job = Job {
    class: Priority::Normal,
    prompt: 200,
    answer: 50,
    deadline: None,
};

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) asked: Instant,
    pub(crate) admitted: Instant,
    pub(crate) first_token: Instant,
}

struct Sequence {
    id: u64,
    job: Job,
    asked: Instant,
    admitted: Instant,
    /// Prompt tokens computed.
    prompt: usize,
    /// Tokens generated.
    tokens: usize,
    first: Instant,
}

pub(crate) struct Plant {
    pub(crate) core: Core,
    pub(crate) now: Instant,
    waiting: Vec<(u64, Job, Instant)>,
    running: VecDeque<Sequence>,
    pub(crate) served: Vec<Served>,
    /// After the queue took them.
    pub(crate) timed_out: usize,
    /// Largest limit seen.
    pub(crate) limit_high: usize,
    /// How long the last step took.
    pub(crate) last_step: Duration,
    /// Time that a sequence which generates adds to each step.
    pub(crate) per_sequence: Duration,
    /// Time of decode rows so far; `None`: not told, as by an engine in another process.
    pub(crate) decode_time: Option<Duration>,
    /// Callers so far, each of them somebody else.
    pub(crate) strangers: u64,
}

impl Plant {
    pub(crate) fn new(bounds: AdmissionBounds) -> Self {
        let now = start();
        Self {
            core: Core::new(bounds, now),
            now,
            waiting: Vec::new(),
            running: VecDeque::new(),
            served: Vec::new(),
            timed_out: 0,
            limit_high: 0,
            last_step: Duration::ZERO,
            per_sequence: PER_SEQUENCE,
            decode_time: Some(Duration::ZERO),
            strangers: 0,
        }
    }

    /// A request of a new caller at the present time.
    pub(crate) fn ask(&mut self, job: Job) -> Result<u64, Rejection> {
        self.strangers += 1;
        self.ask_as(self.strangers, job)
    }

    /// A request of the caller `who`, which may have a reservation from an earlier rejection.
    pub(crate) fn ask_as(&mut self, who: u64, job: Job) -> Result<u64, Rejection> {
        let asked = AdmissionRequest {
            deadline: job.deadline,
            who,
            ..request(job.class, 1, job.prompt)
        };
        let id = self.core.add_ticket(asked, self.now)?;
        self.waiting.push((id, job, self.now));
        Ok(id)
    }

    pub(crate) fn is_waiting(&self, id: u64) -> bool {
        self.waiting.iter().any(|(waiting, ..)| *waiting == id)
    }

    pub(crate) fn limit(&self) -> usize {
        self.core.snapshot().limit
    }

    /// Whether no request runs or waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// One step of the engine; an idle one only takes its base.
    pub(crate) fn step(&mut self) {
        self.take_slot();
        let (took, generating) = self.compute();
        self.now += took;
        self.last_step = took;
        self.core.set_decode_time(self.decode_time);
        if generating > 0 {
            self.core.token_gap(took, self.now);
        }
        self.finish();
        self.limit_high = self.limit_high.max(self.limit());
        self.core.check_invariants();
    }

    fn take_slot(&mut self) {
        let (core, running, now) = (&mut self.core, &mut self.running, self.now);
        let timed_out = &mut self.timed_out;
        self.waiting
            .retain(|&(id, job, asked)| match poll(core, id, now) {
                TicketStatus::Waiting { .. } => true,
                TicketStatus::Rejected(_) => {
                    *timed_out += 1;
                    false
                }
                TicketStatus::Running => {
                    core.request_slot(id, now);
                    assert!(core.take_slot(id));
                    running.push_back(Sequence {
                        id,
                        job,
                        asked,
                        admitted: now,
                        prompt: 0,
                        tokens: 0,
                        first: now,
                    });
                    false
                }
            });
    }

    /// Time taken, and how many generate.
    fn compute(&mut self) -> (Duration, u32) {
        let (mut room, mut generating, mut decodes) = (CHUNK, 0, 0);
        for sequence in &mut self.running {
            let left = sequence.job.prompt - sequence.prompt;
            let chunk = left.min(room);
            decodes += u32::from(left == 0);
            room -= chunk;
            sequence.prompt += chunk;
            if chunk == left {
                sequence.tokens += 1;
                generating += 1;
            }
        }
        let prompt_tokens = (CHUNK - room) as u32;
        let took = BASE + self.per_sequence * generating + PER_PROMPT_TOKEN * prompt_tokens;
        if let Some(time) = &mut self.decode_time {
            *time += took / (decodes + prompt_tokens).max(1) * decodes;
        }
        (took, generating)
    }

    fn finish(&mut self) {
        let (core, served, now) = (&mut self.core, &mut self.served, self.now);
        self.running.retain_mut(|sequence| {
            if sequence.tokens == 1 {
                sequence.first = now;
                core.first_token(sequence.id, now, now);
            }
            let ended = sequence.tokens >= sequence.job.answer;
            if ended {
                core.remove_ticket(sequence.id, now);
                served.push(Served {
                    asked: sequence.asked,
                    admitted: sequence.admitted,
                    first_token: sequence.first,
                });
            }
            !ended
        });
    }
}

/// Arrivals without memory, from a seed.
pub(crate) struct Arrivals {
    state: u64,
    next: Instant,
}

impl Arrivals {
    pub(crate) fn new(seed: u64, from: Instant) -> Self {
        Self {
            state: seed,
            next: from,
        }
    }

    /// When the next one comes.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Takes the next one if it came by `now`; `per_second` is the rate after it.
    pub(crate) fn due(&mut self, per_second: f64, now: Instant) -> bool {
        if self.next > now {
            return false;
        }
        let gap = -self.unit().ln() / per_second;
        self.next += Duration::from_secs_f64(gap);
        true
    }

    /// Uniform in (0, 1] (splitmix64).
    pub(crate) fn unit(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 + f64::EPSILON
    }
}
