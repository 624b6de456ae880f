//! Packed files of any content: no panic, and no allocation that the file's length does not bound.

use crate::packed_file::{KEY, packed};
use crate::support::bytes;
use proptest::prelude::*;
use std::sync::OnceLock;
use testing::heap::{take_thread_peak, thread_held};
use weights::gguf::Gguf;
use weights::packed_file::{HEADER_BYTES, PackedFile, PackedReading};

/// Bytes of the header's fields, whose last four are their checksum.
const FIELDS: usize = 80;

fn whole() -> &'static [u8] {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    FILE.get_or_init(|| {
        let gguf = Gguf::from_bytes(bytes("x preset=tiny-llama mix=Q8_0")).unwrap();
        packed(gguf.into())
    })
}

/// The place of the table.
fn table_at(file: &[u8]) -> usize {
    u64::from_le_bytes(file[56..64].try_into().unwrap()) as usize
}

/// Makes both checksums fit, and the lengths, so that what is behind them is read.
fn seal(file: &mut [u8]) {
    let at = table_at(file).clamp(HEADER_BYTES, file.len());
    let (length, table) = (file.len() as u64, (file.len() - at) as u64);
    file[48..56].copy_from_slice(&length.to_le_bytes());
    file[56..64].copy_from_slice(&(at as u64).to_le_bytes());
    file[64..72].copy_from_slice(&table.to_le_bytes());
    let sum = crc32fast::hash(&file[at..]);
    file[72..76].copy_from_slice(&sum.to_le_bytes());
    let sum = crc32fast::hash(&file[..FIELDS - 4]);
    file[FIELDS - 4..FIELDS].copy_from_slice(&sum.to_le_bytes());
}

/// Opens a file, and returns the most bytes that were allocated meanwhile beside the file itself.
fn open(file: Vec<u8>) -> (bool, i64) {
    take_thread_peak();
    let before = thread_held();
    let opened = PackedFile::from_source(file, &KEY, PackedReading::Copy);
    let peak = take_thread_peak() - before;
    (opened.is_ok(), peak)
}

#[track_caller]
fn check(file: Vec<u8>) {
    // An entry of 50 bytes takes less than four times that, and sorting as much again.
    let most = 64 * 1024 + 8 * (file.len() as i64);
    let (_, peak) = open(file);
    assert!(peak <= most, "{peak} bytes, at most {most}");
}

#[test]
fn sealed_file_opens() {
    let mut file = whole().to_vec();
    seal(&mut file);
    assert!(file == whole());
    assert!(open(file).0);
}

#[test]
fn number_of_sections_is_compared_with_the_table() {
    for count in [0_u32, 1, 1 << 18, (1 << 18) + 1, u32::MAX] {
        let mut file = whole().to_vec();
        file[12..16].copy_from_slice(&count.to_le_bytes());
        seal(&mut file);
        let (is_open, peak) = open(file);
        assert!(!is_open, "{count}");
        assert!(peak < 1 << 20, "{count}: {peak}");
    }
}

#[test]
fn each_byte_of_the_table_may_be_any() {
    let at = table_at(whole());
    for byte in at..whole().len() {
        for value in [0, 0xFF] {
            let mut file = whole().to_vec();
            file[byte] = value;
            seal(&mut file);
            check(file);
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_do_not_open(bytes in proptest::collection::vec(any::<u8>(), 0..9000)) {
        let (is_open, peak) = open(bytes);
        prop_assert!(!is_open);
        prop_assert!(peak < 1 << 16);
    }

    #[test]
    fn changed_files_open_or_are_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
        is_sealed in any::<bool>(),
    ) {
        let mut file = whole().to_vec();
        // Header fields and table only: the sections are data.
        let places: Vec<usize> = (8..FIELDS).chain(table_at(&file)..file.len()).collect();
        for (place, value) in changes {
            file[*place.get(&places)] = value;
        }
        if is_cut {
            let length = HEADER_BYTES + cut.index(file.len() - HEADER_BYTES);
            file.truncate(length);
        }
        if is_sealed {
            seal(&mut file);
        }
        check(file);
    }

    #[test]
    fn any_table_with_a_right_checksum_is_checked(table in proptest::collection::vec(any::<u8>(), 0..600), count in 0_u32..20) {
        let mut file = whole()[..HEADER_BYTES + 4096].to_vec();
        let at = file.len() as u64;
        file[12..16].copy_from_slice(&count.to_le_bytes());
        file[56..64].copy_from_slice(&at.to_le_bytes());
        file.extend(table);
        seal(&mut file);
        check(file);
    }
}
