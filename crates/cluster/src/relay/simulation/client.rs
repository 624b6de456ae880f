//! Clients of a remote handle, and the check of what they read.

use super::engine::{INJECTED, end_of, token_at};
use engine::{
    Choice, Handle, Progress, Request, RequestId, RequestUpdate, SamplingParams, Terms, Token,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stream::{End, Read, Reader, SegmentPool};
use testing::random::Random;

/// A request with its readers.
pub(super) struct Client {
    pub(super) id: RequestId,
    seed: u64,
    pub(super) is_cancelled: bool,
    pub(super) is_paused: bool,
    pub(super) updates: u32,
    answers: Vec<Answer>,
    progress: Arc<Progress>,
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
        pool: &SegmentPool<Token>,
        released: &Arc<AtomicUsize>,
        random: &mut Random,
    ) -> Self {
        let seed = random.next();
        let window = [0, 8][random.below(2) as usize];
        let mut answers = Vec::new();
        let mut choices = Vec::new();
        for _ in 0..=random.below(3) {
            let (tokens, reader) = stream::open(pool, 100).expect("segments");
            answers.push(Answer {
                reader,
                ids: Vec::new(),
                end: None,
            });
            choices.push(Choice {
                tokens,
                top: None,
                terminator: None,
                constraint: None,
            });
        }
        let mut record = seed.to_le_bytes().to_vec();
        record.push(window);
        // Some requests need several messages.
        record.resize(9 + (seed % 20 / 19) as usize * 1_000_000, 0);
        let progress = Arc::new(Progress::default());
        let request = Request {
            prompt: vec![1, 2],
            sampling: SamplingParams::default(),
            max_tokens: 100,
            eos: Arc::from([0]),
            choices,
            first_choice: 0,
            paused: false,
            embedding: None,
            deadline: None,
            credit_window: window.into(),
            terms: Terms::default(),
            progress: Arc::clone(&progress),
            permits: None,
            held: Some(Box::new(Held(Arc::clone(released)))),
            remote: Some(record.into()),
        };
        Self {
            id: handle.submit(request).expect("accepted"),
            seed,
            is_cancelled: false,
            is_paused: false,
            updates: 0,
            answers,
            progress,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.answers.iter().all(|answer| answer.end.is_some())
    }

    /// Reads and accepts what is there.
    pub(super) fn read(&mut self) {
        let mut buf = [Token {
            id: 0,
            logprob: 0.0,
        }; 7];
        for answer in &mut self.answers {
            match answer.reader.read(&mut buf) {
                Read::Items(count) => {
                    answer.ids.extend(buf[..count].iter().map(|token| token.id));
                    answer.reader.accept(answer.ids.len() as u64);
                }
                Read::Ended(end) => answer.end = Some(end),
                Read::Empty => {}
            }
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
        handle.update(self.id, update).expect("room");
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
        let (begun, applied) = (
            self.progress.updates_begun(),
            self.progress.updates_applied(),
        );
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
