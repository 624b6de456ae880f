//! CPU time for each journaled token, and the speed of recovery.
//!
//! `cargo bench -p journal --bench throughput` writes 100,000 tokens a second for 1,000 streams, at full speed and with
//! the time as an argument: the CPU time is what counts. Files are in the folder for temporary files, or in the folder
//! that is given as argument.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measurement reads the clock and prints"
)]

use journal::{
    JournalConfig, JournalDirectory, JournalThread, Record, Recorder, StreamKey, Tokens, Writer,
    open_journal, read_journal,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const STREAMS: u32 = 1000;
const TOKENS_PER_SECOND: u32 = 100_000;
const VOCABULARY: u32 = 151_936;

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let folder = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let folder = folder.map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join(format!("journal-bench-{}", std::process::id()));
    for commit_ms in [1, 10] {
        for with_sync in [false, true] {
            for rounds in 0..3 {
                measure_writing(&path, commit_ms, with_sync, rounds)?;
            }
        }
    }
    for mebibytes in [64, 1024] {
        measure_recovery(&path, mebibytes)?;
    }
    for _ in 0..2 {
        measure_thread(&path)?;
    }
    Ok(())
}

fn config() -> JournalConfig {
    JournalConfig {
        bytes_max: 8 << 30,
        segment_bytes: 64 << 20,
        recovery_bytes_max: 4 << 30,
        ..JournalConfig::default()
    }
}

fn open_streams(
    writer: &mut Writer<JournalDirectory>,
    streams: u32,
) -> Result<Vec<StreamKey>, Error> {
    let open = |id| Ok(writer.open_stream(u128::from(id), &[b'x'; 2000])?);
    (0..streams).map(open).collect()
}

/// Tokens for every stream in turn.
struct Source {
    keys: Vec<StreamKey>,
    appended: Vec<u32>,
    next: usize,
    token: u32,
}

impl Source {
    fn new(keys: Vec<StreamKey>) -> Self {
        let appended = vec![0; keys.len()];
        Self {
            keys,
            appended,
            next: 0,
            token: 0,
        }
    }

    fn append(&mut self, writer: &mut Writer<JournalDirectory>, tokens: u32) -> Result<(), Error> {
        for _ in 0..tokens {
            self.token = (self.token + 40_503) % VOCABULARY;
            let first = self.appended[self.next];
            let tokens = Tokens {
                first,
                ids: &[self.token],
                ..Tokens::default()
            };
            writer.append(self.keys[self.next], &Record::Tokens(tokens))?;
            self.appended[self.next] += 1;
            self.next = (self.next + 1) % self.keys.len();
        }
        Ok(())
    }
}

/// CPU time of this thread, user and system, from the kernel's scheduler statistics. Updated at ticks of some
/// milliseconds, so short spans are not exact.
fn thread_cpu() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

fn measure_writing(path: &Path, commit_ms: u32, with_sync: bool, round: u32) -> Result<(), Error> {
    let (mut writer, _) = open_journal(JournalDirectory::new(path), config())?;
    let mut source = Source::new(open_streams(&mut writer, STREAMS)?);
    let turns = 50_000 / commit_ms;
    let per_turn = TOKENS_PER_SECOND * commit_ms / 1000;
    let mut now = Duration::ZERO;
    writer.commit(now);
    let before = writer.counts().written_bytes;
    let start = thread_cpu();
    for _ in 0..turns {
        source.append(&mut writer, per_turn)?;
        now += Duration::from_millis(u64::from(commit_ms));
        writer.commit(now);
        if with_sync && let Some(job) = writer.take_sync_job(now) {
            writer.finish_sync(job.run(), now);
        }
    }
    let cpu = thread_cpu() - start;
    let tokens = f64::from(turns * per_turn);
    let bytes = (writer.counts().written_bytes - before) as f64;
    println!(
        "commit {commit_ms:2} ms, sync {:6}, round {round}: {:4.0} ns/token of CPU, {:.1} % of a core at \
         {TOKENS_PER_SECOND} tokens/s, {:.1} B/token",
        if with_sync { "100 ms" } else { "none" },
        cpu.as_nanos() as f64 / tokens,
        cpu.as_secs_f64() * f64::from(TOKENS_PER_SECOND) / tokens * 100.0,
        bytes / tokens,
    );
    drop(writer);
    Ok(fs::remove_dir_all(path)?)
}

fn measure_recovery(path: &Path, mebibytes: u64) -> Result<(), Error> {
    let (mut writer, _) = open_journal(JournalDirectory::new(path), config())?;
    let mut source = Source::new(open_streams(&mut writer, STREAMS)?);
    let mut now = Duration::ZERO;
    while writer.sizes().bytes < mebibytes << 20 {
        source.append(&mut writer, 1000)?;
        now += Duration::from_millis(10);
        writer.commit(now);
    }
    writer.close(now);
    for round in 0..3 {
        let (start, cpu) = (Instant::now(), thread_cpu());
        let found = read_journal(&JournalDirectory::new(path), config().recovery_bytes_max)?;
        let (seconds, cpu) = (
            start.elapsed().as_secs_f64(),
            (thread_cpu() - cpu).as_secs_f64(),
        );
        let choices = found.streams.iter().flat_map(|stream| &stream.choices);
        let tokens: usize = choices.map(|choice| choice.ids.len()).sum();
        assert_eq!(found.report.damages, 0);
        println!(
            "recovery of {mebibytes} MiB, round {round}: {seconds:.3} s, {cpu:.3} s of CPU, {:.0} MiB per second of \
             CPU, {tokens} tokens, {:.0} ns/token",
            mebibytes as f64 / cpu,
            cpu * 1e9 / tokens as f64,
        );
    }
    Ok(fs::remove_dir_all(path)?)
}

/// A recorder whose tokens come from a counter; the times from wake to acknowledgement are kept.
struct Timed {
    source: Source,
    wanted: Arc<AtomicU64>,
    taken: u64,
    acknowledged: Arc<AtomicU64>,
    cpu: Arc<AtomicU64>,
}

impl Recorder<JournalDirectory> for Timed {
    fn collect_records(&mut self, writer: &mut Writer<JournalDirectory>) {
        let wanted = self.wanted.load(Ordering::Acquire);
        if self
            .source
            .append(writer, (wanted - self.taken) as u32)
            .is_ok()
        {
            self.taken = wanted;
        }
    }

    fn note_commit(&mut self, _writer: &mut Writer<JournalDirectory>, _commit: u64) {
        self.acknowledged.store(self.taken, Ordering::Release);
        self.cpu
            .store(thread_cpu().as_nanos() as u64, Ordering::Relaxed);
    }

    fn rewrite_stream(&mut self, _writer: &mut Writer<JournalDirectory>, _key: StreamKey) {}
}

/// Real time: an engine step each 10 ms wakes the thread with 32 tokens, as 32 clients of a fast model do.
fn measure_thread(path: &Path) -> Result<(), Error> {
    const TURNS: u64 = 300;
    const PER_TURN: u64 = 32;
    let (mut writer, _) = open_journal(JournalDirectory::new(path), config())?;
    let source = Source::new(open_streams(&mut writer, PER_TURN as u32)?);
    let [wanted, acknowledged, cpu] = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
    let recorder = Timed {
        source,
        wanted: Arc::clone(&wanted),
        taken: 0,
        acknowledged: Arc::clone(&acknowledged),
        cpu: Arc::clone(&cpu),
    };
    let start = Instant::now();
    let thread = JournalThread::start(writer, recorder, move || start.elapsed())?;
    let waker = thread.waker();
    let mut delays = Vec::new();
    for turn in 1..=TURNS {
        let due = start + Duration::from_millis(10 * turn);
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
        let handed_over = Instant::now();
        wanted.store(turn * PER_TURN, Ordering::Release);
        waker.wake();
        while acknowledged.load(Ordering::Acquire) < turn * PER_TURN {
            std::hint::spin_loop();
        }
        delays.push(handed_over.elapsed());
    }
    thread.stop();
    delays.sort_unstable();
    println!(
        "thread, 32 tokens each 10 ms, sync 100 ms: wake to acknowledgement p50 {:?}, p99 {:?}, max {:?}; {:.2} % of a core",
        delays[delays.len() / 2],
        delays[delays.len() * 99 / 100],
        delays[delays.len() - 1],
        cpu.load(Ordering::Relaxed) as f64 / 1e9 / (TURNS as f64 / 100.0) * 100.0,
    );
    Ok(fs::remove_dir_all(path)?)
}
