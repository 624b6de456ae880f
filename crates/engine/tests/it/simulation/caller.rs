//! The simulated callers: their requests and their behavior.

#![allow(unreachable_pub, reason = "a part of one test file")]

use crate::support::Random;
use engine::fake::{EncodeFault, FakeInput};
use engine::{
    Account, AdapterSet, CacheSalt, Clocks, Policy, Priority, SamplingParams, StopCondition, Terms,
};
use std::time::Duration;

/// A prompt with this token makes every forward pass fail with an error.
pub const POISON_ERROR: u32 = 61;
/// A prompt with this token makes every forward pass panic.
pub const POISON_PANIC: u32 = 62;
/// A prompt with this token makes its logits NaN.
pub const POISON_NAN: u32 = 63;

/// Stands for the rows of an image in a prompt.
const PAD: u32 = 5;

/// Number of images.
const IMAGES: u64 = 60;

/// Rows of the largest image.
pub const IMAGE_ROWS_MAX: usize = 12;

/// A caller's request and behavior.
#[derive(Clone)]
pub struct Caller {
    pub prompt: Vec<u32>,
    /// The first row of each image, and the image.
    pub images: Vec<(usize, FakeInput)>,
    pub sampling: SamplingParams,
    pub max_tokens: usize,
    pub choices: usize,
    /// A token after which the stop condition ends the answer.
    pub stop: Option<u32>,
    pub credit_window: u64,
    pub deadline: Option<Duration>,
    /// Probability of a read in a step, in percent.
    pub reads: u64,
    /// Steps after which the caller cancels.
    pub cancels: Option<usize>,
    /// A choice, and the steps after which its reader is dropped.
    pub drops: Option<(usize, usize)>,
    pub terms: Terms,
    pub adapters: AdapterSet,
    /// Steps after which the caller pauses, and steps from then to the resume.
    pub pauses: Option<(usize, usize)>,
}

impl Caller {
    pub fn new(random: &mut Random) -> Self {
        let after = |random: &mut Random, percent| {
            let steps = random.below(60) as usize;
            random.chance(percent).then_some(steps)
        };
        let max_tokens = 1 + random.below(40) as usize;
        let choices = [1, 1, 1, 1, 2, 3][random.below(6) as usize];
        let window = 1 + random.below(12);
        let dropped = random.below(choices as u64) as usize;
        let stop = 1 + random.below(60) as u32;
        let mut prompt = prompt(random);
        let images = images(&mut Random(random.next()), &mut prompt);
        Self {
            prompt,
            images,
            sampling: sampling(random, max_tokens),
            max_tokens,
            choices,
            adapters: adapters(stop),
            stop: random.chance(20).then_some(stop),
            credit_window: window * u64::from(random.chance(50)),
            deadline: after(random, 10).map(|ms| Duration::from_millis(ms as u64)),
            reads: [100, 50, 8][random.below(3) as usize],
            cancels: after(random, 10),
            drops: after(random, 15).map(|steps| (dropped, steps)),
            pauses: after(random, 20).map(|steps| (steps, 1 + random.below(80) as usize)),
            terms: terms(random),
        }
    }
}

/// A stop condition on one token.
pub struct StopAfter(pub u32);

impl StopCondition for StopAfter {
    fn push(&mut self, token: u32) -> Option<u16> {
        (token == self.0).then_some(3)
    }
}

/// Prompts of which many have pages in common; some contain a poison token.
fn prompt(random: &mut Random) -> Vec<u32> {
    let mut prompt = Vec::new();
    // Pages of the same content, after the same and after other beginnings.
    for _ in 0..random.below(10) {
        let block = 1 + 4 * random.below(3) as u32;
        prompt.extend(block..block + 4);
    }
    prompt.extend((0..1 + random.below(25)).map(|_| 1 + random.below(60) as u32));
    if random.chance(6) {
        let at = random.below(prompt.len() as u64) as usize;
        prompt[at] = POISON_ERROR + random.below(3) as u32;
    }
    prompt
}

/// Images in a few prompts, some of them the same ones, at the beginning, in the middle or at the end; some cannot be encoded.
fn images(random: &mut Random, prompt: &mut Vec<u32>) -> Vec<(usize, FakeInput)> {
    let mut images = Vec::new();
    if !random.chance(30) {
        return images;
    }
    let (mut first, most) = (0, [1, 1, 2, 3][random.below(4) as usize]);
    while images.len() < most && prompt.len() < 70 {
        let input = image(random.below(IMAGES));
        let at = match random.below(4) {
            0 => first,
            1 => prompt.len(),
            _ => first + random.below((prompt.len() - first + 1) as u64) as usize,
        };
        prompt.splice(at..at, std::iter::repeat_n(PAD, input.rows));
        images.push((at, input));
        first = at + input.rows;
    }
    images
}

/// An image: equal seeds give equal images.
fn image(seed: u64) -> FakeInput {
    let faults = [
        EncodeFault::Refused,
        EncodeFault::Panic,
        EncodeFault::NotFinite,
        EncodeFault::NotANumber,
        EncodeFault::TooFew,
    ];
    // Few of them fail.
    let fault =
        (IMAGES - seed <= faults.len() as u64).then(|| faults[(IMAGES - seed - 1) as usize]);
    FakeInput {
        seed,
        rows: 1 + (seed * 5 % IMAGE_ROWS_MAX as u64) as usize,
        units: 1 + (seed % 3) as usize,
        fault,
    }
}

fn sampling(random: &mut Random, max_tokens: usize) -> SamplingParams {
    let mut some = |value: f32, off: f32| if random.chance(30) { value } else { off };
    let mut sampling = SamplingParams {
        temperature: some(0.0, 0.9),
        top_p: some(0.9, 1.0),
        min_p: some(0.05, 0.0),
        typical_p: some(0.9, 1.0),
        dry_multiplier: some(0.8, 0.0),
        xtc_probability: some(0.5, 0.0),
        repetition_penalty: some(1.2, 1.0),
        presence_penalty: some(0.5, 0.0),
        frequency_penalty: some(0.3, 0.0),
        ..SamplingParams::default()
    };
    sampling.top_k = if random.chance(30) {
        1 + random.below(20) as u32
    } else {
        0
    };
    sampling.seed = random.next();
    sampling.min_tokens = random.below(max_tokens as u64) as u32;
    sampling.ignore_eos = random.chance(20);
    sampling.logprobs = random.chance(20);
    sampling
}

/// No adapters, one, or two.
fn adapters(number: u32) -> AdapterSet {
    let all = [(0, 1.0), (2, 0.5)];
    let used = all.iter().take(number as usize % 3).copied();
    AdapterSet::new(used).expect("two of three")
}

/// Any priority, one of a few accounts, sometimes a clock or two.
fn terms(random: &mut Random) -> Terms {
    let mut clock = |least_ms: u64, percent| {
        let ms = least_ms + random.below(200);
        random.chance(percent).then_some(Duration::from_millis(ms))
    };
    let clocks = Clocks {
        queue: clock(1, 10),
        first_token: clock(1, 10),
        idle: clock(2, 10),
        total: clock(1, 10),
        reader: clock(1, 30),
    };
    let policies = [Policy::Cancel, Policy::Detach, Policy::Keep];
    let priority = Priority::ALL[random.below(5) as usize];
    let id = random.below(6);
    Terms {
        priority,
        account: Account {
            id,
            weight: 1 + random.below(3) as u32,
        },
        clocks,
        salt: CacheSalt(u128::from(id % 3)),
        policy: policies[random.below(3) as usize],
        since: None,
    }
}
