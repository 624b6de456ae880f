//! A journal that ends anywhere is a prefix, and later appends are found.
//!
//! Promise (Journal): a journal that is cut at any byte is read up to its last complete frame, and appends after a
//! torn tail are found.

use crate::driver::{Crash, Driver, small_config};
use crate::model_disk::ModelDisk;
use crate::truth::{Truth, assert_is_prefix};
use journal::{Integrity, JournalConfig, Record, Recovered, Tokens, open_journal, read_journal};
use std::collections::BTreeMap;
use std::time::Duration;

/// The bytes of a journal after a commit, and what was committed.
struct CommitMark {
    bytes: u64,
    truths: BTreeMap<u128, Truth>,
}

/// A journal of two segments, with its commits.
fn small_journal() -> (Driver, Vec<CommitMark>) {
    let mut driver = Driver::new(small_config(), 7);
    driver.tokens_max = 40;
    let mut marks = Vec::new();
    while driver.disk.segments().len() < 2 || driver.disk.segment_bytes() < 17_500 {
        driver.step();
        driver.commit();
        let (bytes, truths) = (driver.disk.segment_bytes(), driver.truths.clone());
        marks.push(CommitMark { bytes, truths });
    }
    (driver, marks)
}

/// The journal with only its first `bytes`, over all segments.
fn cut_disk(disk: &ModelDisk, bytes: usize) -> ModelDisk {
    let cut = disk.fork();
    let mut left = bytes;
    for name in disk.segments() {
        let all = disk.read(&name);
        let kept = left.min(all.len());
        left -= kept;
        if kept == 0 {
            cut.remove(&name);
        } else {
            cut.put(&name, &all[..kept]);
        }
    }
    cut
}

fn read(disk: &ModelDisk) -> Recovered {
    read_journal(disk, 1 << 30).unwrap()
}

fn assert_matches(recovered: &Recovered, truths: &BTreeMap<u128, Truth>, place: usize) {
    let live = truths.iter().filter(|(_, truth)| !truth.is_forgotten);
    assert_eq!(recovered.streams.len(), live.count(), "cut at {place}");
    for stream in &recovered.streams {
        assert_eq!(stream.integrity, Integrity::Intact, "cut at {place}");
        let truth = &truths[&stream.id];
        assert_is_prefix(stream, truth);
        for (number, ids) in truth.choices.iter().enumerate() {
            let found = stream
                .choices
                .get(number)
                .map_or(0, |choice| choice.ids.len());
            assert_eq!(found, ids.len(), "cut at {place}");
        }
    }
}

#[test]
fn journal_cut_at_any_byte_is_what_the_last_complete_frame_left() {
    let (driver, marks) = small_journal();
    let bytes = driver.disk.segment_bytes() as usize;
    let empty = BTreeMap::new();
    for place in 0..bytes {
        let recovered = read(&cut_disk(&driver.disk, place));
        let last = marks.iter().rfind(|mark| mark.bytes as usize <= place);
        assert_matches(&recovered, last.map_or(&empty, |mark| &mark.truths), place);
    }
}

/// The copies have several frames each: without the end of its original, a copy is not used.
#[test]
fn journal_cut_within_a_copy_has_the_original() {
    let config = JournalConfig {
        batch_bytes: 64,
        ..small_config()
    };
    let mut driver = Driver::new(config, 9);
    driver.syncs = false;
    let ids: Vec<u128> = (0..5).map(|_| driver.open()).collect();
    for id in &ids {
        driver.tokens(*id, 0, 60);
        driver.steer(*id);
        driver.end(*id, 0);
    }
    // Short streams fill a segment, so that the five are rewritten.
    for _ in 0..60 {
        let id = driver.open();
        driver.tokens(id, 1, 100);
        driver.forget(id);
        driver.commit();
    }
    let before = driver.disk.segment_bytes() as usize;
    driver.rewrite(10);
    assert_eq!(driver.writer.counts().rewritten_streams, 5);
    let after = driver.disk.segment_bytes() as usize;
    for place in before..=after {
        let recovered = read(&cut_disk(&driver.disk, place));
        assert_matches(&recovered, &driver.truths, place);
        for stream in &recovered.streams {
            let truth = &driver.truths[&stream.id];
            assert_eq!(
                stream.choices[0].end.map(|end| end.0),
                truth.ends[0],
                "cut at {place}"
            );
            assert_eq!(stream.sampling, truth.sampling, "cut at {place}");
        }
    }
}

#[test]
fn appends_after_a_torn_tail_are_found() {
    let (driver, _) = small_journal();
    let bytes = driver.disk.segment_bytes() as usize;
    for place in (0..bytes).step_by(13) {
        let disk = cut_disk(&driver.disk, place);
        let before = read(&disk);
        let (mut writer, recovered) = open_journal(disk.clone(), small_config()).unwrap();
        assert_eq!(recovered.streams.len(), before.streams.len());
        let added = writer.open_stream(1 << 100, b"new").unwrap();
        let tokens = Tokens {
            ids: &[1, 2, 3],
            ..Tokens::default()
        };
        writer.append(added, &Record::Tokens(tokens)).unwrap();
        let mut continued = None;
        if let Some(stream) = recovered.streams.first() {
            let first = stream.choices.first().map_or(0, |choice| choice.ids.len());
            let tokens = Tokens {
                first: first as u32,
                ids: &[9],
                ..Tokens::default()
            };
            writer.append(stream.key, &Record::Tokens(tokens)).unwrap();
            continued = Some((stream.id, first + 1));
        }
        writer.commit(Duration::ZERO);
        let after = read(&disk.after_kill());
        assert_eq!(
            after.streams.len(),
            before.streams.len() + 1,
            "cut at {place}"
        );
        assert_eq!(after.report.damages, 0, "cut at {place}");
        let find = |id: u128| after.streams.iter().find(|stream| stream.id == id).unwrap();
        assert_eq!(find(1 << 100).choices[0].ids, [1, 2, 3]);
        if let Some((id, length)) = continued {
            assert_eq!(find(id).choices[0].ids.len(), length);
            assert_eq!(find(id).integrity, Integrity::Intact);
        }
    }
}

#[test]
fn twenty_restarts_in_a_row_lose_nothing() {
    let mut driver = Driver::new(small_config(), 3);
    let id = driver.open();
    for restart in 0..20 {
        driver.tokens(id, 0, 5);
        driver.commit();
        driver.restart(Crash::Kill);
        assert_eq!(driver.truths[&id].choices[0].len(), 5 * (restart + 1));
    }
}

#[test]
fn files_that_are_no_segments_are_left_alone() {
    let disk = ModelDisk::default();
    disk.put("notes.txt", b"not ours");
    let (writer, _) = open_journal(disk.clone(), small_config()).unwrap();
    drop(writer);
    assert_eq!(disk.read("notes.txt"), b"not ours");
}
