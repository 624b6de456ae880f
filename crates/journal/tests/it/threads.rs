//! The writer on its thread: wakes, acknowledgements, a disk that hangs, an orderly stop.

use crate::driver::small_config;
use crate::model_disk::ModelDisk;
use journal::{
    FileSystem, JournalConfig, JournalFile, JournalThread, Record, Recorder, StreamKey, Tokens,
    Writer, open_journal, read_journal,
};
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Tokens handed over, and how many were acknowledged.
#[derive(Debug, Default)]
struct Exchange {
    appended: u32,
    acknowledged: u32,
}

#[derive(Clone, Debug, Default)]
struct Shared(Arc<(Mutex<Exchange>, Condvar)>);

impl Shared {
    fn append(&self) {
        self.0.0.lock().unwrap().appended += 1;
    }

    fn wait_for(&self, tokens: u32) {
        let exchange = self.0.0.lock().unwrap();
        let wait = |exchange: &mut Exchange| exchange.acknowledged < tokens;
        let timeout = Duration::from_secs(20);
        let (exchange, result) = self
            .0
            .1
            .wait_timeout_while(exchange, timeout, wait)
            .unwrap();
        let acknowledged = exchange.acknowledged;
        assert!(
            !result.timed_out(),
            "{acknowledged} of {tokens} tokens were acknowledged"
        );
    }
}

#[derive(Debug)]
struct OneStream {
    shared: Shared,
    key: StreamKey,
    recorded: u32,
    commits: Vec<(u64, u32)>,
}

impl<F: FileSystem> Recorder<F> for OneStream {
    fn collect_records(&mut self, writer: &mut Writer<F>) {
        let appended = self.shared.0.0.lock().unwrap().appended;
        let ids: Vec<u32> = (self.recorded..appended).collect();
        let tokens = Tokens {
            first: self.recorded,
            ids: &ids,
            ..Tokens::default()
        };
        if !ids.is_empty() {
            writer.append(self.key, &Record::Tokens(tokens)).unwrap();
        }
        self.recorded = appended;
    }

    fn note_commit(&mut self, writer: &mut Writer<F>, commit: u64) {
        self.commits.push((commit, self.recorded));
        let acknowledged = writer.acknowledged();
        self.commits.retain(|(number, tokens)| {
            let is_acknowledged = *number <= acknowledged;
            if is_acknowledged {
                self.shared.0.0.lock().unwrap().acknowledged = *tokens;
                self.shared.0.1.notify_all();
            }
            !is_acknowledged
        });
    }

    fn rewrite_stream(&mut self, writer: &mut Writer<F>, key: StreamKey) {
        let ids: Vec<u32> = (0..self.recorded).collect();
        let tokens = Tokens {
            ids: &ids,
            ..Tokens::default()
        };
        let write = |copy: &mut journal::StreamCopy<'_, F>| {
            copy.append(&Record::Tokens(tokens)).unwrap();
        };
        writer.rewrite_stream(key, b"one", write).unwrap();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the clock of the thread under test"
)]
fn start<F: FileSystem>(fs: F, config: JournalConfig) -> (JournalThread, Shared) {
    let (mut writer, _) = open_journal(fs, config).unwrap();
    let key = writer.open_stream(1, b"one").unwrap();
    let shared = Shared::default();
    let recorder = OneStream {
        shared: shared.clone(),
        key,
        recorded: 0,
        commits: Vec::new(),
    };
    let start = Instant::now();
    let thread = JournalThread::start(writer, recorder, move || start.elapsed()).unwrap();
    (thread, shared)
}

fn check_wakes(config: JournalConfig) {
    let disk = ModelDisk::default();
    let (thread, shared) = start(disk.clone(), config);
    let waker = thread.waker();
    for token in 1..=2000 {
        shared.append();
        waker.wake();
        if token % 10 == 0 {
            shared.wait_for(token);
        }
    }
    thread.stop();
    let found = read_journal(&disk.after_kill(), 1 << 20).unwrap();
    assert_eq!(found.streams[0].choices[0].ids.len(), 2000);
    assert!(found.report.is_sealed);
}

#[test]
fn every_wake_leads_to_an_acknowledgement() {
    check_wakes(small_config());
}

#[test]
fn every_wake_leads_to_a_synced_acknowledgement() {
    check_wakes(JournalConfig {
        sync_interval: Duration::ZERO,
        ..small_config()
    });
}

/// A disk whose syncs wait until the test permits them.
#[derive(Clone, Debug)]
struct HangingDisk(ModelDisk, Arc<(Mutex<bool>, Condvar)>);

#[derive(Debug)]
struct HangingFile(<ModelDisk as FileSystem>::File, Arc<(Mutex<bool>, Condvar)>);

impl FileSystem for HangingDisk {
    type File = HangingFile;
    type Lock = <ModelDisk as FileSystem>::Lock;

    fn lock_journal(&self) -> io::Result<Self::Lock> {
        self.0.lock_journal()
    }
    fn list_files(&self) -> io::Result<Vec<String>> {
        self.0.list_files()
    }
    fn create_file(&self, name: &str) -> io::Result<HangingFile> {
        Ok(HangingFile(self.0.create_file(name)?, self.1.clone()))
    }
    fn open_file(&self, name: &str) -> io::Result<HangingFile> {
        Ok(HangingFile(self.0.open_file(name)?, self.1.clone()))
    }
    fn rename_file(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename_file(from, to)
    }
    fn remove_file(&self, name: &str) -> io::Result<()> {
        self.0.remove_file(name)
    }
    fn sync_directory(&self) -> io::Result<()> {
        self.0.sync_directory()
    }
    fn location(&self) -> String {
        self.0.location()
    }
}

impl JournalFile for HangingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        let wait = |permitted: &mut bool| !*permitted;
        drop(self.1.1.wait_while(self.1.0.lock().unwrap(), wait).unwrap());
        self.0.sync_data()
    }
    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_length(length)
    }
    fn byte_length(&self) -> io::Result<u64> {
        self.0.byte_length()
    }
}

#[test]
fn writes_go_on_while_the_disk_hangs() {
    let permission = Arc::new((Mutex::new(false), Condvar::new()));
    let disk = HangingDisk(ModelDisk::default(), permission.clone());
    let config = JournalConfig {
        sync_interval: Duration::from_nanos(1),
        ..small_config()
    };
    let (thread, shared) = start(disk.clone(), config);
    let waker = thread.waker();
    for token in 1..=100 {
        shared.append();
        waker.wake();
        shared.wait_for(token);
    }
    assert_eq!(disk.0.calls().1, 0, "no sync has ended");
    *permission.0.lock().unwrap() = true;
    permission.1.notify_all();
    thread.stop();
    assert!(disk.0.calls().1 > 0);
}
