//! CPU of the recorder per token, and the time from an append to the token's being shown.
//!
//! `cargo bench -p server --bench durability`. The logs of 1,000 streams are written at 100,000 tokens a second: all
//! streams each 10 ms, as an engine step does, and spread over each millisecond; and those of 32 streams at 3,200. CPU
//! times are those of the journal's thread (`/proc/self/task/*/schedstat`).
#![expect(clippy::print_stdout, reason = "the figures")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use engine::fake::{FakeConfig, FakeModel};
use engine::{Engine, EngineConfig, Token};
use gateway::streams::{ChoiceLog, DurableStream, StartedGeneration, StreamFeed, StreamJournal};
use generate::output::parser_config::ParserConfig;
use journal::{JournalConfig, JournalDirectory, open_journal};
use model::Dims;
use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use stream::{PoolLimits, Read, SegmentPool, Tap, Writer};
use testing::folder::Folder;
use testing::small_vocabulary;

const SECONDS: u64 = 5;

/// A stream whose log this thread writes.
struct WrittenStream {
    writer: Writer<Token>,
    shown: Tap<Token>,
    reader: stream::Reader<Token>,
    _durable: DurableStream,
}

struct Bench {
    journal: Arc<StreamJournal>,
    pool: SegmentPool<Token>,
    engine: engine::Handle,
    next_id: u128,
}

impl Bench {
    fn new(folder: &Folder) -> Self {
        let directory = JournalDirectory::new(&folder.0);
        let (writer, recovered) =
            open_journal(directory, JournalConfig::default()).expect("a journal");
        let (journal, _) =
            StreamJournal::start(writer, recovered, (StreamFeed::new(), None)).expect("a thread");
        let fake = FakeConfig {
            dims: Dims {
                vocab: 300,
                context_max: 64,
                page_tokens: 16,
                pages: 16,
                rows_max: 16,
                logit_rows_max: 16,
            },
            eos: 0,
            eos_probability: 0.0,
            habit: 0.0,
            tokens: 97..123,
            faults: Vec::new(),
        };
        let engine = Engine::new(
            Box::new(FakeModel::new(fake)),
            EngineConfig::default(),
            Instant::now(),
        );
        let (engine, _) = engine::spawn(engine.expect("an engine")).expect("a thread");
        let segments_max = 1 << 16;
        Self {
            journal,
            pool: SegmentPool::new(PoolLimits { segments_max }),
            engine,
            next_id: 1,
        }
    }

    fn open_stream(&mut self, capacity: usize) -> WrittenStream {
        let durable = self.journal.open_stream(self.next_id, vec![b'x'; 1500]);
        let durable = durable.expect("the journal works");
        self.next_id += 1;
        let (writer, reader, gate) =
            stream::open_gated(&self.pool, capacity, durable.waker()).expect("segments");
        let shown = gate.tap();
        let choice = ChoiceLog {
            tokens: gate.tap(),
            gate: Some(gate),
            top: None,
            at_text_start: true,
            reading: ParserConfig::default(),
            echoed: 0,
            echo_text: None,
            prompt: None,
        };
        let generation = StartedGeneration {
            image_tokens: 0,
            described: None,
            engine: self.engine.clone(),
            tokenizer: small_vocabulary::tokenizer(),
            requests: Vec::new(),
            choices: vec![choice],
            prompt_tokens: 1,
            resumed: None,
        };
        durable.attach_logs((&generation, &Arc::default()), false, 0);
        WrittenStream {
            writer,
            shown,
            reader,
            _durable: durable,
        }
    }

    /// Writes `per_burst` tokens in each `period`, to one stream after another; prints the CPU of both sides.
    fn measure_throughput(
        &mut self,
        label: &str,
        count: usize,
        per_burst: usize,
        period: Duration,
    ) {
        let bursts = (Duration::from_secs(SECONDS).as_nanos() / period.as_nanos()) as usize;
        let tokens = bursts * per_burst;
        let capacity = tokens.div_ceil(count) + 1;
        let mut streams: Vec<_> = (0..count).map(|_| self.open_stream(capacity)).collect();
        let cpu_before = journal_cpu();
        let written_before = self.journal.gauges().written_bytes;
        let (start, mut appending) = (Instant::now(), Duration::ZERO);
        let mut next = 0;
        for burst in 0..bursts {
            let begun = Instant::now();
            for _ in 0..per_burst {
                append(&mut streams[next % count].writer, next);
                next += 1;
            }
            appending += begun.elapsed();
            wait_until(start + period * (burst as u32 + 1));
        }
        let elapsed = start.elapsed();
        let cpu = journal_cpu() - cpu_before;
        while streams
            .iter()
            .any(|s| s.shown.len() < (tokens / count) as u64)
        {
            thread::yield_now();
        }
        let bytes = self.journal.gauges().written_bytes - written_before;
        println!(
            "{label}: {:.0} tokens/s; recorder {:.0} ns/token, {:.2} % of a core; append {:.0} ns/token; {:.1} B/token",
            tokens as f64 / elapsed.as_secs_f64(),
            cpu.as_nanos() as f64 / tokens as f64,
            100.0 * cpu.as_secs_f64() / elapsed.as_secs_f64(),
            appending.as_nanos() as f64 / tokens as f64,
            bytes as f64 / tokens as f64,
        );
    }

    /// One stream, a token each `period`: from the append to the wake of a reader that sleeps. (A reader that spins keeps
    /// the journal's thread from its core on a machine with two.)
    fn measure_latency(&mut self, label: &str, tokens: usize, period: Duration) {
        let mut stream = self.open_stream(tokens);
        let mut times: Vec<Duration> = Vec::with_capacity(tokens);
        let mut buffer = [Token::default(); 4];
        for token in 0..tokens {
            let begun = Instant::now();
            append(&mut stream.writer, token);
            let read = stream.reader.read_blocking(&mut buffer);
            assert_eq!(read, Read::Items(1), "the token was shown");
            times.push(begun.elapsed());
            wait_until(begun + period);
        }
        times.sort_unstable();
        let at = |share: f64| times[((tokens - 1) as f64 * share) as usize];
        println!(
            "{label}: append to shown p50 {:?}, p99 {:?}, max {:?}",
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
}

fn append(writer: &mut Writer<Token>, token: usize) {
    let token = Token {
        id: (token * 7919 % 151_936) as u32,
        logprob: f32::NAN,
    };
    writer.append(token).expect("capacity");
}

fn wait_until(at: Instant) {
    loop {
        let rest = at.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return;
        }
        thread::park_timeout(rest);
    }
}

/// CPU time of the thread `journal`.
fn journal_cpu() -> Duration {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux");
    let of_journal = tasks.flatten().find_map(|task| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        (name.trim() == "journal")
            .then(|| fs::read_to_string(task.path().join("schedstat")).ok())?
    });
    let text = of_journal.expect("the thread runs");
    let ns = text
        .split_whitespace()
        .next()
        .and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.expect("a number"))
}

fn main() {
    let folder = Folder::new("bench-durability");
    let mut bench = Bench::new(&folder);
    bench.measure_latency("idle, a token each 5 ms", 1000, Duration::from_millis(5));
    bench.measure_latency(
        "idle, a token each 0.2 ms",
        5000,
        Duration::from_micros(200),
    );
    let (step, spread) = (Duration::from_millis(10), Duration::from_millis(1));
    bench.measure_throughput("1,000 streams, a step each 10 ms", 1000, 1000, step);
    bench.measure_throughput("1,000 streams, spread", 1000, 100, spread);
    bench.measure_throughput("32 streams, a step each 10 ms", 32, 32, step);
    bench.journal.stop();
}
