//! A journal's caller with a plain copy of everything that was appended, and the comparison after a restart.

use crate::model_disk::ModelDisk;
use crate::truth::{Truth, append_tokens, assert_equals, assert_is_prefix};
use journal::{
    Integrity, JournalConfig, Record, Recovered, RecoveredStream, StreamKey, SyncDone, Writer,
    open_journal,
};
use std::collections::BTreeMap;
use std::time::Duration;
use testing::random::Random;

/// What the last comparison found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub(crate) intact: usize,
    pub(crate) lost: usize,
    pub(crate) absent: usize,
}

/// Tokens of each choice of each stream when a sync began.
type CommittedLengths = BTreeMap<u128, Vec<usize>>;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    Kill,
    PowerLoss,
}

pub(crate) struct Driver {
    pub(crate) disk: ModelDisk,
    pub(crate) config: JournalConfig,
    pub(crate) writer: Writer<ModelDisk>,
    pub(crate) truths: BTreeMap<u128, Truth>,
    pub(crate) keys: BTreeMap<u128, StreamKey>,
    pub(crate) random: Random,
    pub(crate) now: Duration,
    pub(crate) has_faults: bool,
    /// After a power loss a segment may be gone, and the record that its streams were forgotten, too; so may be a stored response
    /// that was given up for space.
    has_lost_power: bool,
    pub(crate) tokens_max: u64,
    pub(crate) syncs: bool,
    next_id: u128,
    running: Option<(SyncDone<ModelDisk>, CommittedLengths)>,
}

pub(crate) fn small_config() -> JournalConfig {
    JournalConfig {
        segment_bytes: 16 << 10,
        bytes_max: 1 << 20,
        reserve_bytes: 4 << 10,
        ..JournalConfig::default()
    }
}

/// The description of a stream: long enough to be cut in the middle.
pub(crate) fn description(id: u128) -> Vec<u8> {
    format!(
        "{{\"id\":{id},\"prompt\":\"{}\"}}",
        "x".repeat((id % 40) as usize)
    )
    .into_bytes()
}

impl Driver {
    pub(crate) fn new(config: JournalConfig, seed: u64) -> Self {
        let disk = ModelDisk::default();
        let (writer, recovered) = open_journal(disk.clone(), config.clone()).unwrap();
        assert!(recovered.streams.is_empty());
        Self {
            disk,
            config,
            writer,
            truths: BTreeMap::new(),
            keys: BTreeMap::new(),
            random: Random(seed),
            now: Duration::ZERO,
            has_faults: false,
            has_lost_power: false,
            tokens_max: 6,
            syncs: true,
            next_id: 1,
            running: None,
        }
    }

    pub(crate) fn open(&mut self) -> u128 {
        let id = self.next_id;
        self.next_id += 1;
        let key = self.writer.open_stream(id, &description(id)).unwrap();
        self.keys.insert(id, key);
        let truth = Truth {
            with_logprobs: id.is_multiple_of(3),
            ..Truth::default()
        };
        self.truths.insert(id, truth);
        if id % 16 == 5 {
            self.prepare(id);
        }
        id
    }

    fn prepare(&mut self, id: u128) {
        let body = id.to_string().into_bytes();
        self.append(id, &Record::Prepared { body: &body });
        self.truths.get_mut(&id).unwrap().prepared = Some(body);
    }

    pub(crate) fn append(&mut self, id: u128, record: &Record<'_>) {
        self.writer.append(self.keys[&id], record).unwrap();
    }

    pub(crate) fn tokens(&mut self, id: u128, choice: usize, count: u64) {
        let Some(truth) = self.truths.get_mut(&id) else {
            return;
        };
        truth.add_choice(choice);
        let ids: Vec<u32> = (0..count)
            .map(|_| self.random.below(151_936) as u32)
            .collect();
        let first = truth.choices[choice].len();
        truth.choices[choice].extend(&ids);
        append_tokens(truth, choice, first, |tokens| {
            self.writer
                .append(self.keys[&id], &Record::Tokens(tokens))
                .unwrap();
        });
    }

    pub(crate) fn steer(&mut self, id: u128) {
        let sampling = format!("temperature {}", self.random.below(100)).into_bytes();
        self.append(
            id,
            &Record::Steered {
                sampling: &sampling,
            },
        );
        let truth = self.truths.get_mut(&id).unwrap();
        truth.sampling = Some(sampling.clone());
        truth.sampling_history.push(sampling);
    }

    pub(crate) fn pause(&mut self, id: u128) {
        let truth = self.truths.get_mut(&id).unwrap();
        truth.is_paused = !truth.is_paused;
        let on = truth.is_paused;
        self.append(id, &Record::Paused { on });
    }

    pub(crate) fn end(&mut self, id: u128, choice: usize) {
        let end = self.random.below(9) as u32;
        let truth = self.truths.get_mut(&id).unwrap();
        truth.add_choice(choice);
        truth.ends[choice] = Some(end);
        let (choice, at_unix_us) = (choice as u32, 7);
        self.append(
            id,
            &Record::Ended {
                choice,
                end,
                at_unix_us,
            },
        );
    }

    pub(crate) fn keep(&mut self, id: u128, bytes: usize) {
        let outcome = vec![b'o'; bytes];
        self.append(id, &Record::Kept { outcome: &outcome });
        self.truths.get_mut(&id).unwrap().outcome = Some(outcome);
    }

    pub(crate) fn forget(&mut self, id: u128) {
        let key = self.keys.remove(&id).unwrap();
        self.writer.forget_stream(key, 1).unwrap();
        self.truths.get_mut(&id).unwrap().is_forgotten = true;
    }

    pub(crate) fn commit(&mut self) {
        self.now += Duration::from_millis(10);
        self.writer.commit(self.now);
        for truth in self.truths.values_mut() {
            truth.committed = truth.lengths();
        }
        self.note_released();
    }

    /// Stored responses may be given up whenever something is written.
    fn note_released(&mut self) {
        for key in self.writer.take_released() {
            let found = self
                .keys
                .iter()
                .find(|(_, k)| **k == key)
                .map(|(id, _)| *id);
            let id = found.unwrap();
            self.keys.remove(&id);
            self.truths.get_mut(&id).unwrap().is_forgotten = true;
        }
    }

    /// Begins a sync; the disk has the bytes, the writer does not know yet.
    pub(crate) fn begin_sync(&mut self) {
        if self.running.is_some() || !self.syncs {
            return;
        }
        if let Some(job) = self.writer.take_sync_job(self.now) {
            let is_committed = |truth: &Truth| !truth.committed.is_empty();
            let durable = self.truths.iter().filter(|(id, _)| self.is_durable(**id));
            let durable = durable.filter(|(_, truth)| is_committed(truth));
            let lengths = durable
                .map(|(id, truth)| (*id, truth.committed.clone()))
                .collect();
            self.running = Some((job.run(), lengths));
        }
    }

    pub(crate) fn finish_sync(&mut self) {
        if let Some((done, lengths)) = self.running.take() {
            let syncs = self.writer.counts().syncs;
            self.writer.finish_sync(done, self.now);
            self.disk.note_failed_syncs();
            if self.writer.counts().syncs > syncs {
                for (id, lengths) in lengths {
                    let truth = self.truths.get_mut(&id).unwrap();
                    truth.synced = lengths;
                    truth.is_synced = true;
                }
            }
        }
    }

    pub(crate) fn sync(&mut self) {
        self.finish_sync();
        self.now += self.config.sync_interval;
        self.begin_sync();
        self.finish_sync();
    }

    fn is_durable(&self, id: u128) -> bool {
        self.keys
            .get(&id)
            .is_some_and(|key| self.writer.is_durable(*key))
    }

    /// Rewrites up to `streams` streams.
    pub(crate) fn rewrite(&mut self, streams: usize) {
        for _ in 0..streams {
            let Some(key) = self.writer.next_rewrite() else {
                return;
            };
            let found = self
                .keys
                .iter()
                .find(|(_, k)| **k == key)
                .map(|(id, _)| *id);
            let id = found.unwrap();
            let truth = &self.truths[&id];
            self.writer
                .rewrite_stream(key, &description(id), |copy| {
                    truth.replay(|record| copy.append(record).unwrap());
                })
                .unwrap();
        }
    }

    /// One random operation.
    pub(crate) fn step(&mut self) {
        self.note_released();
        let live: Vec<u128> = self.keys.keys().copied().collect();
        let choice = self.random.below(3) as usize;
        if live.is_empty() {
            self.open();
            return;
        }
        let id = live[self.random.below(live.len() as u64) as usize];
        match self.random.below(100) {
            0..5 => _ = self.open(),
            5..55 => {
                let count = 1 + self.random.below(self.tokens_max);
                self.tokens(id, choice, count);
            }
            55..58 => self.steer(id),
            58..61 => self.pause(id),
            61..64 => self.end(id, choice),
            64..65 => self.keep(id, 100),
            65..68 => self.forget(id),
            68..88 => self.commit(),
            88..92 => self.begin_sync(),
            92..97 => self.finish_sync(),
            _ => self.rewrite(3),
        }
    }

    /// Ends the process and starts the next one on what the disk has; compares, and goes on from what was recovered.
    pub(crate) fn restart(&mut self, crash: Crash) -> Found {
        let is_exact = crash == Crash::Kill && self.random.chance(70);
        if is_exact {
            self.commit();
        }
        let durable: Vec<u128> = self
            .keys
            .keys()
            .copied()
            .filter(|id| self.is_durable(*id))
            .collect();
        self.running = None;
        self.has_lost_power |= crash == Crash::PowerLoss;
        self.disk = match crash {
            Crash::Kill => self.disk.after_kill(),
            Crash::PowerLoss => self.disk.after_power_loss(&mut self.random),
        };
        let (writer, recovered) = open_journal(self.disk.clone(), self.config.clone()).unwrap();
        self.writer = writer;
        let found = self.compare(&recovered, is_exact, &durable);
        self.go_on(recovered);
        found
    }

    /// Each recovered stream is a prefix of the truth; after a kill, of all that was committed.
    fn compare(&self, recovered: &Recovered, is_exact: bool, durable: &[u128]) -> Found {
        let mut found = Found::default();
        if !self.has_faults && !self.has_lost_power && self.config.bytes_max > 1 << 20 {
            assert_eq!(recovered.report.lost_beginnings, 0);
        }
        for stream in &recovered.streams {
            let truth = &self.truths[&stream.id];
            assert_eq!(stream.description, description(stream.id));
            assert_is_prefix(stream, truth);
            if stream.integrity.is_intact() {
                found.intact += 1;
            } else {
                found.lost += 1;
            }
            if !self.has_faults {
                let (id, integrity) = (stream.id, stream.integrity);
                assert_eq!(integrity, Integrity::Intact, "{id}");
            }
        }
        let by_id: BTreeMap<u128, &RecoveredStream> = recovered
            .streams
            .iter()
            .map(|stream| (stream.id, stream))
            .collect();
        assert_eq!(
            by_id.len(),
            recovered.streams.len(),
            "a stream was recovered twice"
        );
        for (id, truth) in &self.truths {
            let stream = by_id.get(id);
            found.absent += usize::from(stream.is_none() && !truth.is_forgotten);
            if is_exact && durable.contains(id) {
                let stream = stream.unwrap_or_else(|| panic!("stream {id} is missing"));
                assert_equals(stream, truth);
            }
            if truth.is_forgotten && is_exact && !self.has_faults {
                assert!(stream.is_none(), "stream {id} was forgotten");
            }
            if truth.is_synced && !truth.is_forgotten && !self.has_faults {
                let stream = stream.unwrap_or_else(|| panic!("synced stream {id} is missing"));
                for (choice, length) in truth.synced.iter().enumerate() {
                    let found = stream.choices.get(choice).map_or(0, |c| c.ids.len());
                    assert!(
                        found >= *length,
                        "{id}: {found} tokens, {length} were synced"
                    );
                }
            }
        }
        found
    }

    fn go_on(&mut self, recovered: Recovered) {
        self.keys.clear();
        // A later power loss may bring a stream back that a broken disk has lost for now.
        for truth in self.truths.values_mut() {
            truth.is_forgotten = true;
        }
        for stream in recovered.streams {
            if stream.integrity.is_intact() {
                self.keys.insert(stream.id, stream.key);
                let mut truth = Truth::from_recovered(&stream);
                truth.sampling_history = self.truths[&stream.id].sampling_history.clone();
                self.truths.insert(stream.id, truth);
            } else {
                self.writer.forget_stream(stream.key, 2).unwrap();
            }
        }
    }
}
