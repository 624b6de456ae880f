//! A flipped bit anywhere gives a prefix, a lost stream, or a stream in doubt; never other text.
//!
//! Promise (Journal): any flipped bit, lost page or repeated part gives a prefix, a lost stream or one in doubt,
//! never different tokens, log-probabilities or parameters; a lost stream is reported as lost, whatever end is
//! recorded.
//! Also held by `journal/tests/it/random_operations.rs`, `journal/tests/it/any_bytes.rs`,
//! `server/tests/it/restarts/endings.rs :: recorded_end_of_a_lost_stream_is_not_told`, `fuzz/`.

use crate::driver::{Driver, small_config};
use crate::model_disk::ModelDisk;
use crate::truth::assert_is_prefix;
use journal::{Integrity, Recovered, open_journal, read_journal};

/// A journal of about `bytes` bytes. `syncs` after every commit, or never.
fn journal(bytes: u64, syncs: bool) -> Driver {
    let mut driver = Driver::new(small_config(), 11);
    driver.syncs = syncs;
    while driver.disk.segment_bytes() < bytes {
        driver.step();
        driver.commit();
        if syncs {
            driver.sync();
        }
    }
    driver
}

fn flip_bit(disk: &ModelDisk, name: &str, byte: usize, bit: usize) -> ModelDisk {
    let flipped = disk.fork();
    let mut bytes = disk.read(name);
    bytes[byte] ^= 1 << bit;
    flipped.put(name, &bytes);
    flipped
}

fn assert_is_honest(driver: &Driver, recovered: &Recovered, is_synced: bool, place: usize) {
    for stream in &recovered.streams {
        let truth = &driver.truths[&stream.id];
        assert_is_prefix(stream, truth);
        let is_whole = truth.choices.iter().enumerate().all(|(number, ids)| {
            let found = stream
                .choices
                .get(number)
                .map_or(0, |choice| choice.ids.len());
            found == ids.len()
        });
        let is_last = recovered.report.cut_bytes > 0;
        if is_synced && !is_last && stream.integrity == Integrity::Intact {
            assert!(
                is_whole,
                "byte {place}: stream {} is short and intact",
                stream.id
            );
        }
    }
    if !is_synced {
        let lost = recovered
            .streams
            .iter()
            .find(|stream| !stream.integrity.is_intact());
        assert!(
            lost.is_none(),
            "byte {place}: an unsynced tail is cut, not damaged"
        );
    }
}

fn check_every_byte(bytes: u64, syncs: bool, bits: &[usize]) {
    let driver = journal(bytes, syncs);
    for name in driver.disk.segments() {
        for byte in 0..driver.disk.read(&name).len() {
            for bit in bits {
                let disk = flip_bit(&driver.disk, &name, byte, (byte + bit) % 8);
                // A flipped bit of a version leaves the header's checksum wrong, so no segment looks newer.
                let recovered = read_journal(&disk, 1 << 30).unwrap();
                assert_is_honest(&driver, &recovered, syncs, byte);
            }
        }
    }
}

#[test]
fn any_bit_of_a_small_synced_journal() {
    check_every_byte(1500, true, &[0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_bit_of_each_byte_of_a_synced_journal() {
    check_every_byte(12_000, true, &[0]);
}

#[test]
fn a_bit_of_each_byte_of_an_unsynced_journal() {
    check_every_byte(12_000, false, &[3]);
}

#[test]
fn streams_after_damage_are_found() {
    let driver = journal(12_000, true);
    let name = driver.disk.segments().remove(0);
    let damaged = flip_bit(&driver.disk, &name, 1000, 0);
    let (_, recovered) = open_journal(damaged.clone(), small_config()).unwrap();
    assert_eq!(recovered.report.damages, 1);
    let before = read_journal(&driver.disk, 1 << 30).unwrap();
    let intact = recovered
        .streams
        .iter()
        .filter(|stream| stream.integrity.is_intact());
    assert!(
        intact.count() * 2 > before.streams.len(),
        "one frame takes few streams"
    );
    // Damage stays visible after a restart.
    let (_, again) = open_journal(damaged.after_kill(), small_config()).unwrap();
    assert_eq!(again.report.damages, 1);
}

#[test]
fn first_segment_that_is_gone_is_no_intact_journal() {
    let mut driver = Driver::new(small_config(), 5);
    let long = driver.open();
    while driver.disk.segments().len() < 2 {
        driver.tokens(long, 0, 200);
        driver.commit();
    }
    driver.tokens(long, 0, 1);
    driver.commit();
    assert_eq!(
        read_journal(&driver.disk, 1 << 30)
            .unwrap()
            .report
            .lost_beginnings,
        0
    );
    let name = driver.disk.segments().remove(0);
    for other in [None, Some(&b""[..]), Some(b"other bytes")] {
        let disk = driver.disk.fork();
        disk.remove(&name);
        if let Some(bytes) = other {
            disk.put(&name, bytes);
        }
        let found = read_journal(&disk, 1 << 30).unwrap();
        assert_eq!(
            (found.streams.len(), found.report.lost_beginnings),
            (0, 1),
            "{other:?}"
        );
    }
}

#[test]
fn zeroed_and_repeated_and_swapped_parts_give_no_other_text() {
    let driver = journal(6000, true);
    let name = driver.disk.segments().remove(0);
    let bytes = driver.disk.read(&name);
    for start in (0..bytes.len() - 600).step_by(37) {
        for length in [1, 64, 512] {
            let mut variants = [bytes.clone(), bytes.clone(), bytes.clone()];
            variants[0][start..start + length].fill(0);
            variants[1].copy_within(start..start + length, bytes.len() - length);
            variants[2].splice(start..start, bytes[start..start + length].iter().copied());
            for variant in variants {
                let disk = driver.disk.fork();
                disk.put(&name, &variant);
                let recovered = read_journal(&disk, 1 << 30).unwrap();
                for stream in &recovered.streams {
                    assert_is_prefix(stream, &driver.truths[&stream.id]);
                }
            }
        }
    }
}
