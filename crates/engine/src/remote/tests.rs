mod embedding;
mod permits;

use super::*;
use crate::{
    Choice, Clocks, Phase, Progress, Rejected, Request, SequencePermits, Token, TopLogprob,
};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::task::Wake;
use std::time::Duration;
use stream::{Clock, End, PoolLimits, Read, Reader, SegmentPool, Stop, Tap};

const DIMS: Dims = Dims {
    vocab: 64,
    context_max: 128,
    page_tokens: 4,
    pages: 64,
    rows_max: 16,
    logit_rows_max: 16,
};

/// Entries of the model's hidden states.
const HIDDEN_DIM: usize = 3;

struct Bench {
    handle: Handle,
    inbox: RemoteInbox,
    now: Instant,
    pool: SegmentPool<Token>,
    side_pool: SegmentPool<TopLogprob>,
}

#[expect(clippy::disallowed_methods, reason = "an epoch for virtual time")]
fn epoch() -> Instant {
    Instant::now()
}

fn bench(config: EngineConfig) -> Bench {
    let now = epoch();
    let (handle, inbox) = remote_handle(embedding::decoder(), config, now).unwrap();
    let limits = PoolLimits { segments_max: 4096 };
    Bench {
        handle,
        inbox,
        now: now + Duration::from_secs(1),
        pool: SegmentPool::new(limits),
        side_pool: SegmentPool::new(limits),
    }
}

impl Bench {
    /// A request with `choices` choices; log `i` begins with `before` items.
    fn request(&self, choices: usize, before: &[u32]) -> (Request, Vec<Reader<Token>>) {
        let mut readers = Vec::new();
        let mut opened = Vec::new();
        for _ in 0..choices {
            let (mut tokens, reader) = stream::open(&self.pool, before.len() + 8).unwrap();
            before
                .iter()
                .for_each(|&id| tokens.append(token(id)).unwrap());
            readers.push(reader);
            opened.push(Choice::new(tokens));
        }
        let request = Request {
            eos: Arc::from([0]),
            choices: opened,
            credit_window: 4,
            remote: Some(b"record".to_vec().into()),
            ..Request::new([&[1, 2, 3], before].concat(), 8)
        };
        (request, readers)
    }

    fn take(&mut self) -> RelayedRequest {
        let mut taken = Vec::new();
        self.inbox.take_requests(&mut taken, self.now);
        assert_eq!(taken.len(), 1);
        taken.remove(0)
    }
}

fn token(id: u32) -> Token {
    Token { id, logprob: -0.5 }
}

fn read(reader: &mut Reader<Token>) -> (Vec<u32>, Option<End>) {
    let (mut buf, mut ids) = ([token(0); 16], Vec::new());
    loop {
        match reader.read(&mut buf) {
            Read::Items(count) => ids.extend(buf[..count].iter().map(|t| t.id)),
            Read::Ended(end) => return (ids, Some(end)),
            Read::Empty => return (ids, None),
        }
    }
}

/// Writes which of the logs have ended when the value is dropped.
struct Held {
    taps: Vec<Tap<Token>>,
    ended: Arc<Mutex<Vec<bool>>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let ended = self.taps.iter().map(|tap| tap.end().is_some());
        self.ended.lock().unwrap().extend(ended);
    }
}

/// Permits for `free` choices, with the number that is held.
struct Permits {
    free: Arc<AtomicUsize>,
    held: Arc<AtomicUsize>,
    /// Held ones that other requests are to get.
    recalled: Arc<AtomicUsize>,
}

impl SequencePermits for Permits {
    fn wake_by(&mut self, _: Waker) {}

    fn request(&mut self) {}

    fn take(&mut self) -> bool {
        let take = |free: usize| free.checked_sub(1);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = self.free.fetch_update(set, get, take).is_ok();
        self.held.fetch_add(usize::from(taken), Ordering::Relaxed);
        taken
    }

    fn withdraw(&mut self) {}

    fn give_back(&mut self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
        if self.is_recalled() {
            self.recalled.fetch_sub(1, Ordering::Relaxed)
        } else {
            self.free.fetch_add(1, Ordering::Relaxed)
        };
    }

    fn is_recalled(&mut self) -> bool {
        self.recalled.load(Ordering::Relaxed) > 0
    }
}

#[test]
fn tokens_and_ends_reach_the_readers_and_resources_are_released_before_the_last_end() {
    let mut bench = bench(EngineConfig::default());
    let (mut request, mut readers) = bench.request(2, &[]);
    let ended = Arc::default();
    request.held = Some(Box::new(Held {
        taps: readers.iter().map(Reader::tap).collect(),
        ended: Arc::clone(&ended),
    }));
    let progress = Arc::clone(&request.progress);
    bench.handle.submit(request).unwrap();
    let (mut relayed, now) = (bench.take(), bench.now);
    assert_eq!(**relayed.record(), *b"record");
    assert_eq!((relayed.prompt(), relayed.choices()), (&[1, 2, 3][..], 2));
    let report = RelayedProgress {
        phase: Phase::Prefilling,
        prompt_done: 2,
        cached_tokens: 1,
    };
    relayed.apply_progress(report, now);
    assert_eq!(
        (progress.phase(), progress.prompt_done()),
        (Phase::Prefilling, 2)
    );
    assert_eq!(progress.cached_tokens(), 1);
    assert!(progress.started_ns() > 0 && progress.first_token_ns() == 0);
    for id in [5, 6] {
        relayed.append(1, token(id), &[], now).unwrap();
    }
    assert_eq!(progress.phase(), Phase::Running);
    assert!(progress.first_token_ns() > 0);
    relayed.finish(1, End::Length, now);
    relayed.finish(1, End::Cancelled, now);
    assert_eq!(read(&mut readers[1]), (vec![5, 6], Some(End::Length)));
    assert!(ended.lock().unwrap().is_empty() && !relayed.has_ended());
    relayed.append(0, token(7), &[], now).unwrap();
    relayed.finish(0, End::Stop(Stop::Eos), now);
    assert_eq!(*ended.lock().unwrap(), [false, true], "before the last end");
    assert_eq!(read(&mut readers[0]), (vec![7], Some(End::Stop(Stop::Eos))));
    assert!(relayed.has_ended());
    assert_eq!(progress.phase(), Phase::Ended);
    assert_eq!(bench.handle.stats().tokens_generated(), 3);
    assert_eq!(bench.handle.stats().endings().total(), 2);
}

#[test]
fn dropped_request_releases_its_resources_and_is_lost() {
    let mut bench = bench(EngineConfig::default());
    let (mut request, mut readers) = bench.request(1, &[]);
    let ended = Arc::default();
    request.held = Some(Box::new(Held {
        taps: readers.iter().map(Reader::tap).collect(),
        ended: Arc::clone(&ended),
    }));
    bench.handle.submit(request).unwrap();
    drop(bench.take());
    assert_eq!(*ended.lock().unwrap(), [false]);
    assert_eq!(read(&mut readers[0]), (vec![], Some(End::Lost)));
    let (request, mut readers) = bench.request(1, &[]);
    bench.handle.submit(request).unwrap();
    drop(bench.inbox);
    assert_eq!(read(&mut readers[0]), (vec![], Some(End::Lost)));
}

#[test]
fn requests_without_a_record_are_rejected() {
    let bench = bench(EngineConfig::default());
    assert!(bench.handle.is_remote());
    let (mut request, _readers) = bench.request(1, &[]);
    request.remote = None;
    let Err(Rejected::Invalid(_, why)) = bench.handle.submit(request) else {
        panic!("accepted");
    };
    assert!(why.starts_with("engine:"), "{why}");
}

#[test]
fn requests_with_images_are_rejected() {
    let bench = bench(EngineConfig::default());
    let (mut request, _readers) = bench.request(1, &[]);
    request.media.push(crate::MediaInput {
        key: [0; 32],
        rows: 0..1,
        grid: (1, 1),
        input: Arc::new(()),
    });
    let Err(Rejected::Invalid(_, why)) = bench.handle.submit(request) else {
        panic!("accepted");
    };
    assert!(why.starts_with("media:"), "{why}");
}

#[test]
fn slots_of_ended_requests_are_used_again() {
    let config = EngineConfig {
        inbox_max: 2,
        sequences_max: 1,
        ..EngineConfig::default()
    };
    let mut bench = bench(config);
    for _ in 0..10 {
        let (request, _readers) = bench.request(1, &[]);
        bench.handle.submit(request).unwrap();
        let mut relayed = bench.take();
        relayed.finish_all(End::Length, bench.now);
    }
    let mut kept = Vec::new();
    let full = loop {
        let (request, readers) = bench.request(1, &[]);
        kept.push(readers);
        if let Err(full) = bench.handle.submit(request) {
            break full;
        }
    };
    assert!(matches!(full, Rejected::Full(_)));
    assert_eq!(kept.len(), 3, "the bound of queued requests");
}

#[test]
fn relay_is_woken_by_handles_and_readers() {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mut bench = bench(EngineConfig::default());
    let count = Arc::new(Count(AtomicUsize::new(0)));
    bench.inbox.wake_by(Waker::from(Arc::clone(&count)));
    let woken = |what| assert!(count.0.swap(0, Ordering::Relaxed) > 0, "{what}");
    let (request, readers) = bench.request(1, &[]);
    let id = bench.handle.submit(request).unwrap();
    woken("submit");
    let mut relayed = bench.take();
    (0..4).for_each(|id| relayed.append(0, token(id), &[], bench.now).unwrap());
    assert_eq!(relayed.accepted(0), Some(0));
    readers[0].accept(3);
    woken("credit");
    assert_eq!(relayed.accepted(0), Some(3));
    bench.handle.pause(id);
    woken("pause");
    assert!(relayed.is_paused() && !relayed.is_cancelled());
    drop(readers);
    woken("abandoned");
    assert!(relayed.is_cancelled());
    bench.handle.cancel(id);
    woken("cancel");
}

#[test]
fn request_waits_for_the_first_choices_permit_and_a_paused_one_holds_none() {
    let mut bench = bench(EngineConfig::default());
    let (free, held) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (mut request, _readers) = bench.request(2, &[]);
    request.permits = Some(Box::new(Permits {
        free: Arc::clone(&free),
        held: Arc::clone(&held),
        recalled: Arc::default(),
    }));
    let id = bench.handle.submit(request).unwrap();
    let (mut relayed, now) = (bench.take(), bench.now);
    assert!(!relayed.update_permits(now));
    free.store(1, Ordering::Relaxed);
    assert!(relayed.update_permits(now));
    assert_eq!(held.load(Ordering::Relaxed), 1);
    free.store(1, Ordering::Relaxed);
    assert!(relayed.update_permits(now));
    assert_eq!(held.load(Ordering::Relaxed), 2);
    bench.handle.pause(id);
    assert!(!relayed.update_permits(now));
    assert_eq!(held.load(Ordering::Relaxed), 0);
    bench.handle.resume(id);
    assert!(relayed.update_permits(now));
    relayed.finish(1, End::Length, now);
    assert_eq!(held.load(Ordering::Relaxed), 1);
    drop(relayed);
    assert_eq!(held.load(Ordering::Relaxed), 0);
}

#[test]
fn tokens_that_cannot_belong_to_the_request_are_rejected() {
    let mut bench = bench(EngineConfig::default());
    let (mut request, _readers) = bench.request(1, &[]);
    request.sampling.top_logprobs = 2;
    let (top, _side) = stream::open(&bench.side_pool, 16).unwrap();
    request.choices[0].top = Some(top);
    bench.handle.submit(request).unwrap();
    let (mut relayed, now) = (bench.take(), bench.now);
    let (id, logprob) = (9, -2.0);
    let top = [TopLogprob { id, logprob }; 3];
    let rows = [
        (1, token(1), &top[..2], AppendError::NoChoice),
        (0, token(64), &top[..2], AppendError::UnknownToken),
        (0, token(1), &top[..1], AppendError::Alternatives),
        (0, token(1), &top[..3], AppendError::Alternatives),
    ];
    for (choice, token, top, why) in rows {
        assert_eq!(relayed.append(choice, token, top, now), Err(why));
    }
    for _ in 0..8 {
        relayed.append(0, token(1), &top[..2], now).unwrap();
    }
    let full = relayed.append(0, token(1), &top[..2], now);
    assert_eq!(full, Err(AppendError::Full));
    assert_eq!(relayed.log_ids(0), Some(&[1; 8][..]));
    relayed.finish(0, End::Length, now);
    let ended = relayed.append(0, token(1), &top[..2], now);
    assert_eq!(ended, Err(AppendError::NoChoice));
    assert_eq!(relayed.log_ids(0), None);
}

#[test]
fn ids_of_a_resumed_log_begin_with_those_before_the_submission() {
    let mut bench = bench(EngineConfig::default());
    let (request, mut readers) = bench.request(1, &[40, 41]);
    bench.handle.submit(request).unwrap();
    let mut relayed = bench.take();
    assert_eq!(relayed.log_ids(0), Some(&[40, 41][..]));
    relayed.append(0, token(42), &[], bench.now).unwrap();
    assert_eq!(relayed.log_ids(0), Some(&[40, 41, 42][..]));
    assert_eq!(read(&mut readers[0]).0, [40, 41, 42]);
}

#[test]
fn clocks_end_requests_that_no_engine_has() {
    let mut bench = bench(EngineConfig::default());
    let second = Duration::from_secs(1);
    let (queue, total) = (Some(2 * second), Some(9 * second));
    let (mut request, _readers) = bench.request(1, &[]);
    request.terms.clocks = Clocks {
        queue,
        total,
        ..Clocks::default()
    };
    bench.handle.submit(request).unwrap();
    let (mut relayed, now) = (bench.take(), bench.now);
    assert_eq!(relayed.expired(now + second), None);
    let late = End::TimedOut(Clock::Queue);
    assert_eq!(relayed.expired(now + 2 * second), Some(late));
    relayed.append(0, token(1), &[], now + second).unwrap();
    assert_eq!(relayed.expired(now + 8 * second), None);
    let late = End::TimedOut(Clock::Total);
    assert_eq!(relayed.expired(now + 9 * second), Some(late));
    bench.handle.shutdown(now + 3 * second);
    assert!(relayed.expired(now + 3 * second).is_some());
    let mut none = Vec::new();
    assert!(!bench.inbox.take_requests(&mut none, now) && none.is_empty());
}
