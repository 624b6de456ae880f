//! Any bytes as a segment, and any records in frames with right checksums: read within the memory's bound, and a
//! stream that is appended afterwards is found. The fuzz target `journal_recover` runs [`check_bytes`], too.

use crate::model_disk::ModelDisk;
use journal::{JournalConfig, Recovered, open_journal, read_journal};
use std::time::Duration;

const MEMORY_MAX: usize = 1 << 20;

/// A segment of boot 1 with these frames, as an independent implementation of the layout.
pub(crate) fn segment_of(number: u64, version: u32, frames: &[&[u8]]) -> Vec<u8> {
    let mut segment = b"\xFFMRJSEG\xFE".to_vec();
    segment.extend(version.to_le_bytes());
    segment.extend(number.to_le_bytes());
    segment.extend(crc32fast::hash(&segment).to_le_bytes());
    for (frame, records) in (number..).zip(frames) {
        let mut covered = (records.len() as u32).to_le_bytes().to_vec();
        covered.extend(frame.to_le_bytes());
        covered.extend(1u64.to_le_bytes());
        covered.extend(number.to_le_bytes());
        covered.extend(*records);
        segment.extend(b"\xFFMR\xFE");
        segment.extend(&covered[..4]);
        segment.extend(crc32fast::hash(&covered).to_le_bytes());
        segment.extend(&covered[4..]);
    }
    segment
}

/// Puts the segment on the disk.
pub(crate) fn put_segment(disk: &ModelDisk, number: u64, segment: &[u8]) {
    disk.put(&format!("{:016x}-{number:08}.log", 1), segment);
}

/// The first byte selects: the rest is a file, or is divided into frames at its bytes 0xfe.
pub(crate) fn check_bytes(bytes: &[u8]) {
    let Some((selector, rest)) = bytes.split_first() else {
        return;
    };
    if selector % 2 == 0 {
        check_segment(rest);
    } else {
        let frames: Vec<&[u8]> = rest.split(|byte| *byte == 0xfe).collect();
        check_segment(&segment_of(1, 1, &frames));
    }
}

fn check_segment(segment: &[u8]) {
    let disk = ModelDisk::default();
    put_segment(&disk, 1, segment);
    let Ok(first) = read_journal(&disk, MEMORY_MAX) else {
        return; // A newer version.
    };
    assert!(memory_of(&first) <= MEMORY_MAX);
    let config = JournalConfig {
        reserve_bytes: 100,
        ..JournalConfig::default()
    };
    let Ok((mut writer, opened)) = open_journal(disk.clone(), config) else {
        return;
    };
    assert_eq!(tokens_of(&opened), tokens_of(&first));
    let added = writer.open_stream(u128::MAX, b"added");
    assert!(added.is_ok());
    writer.commit(Duration::ZERO);
    let again = read_journal(&disk.after_kill(), MEMORY_MAX).unwrap_or_default();
    let is_found = again
        .streams
        .iter()
        .any(|stream| stream.description == b"added");
    assert!(is_found || again.report.dropped_streams > 0);
}

fn memory_of(recovered: &Recovered) -> usize {
    let choices = recovered.streams.iter().flat_map(|stream| &stream.choices);
    let bytes = |choice: &journal::RecoveredChoice| {
        4 * choice.ids.capacity()
            + 4 * choice.logprobs.capacity()
            + 8 * choice.alternatives.capacity()
    };
    choices.map(bytes).sum()
}

fn tokens_of(recovered: &Recovered) -> Vec<(u128, Vec<Vec<u32>>)> {
    let ids = |stream: &journal::RecoveredStream| {
        stream
            .choices
            .iter()
            .map(|choice| choice.ids.clone())
            .collect()
    };
    recovered
        .streams
        .iter()
        .map(|stream| (stream.id, ids(stream)))
        .collect()
}
