//! Clients of a remote handle, and the check of what they read.

use super::engine::{INJECTED, end_of, token_at};
use super::slots::Slots;
use engine::{Choice, Handle, Progress, Request, RequestId, RequestUpdate, Token};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stream::{End, Read, Reader, SegmentPool};
use testing::random::Random;

/// A request with its readers.
pub(super) struct Client {
    /// One; of a stream that another gateway continues, one for each open choice.
    pub(super) ids: Vec<RequestId>,
    seed: u64,
    window: u8,
    pub(super) is_cancelled: bool,
    pub(super) is_paused: bool,
    pub(super) updates: u32,
    /// Whether the readers rest after what they have.
    pub(super) is_resting: bool,
    answers: Vec<Answer>,
    /// Of the first gateway.
    progress: Option<Arc<Progress>>,
    released: Arc<AtomicUsize>,
}

struct Answer {
    reader: Reader<Token>,
    ids: Vec<u32>,
    end: Option<End>,
}

/// Counts its drops: the release of a caller's resources.
struct Held(Arc<AtomicUsize>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Client {
    pub(super) fn submit(
        handle: &Handle,
        (pool, slots): (&SegmentPool<Token>, &Slots),
        released: &Arc<AtomicUsize>,
        (random, is_resting): (&mut Random, bool),
    ) -> Self {
        let seed = random.next();
        let window = if is_resting {
            8
        } else {
            [0, 8][random.below(2) as usize]
        };
        let mut answers = Vec::new();
        let mut choices = Vec::new();
        for _ in 0..=random.below(3) {
            let (choice, answer) = open(pool, &[]);
            answers.push(answer);
            choices.push(choice);
        }
        let progress = Arc::new(Progress::default());
        let request = Request {
            progress: Arc::clone(&progress),
            held: Some(Box::new(Held(Arc::clone(released)))),
            permits: Some(slots.permits(false)),
            ..request((seed, window), (choices, 0), &[])
        };
        Self {
            ids: vec![handle.submit(request).expect("accepted")],
            seed,
            window,
            is_cancelled: false,
            is_paused: false,
            updates: 0,
            is_resting,
            answers,
            progress: Some(progress),
            released: Arc::clone(released),
        }
    }

    /// Reads what is there when the gateway dies.
    pub(super) fn read_all(&mut self) {
        for answer in &mut self.answers {
            while answer.read() {}
        }
    }

    /// Submits what is open to another gateway, whose records lack the last `lag` tokens. Returns the number of requests.
    pub(super) fn resume(
        &mut self,
        handle: &Handle,
        (pool, slots): (&SegmentPool<Token>, &Slots),
        lag: usize,
    ) -> u64 {
        (self.ids, self.progress) = (Vec::new(), None);
        for (number, answer) in self.answers.iter_mut().enumerate() {
            if answer.end.is_none() && self.is_cancelled {
                answer.end = Some(End::Cancelled);
            }
            if answer.end.is_some() {
                continue;
            }
            let recorded = &answer.ids[..answer.ids.len().saturating_sub(lag)];
            let (choice, opened) = open(pool, recorded);
            let of_stream = (self.seed, self.window);
            let mut request = request(of_stream, (vec![choice], number), recorded);
            (*answer, request.paused) = (opened, self.is_paused);
            request.permits = Some(slots.permits(true));
            self.released.fetch_sub(1, Ordering::Relaxed);
            request.held = Some(Box::new(Held(Arc::clone(&self.released))));
            self.ids.push(handle.submit(request).expect("accepted"));
        }
        self.ids.len() as u64
    }

    pub(super) fn has_ended(&self) -> bool {
        self.answers.iter().all(|answer| answer.end.is_some())
    }

    /// Reads and accepts what is there.
    pub(super) fn read(&mut self) {
        for answer in &mut self.answers {
            answer.read();
        }
    }

    /// Sends an update that injects two tokens of its own.
    pub(super) fn update(&mut self, handle: &Handle) {
        self.updates += 1;
        let update = RequestUpdate {
            top_k: Some(self.updates),
            inject: vec![INJECTED + 2 * self.updates, INJECTED + 2 * self.updates + 1],
            ..RequestUpdate::default()
        };
        for &id in &self.ids {
            handle.update(id, update.clone()).expect("room");
        }
    }

    /// Each token is the one of its index and of the updates before it; each update is in the log once, in order. The end
    /// is that of the whole answer.
    pub(super) fn check(&self, label: &str) {
        let mut most_updates = 0;
        for (number, answer) in self.answers.iter().enumerate() {
            let (mut top_k, mut at) = (0, 0);
            let ids = &answer.ids;
            while at < ids.len() {
                if ids[at] >= INJECTED {
                    top_k += 1;
                    let injected = [INJECTED + 2 * top_k, INJECTED + 2 * top_k + 1];
                    assert_eq!(ids[at..][..2], injected, "{label}: choice {number} at {at}");
                    at += 2;
                } else {
                    let expected = token_at(self.seed, number, at, top_k);
                    assert_eq!(ids[at], expected, "{label}: choice {number} at {at}");
                    at += 1;
                }
            }
            most_updates = most_updates.max(top_k);
            assert!(top_k <= self.updates, "{label}: more updates than sent");
            let (len, end) = end_of(self.seed, number);
            let is_whole = answer.end == Some(end)
                && ids.len() >= len
                && ids.len() <= len + 1 + 2 * top_k as usize;
            let is_cut = self.is_cancelled && answer.end == Some(End::Cancelled);
            assert!(
                is_whole || is_cut,
                "{label}: choice {number} has {} of {len} tokens and {:?}",
                ids.len(),
                answer.end
            );
        }
        let Some(progress) = &self.progress else {
            return;
        };
        let (begun, applied) = (progress.updates_begun(), progress.updates_applied());
        assert!(
            applied <= begun && begun <= u64::from(self.updates),
            "{label}"
        );
        if !self.is_cancelled {
            assert_eq!(
                applied,
                u64::from(most_updates),
                "{label}: updates in effect"
            );
        }
    }
}

impl Answer {
    /// Reads and accepts some tokens. Returns whether there were any.
    fn read(&mut self) -> bool {
        let mut buf = [BLANK; 7];
        match self.reader.read(&mut buf) {
            Read::Items(count) => {
                self.ids.extend(buf[..count].iter().map(|token| token.id));
                self.reader.accept(self.ids.len() as u64);
                return true;
            }
            Read::Ended(end) => self.end = Some(end),
            Read::Empty => {}
        }
        false
    }
}

const BLANK: Token = Token {
    id: 0,
    logprob: -1.0,
};

/// A choice whose log begins with these tokens.
fn open(pool: &SegmentPool<Token>, ids: &[u32]) -> (Choice, Answer) {
    let (mut tokens, reader) = stream::open(pool, 100 + ids.len()).expect("segments");
    for &id in ids {
        tokens.append(Token { id, ..BLANK }).expect("room");
    }
    let choice = Choice::new(tokens);
    let answer = Answer {
        reader,
        ids: Vec::new(),
        end: None,
    };
    (choice, answer)
}

/// A request for choices from this number on.
fn request(
    (seed, window): (u64, u8),
    (choices, first): (Vec<Choice>, usize),
    answered: &[u32],
) -> Request {
    let mut record = seed.to_le_bytes().to_vec();
    record.extend([window, first as u8]);
    // Some requests need several messages.
    record.resize(10 + (seed % 20 / 19) as usize * 1_000_000, 0);
    Request {
        eos: Arc::from([0]),
        choices,
        first_choice: first as u32,
        credit_window: window.into(),
        remote: Some(record.into()),
        ..Request::new([&[1, 2], answered].concat(), 100)
    }
}
