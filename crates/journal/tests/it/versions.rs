//! Journals of newer versions: unknown kinds are skipped, unknown descriptions are kept unread, unknown layouts are
//! rejected.
//!
//! Promise (Journal): unknown kinds are skipped, streams of a newer version keep their bytes, a newer layout is an
//! error before anything is changed.

use crate::arbitrary_segments::{put_segment, segment_of};
use crate::driver::small_config;
use crate::model_disk::ModelDisk;
use journal::{
    Open, Record, RecordAddress, StartError, Tokens, encode_record, open_journal, read_journal,
};
use std::time::Duration;

/// Writes a segment with one frame of these records.
fn put_records(disk: &ModelDisk, number: u64, version: u32, records: &[(u64, Record<'_>)]) {
    let mut body = Vec::new();
    for (sequence, record) in records {
        let address = RecordAddress {
            handle: 1,
            sequence: *sequence,
        };
        encode_record(&mut body, address, record).unwrap();
    }
    put_segment(disk, number, &segment_of(number, version, &[&body]));
}

fn tokens(first: u32, ids: &[u32]) -> Record<'_> {
    Record::Tokens(Tokens {
        first,
        ids,
        ..Tokens::default()
    })
}

#[test]
fn unknown_kind_is_skipped() {
    let disk = ModelDisk::default();
    let records = [
        (0, Record::Open(Open::new(5, b"five"))),
        (1, tokens(0, &[1])),
        (
            2,
            Record::Unknown {
                kind: 99,
                body: b"later",
            },
        ),
        (3, tokens(1, &[2])),
    ];
    put_records(&disk, 1, 1, &records);
    let found = read_journal(&disk, 1 << 20).unwrap();
    assert_eq!(found.streams[0].choices[0].ids, [1, 2]);
    assert!(found.streams[0].integrity.is_intact());
    assert_eq!(found.report.unknown_records, 1);
}

#[test]
fn stream_of_a_newer_version_is_refused_and_its_bytes_survive_rewriting() {
    let disk = ModelDisk::default();
    let body = b"a description that only the newer version reads";
    let open = Open {
        version: 2,
        ..Open::new(5, body)
    };
    let records = [
        (0, Record::Open(open)),
        (1, tokens(0, &[1, 2, 3])),
        (
            2,
            Record::Unknown {
                kind: 99,
                body: b"x",
            },
        ),
    ];
    put_records(&disk, 1, 1, &records);
    let (mut writer, found) = open_journal(disk.clone(), small_config()).unwrap();
    assert!(found.streams.is_empty());
    assert_eq!((found.refused[0].id, found.refused[0].version), (5, 2));
    // Other streams come and go until the segments of the refused one were replaced.
    let mut now = Duration::ZERO;
    for _ in 0..1000 {
        if writer.counts().rewritten_streams == 3 {
            break;
        }
        let key = writer.open_stream(6, &[b'x'; 5000]).unwrap();
        writer.forget_stream(key, 1).unwrap();
        now += Duration::from_millis(200);
        writer.commit(now);
        assert_eq!(
            writer.next_rewrite(),
            None,
            "the writer rewrites the stream itself"
        );
        if let Some(job) = writer.take_sync_job(now) {
            writer.finish_sync(job.run(), now);
        }
    }
    let segments = disk.segments();
    assert!(
        !segments.contains(&format!("{:016x}-{:08}.log", 1, 1)),
        "{segments:?}"
    );
    let all: Vec<u8> = segments.iter().flat_map(|name| disk.read(name)).collect();
    assert!(all.windows(body.len()).any(|window| window == body));
    let again = read_journal(&disk.after_kill(), 1 << 20).unwrap();
    assert_eq!((again.refused[0].id, again.refused[0].version), (5, 2));
    writer.forget_stream(found.refused[0].key, 1).unwrap();
    writer.commit(now);
    assert!(
        read_journal(&disk.after_kill(), 1 << 20)
            .unwrap()
            .refused
            .is_empty()
    );
}

#[test]
fn newer_layout_is_rejected_in_one_line_and_left_alone() {
    let disk = ModelDisk::default();
    put_records(&disk, 1, 2, &[(0, Record::Open(Open::new(5, b"five")))]);
    let before = disk.read(&disk.segments()[0]);
    let error = open_journal(disk.clone(), small_config()).unwrap_err();
    assert!(matches!(error, StartError::NewerVersion { version: 2, .. }));
    let line = error.to_string();
    assert!(
        line.contains("0000000000000001-00000001.log has version 2"),
        "{line}"
    );
    assert_eq!(disk.read(&disk.segments()[0]), before);
}

#[test]
fn memory_of_rebuilt_streams_is_bounded() {
    let disk = ModelDisk::default();
    let ids: Vec<u32> = (0..4000).collect();
    let mut records = vec![(0, Record::Open(Open::new(5, b"five")))];
    for number in 0..100 {
        records.push((u64::from(number) + 1, tokens(number * 4000, &ids)));
    }
    put_records(&disk, 1, 1, &records);
    let whole = read_journal(&disk, 4 << 20).unwrap();
    assert_eq!(whole.streams[0].choices[0].ids.len(), 400_000);
    let bounded = read_journal(&disk, 1 << 20).unwrap();
    let stream = &bounded.streams[0];
    let lost = journal::Integrity::Lost(journal::LossReason::Memory);
    assert_eq!(stream.integrity, lost);
    assert!(stream.choices[0].ids.capacity() * 4 <= 1 << 20);
    let none = read_journal(&disk, 100).unwrap();
    assert_eq!((none.streams.len(), none.report.dropped_streams), (0, 1));
}
