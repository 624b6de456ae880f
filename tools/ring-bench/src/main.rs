//! How quick `stream::ring` is beside other bounded channels, between two threads of one process.
//!
//! `ring-bench [ITEMS] [ROUNDS]`: a table with millions of items per second through a channel of 1024 (`u32`s;
//! both ends spin, the median of five runs), and the nanoseconds of half a round trip through two channels of
//! 1 (median of ROUNDS). "in slices" hands over and takes many at once, where a channel can.
//!
//! `cargo run --release --locked --manifest-path tools/ring-bench/Cargo.toml`

use std::hint::spin_loop;
use std::thread;
use std::time::Instant;
use stream::ring::{self, Kind};

const CAPACITY: usize = 1024;
const SLICE: usize = 64;
const RUNS: usize = 5;

/// Both ends of some channel, which never wait.
type Ends = (Box<dyn Push>, Box<dyn Pull>);

/// One call per slice, so that the boxes cost the same for all and little.
trait Push: Send {
    /// Hands over each item by itself; spins while there is no room.
    fn push_all(&mut self, items: std::ops::Range<u32>);
    /// In slices, where the channel can.
    fn push_slices(&mut self, items: std::ops::Range<u32>) {
        self.push_all(items);
    }
}

trait Pull: Send {
    /// Takes so many items, each by itself; spins while there is none. Gives their sum.
    fn pull_all(&mut self, count: u32) -> u64;
    fn pull_slices(&mut self, count: u32) -> u64 {
        self.pull_all(count)
    }
}

/// A channel's two closures as ends.
struct By<F>(F);

impl<F: FnMut(u32) -> bool + Send> Push for By<F> {
    fn push_all(&mut self, items: std::ops::Range<u32>) {
        for item in items {
            while !(self.0)(item) {
                spin_loop();
            }
        }
    }
}

impl<F: FnMut() -> Option<u32> + Send> Pull for By<F> {
    fn pull_all(&mut self, count: u32) -> u64 {
        let mut sum = 0;
        for _ in 0..count {
            sum += loop {
                if let Some(item) = (self.0)() {
                    break u64::from(item);
                }
                spin_loop();
            };
        }
        sum
    }
}

struct OurWriter(ring::Writer<u32>);
struct OurReader(ring::Reader<u32>);

impl Push for OurWriter {
    fn push_all(&mut self, items: std::ops::Range<u32>) {
        for item in items {
            while self.0.push(item).is_err() {
                spin_loop();
            }
        }
    }

    fn push_slices(&mut self, items: std::ops::Range<u32>) {
        let all: Vec<u32> = items.collect();
        for slice in all.chunks(SLICE) {
            let mut rest = slice;
            while !rest.is_empty() {
                rest = &rest[self.0.push_slice(rest).unwrap_or(0)..];
            }
        }
    }
}

impl Pull for OurReader {
    fn pull_all(&mut self, count: u32) -> u64 {
        By(|| self.0.try_next()).pull_all(count)
    }

    fn pull_slices(&mut self, count: u32) -> u64 {
        let (mut sum, mut seen) = (0, 0);
        let mut items = Vec::with_capacity(CAPACITY);
        while seen < count {
            seen += self.0.drain_into(&mut items) as u32;
            sum += items.drain(..).map(u64::from).sum::<u64>();
        }
        sum
    }
}

fn channels(capacity: usize) -> Vec<(&'static str, Ends)> {
    let ours = |kind| {
        let (writer, reader) = ring::open(capacity, kind).expect("a capacity");
        let ends: Ends = (Box::new(OurWriter(writer)), Box::new(OurReader(reader)));
        ends
    };
    let (mut to_rtrb, mut from_rtrb) = rtrb::RingBuffer::new(capacity);
    let (to_crossbeam, from_crossbeam) = crossbeam_channel::bounded(capacity);
    let queue = std::sync::Arc::new(crossbeam_queue::ArrayQueue::new(capacity));
    let other_end = std::sync::Arc::clone(&queue);
    let (to_flume, from_flume) = flume::bounded(capacity);
    vec![
        ("ring (lossless)", ours(Kind::Lossless)),
        (
            "rtrb",
            (
                Box::new(By(move |item| to_rtrb.push(item).is_ok())),
                Box::new(By(move || from_rtrb.pop().ok())),
            ),
        ),
        (
            "crossbeam-queue ArrayQueue",
            (
                Box::new(By(move |item| queue.push(item).is_ok())),
                Box::new(By(move || other_end.pop())),
            ),
        ),
        (
            "crossbeam-channel bounded",
            (
                Box::new(By(move |item| to_crossbeam.try_send(item).is_ok())),
                Box::new(By(move || from_crossbeam.try_recv().ok())),
            ),
        ),
        (
            "flume bounded",
            (
                Box::new(By(move |item| to_flume.try_send(item).is_ok())),
                Box::new(By(move || from_flume.try_recv().ok())),
            ),
        ),
    ]
}

/// Millions of items per second.
fn throughput(ends: Ends, items: u32, slices: bool) -> f64 {
    let (mut push, mut pull) = ends;
    let start = Instant::now();
    let writing = thread::spawn(move || {
        if slices {
            push.push_slices(0..items)
        } else {
            push.push_all(0..items)
        }
    });
    let sum = if slices {
        pull.pull_slices(items)
    } else {
        pull.pull_all(items)
    };
    let took = start.elapsed().as_secs_f64();
    writing.join().expect("the writer");
    let items = u64::from(items);
    assert_eq!(sum, items * (items - 1) / 2, "something was lost");
    items as f64 / took / 1e6
}

/// Nanoseconds of half a round trip.
fn latency(there: Ends, back: Ends, rounds: u32) -> f64 {
    let (mut push, mut pull) = there;
    let (mut answer, mut answers) = back;
    let echo = thread::spawn(move || {
        for round in 0..rounds {
            pull.pull_all(1);
            answer.push_all(round..round + 1);
        }
    });
    let times = (0..rounds).map(|round| {
        let start = Instant::now();
        push.push_all(round..round + 1);
        answers.pull_all(1);
        start.elapsed().as_nanos() as f64 / 2.0
    });
    let median = median(times.collect());
    echo.join().expect("the echo");
    median
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u32>());
    let items = args.next().and_then(Result::ok).unwrap_or(5_000_000);
    let rounds = args.next().and_then(Result::ok).unwrap_or(100_000);
    println!("| channel | M items/s | in slices | ns one way |");
    println!("|---|---|---|---|");
    for at in 0..channels(1).len() {
        let pick = |capacity| channels(capacity).swap_remove(at);
        let runs = |slices| {
            let runs = (0..RUNS).map(|_| throughput(pick(CAPACITY).1, items, slices));
            median(runs.collect())
        };
        let (each, slices) = (runs(false), runs(true));
        let ns = latency(pick(1).1, pick(1).1, rounds);
        println!("| {} | {each:.1} | {slices:.1} | {ns:.0} |", pick(1).0);
    }
}
