//! Full and broken disks: nothing panics or waits, clients can be informed, and the text stays a prefix.
//!
//! Promise (Journal): a full or broken disk at any write or sync: nothing panics, ends or waits; the state is
//! reported, ends are written to a reserve, and streams are durable again when the disk works.

use crate::driver::{Crash, Driver, small_config};
use crate::model_disk::{Fault, FaultPlan};
use journal::{Durability, Impairment, Integrity, JournalConfig, Record, read_journal};
use std::time::Duration;

/// Operations that are repeated for each fault.
fn run_script(driver: &mut Driver) {
    driver.tokens_max = 60;
    for _ in 0..120 {
        driver.step();
        driver.commit();
    }
    driver.sync();
}

/// Several frames for each commit and for each copy of a stream.
fn frequent_frames() -> JournalConfig {
    JournalConfig {
        batch_bytes: 200,
        ..small_config()
    }
}

fn count_calls() -> (u64, u64) {
    let mut driver = Driver::new(frequent_frames(), 5);
    run_script(&mut driver);
    driver.disk.calls()
}

fn run_with(faults: FaultPlan, crash: Crash) {
    let mut driver = Driver::new(frequent_frames(), 5);
    driver.has_faults = true;
    driver.disk.set_faults(faults);
    run_script(&mut driver);
    driver.restart(crash);
}

#[test]
fn each_failing_write_leaves_prefixes() {
    let (writes, _) = count_calls();
    assert!(writes > 60, "{writes}");
    for call in 1..=writes {
        for fault in [
            Fault::Full,
            Fault::Broken,
            Fault::Late,
            Fault::Interrupted,
            Fault::Short,
        ] {
            for cuts_fail in [false, true] {
                for last in [call, call + 1, u64::MAX] {
                    let writes = Some((call, last, fault));
                    let plan = FaultPlan {
                        writes,
                        cuts_fail,
                        ..FaultPlan::default()
                    };
                    run_with(plan, Crash::Kill);
                }
            }
        }
    }
}

#[test]
fn each_failing_sync_leaves_prefixes() {
    let (_, syncs) = count_calls();
    assert!(syncs > 3);
    for call in 1..=syncs {
        for last in [call, call + 1, u64::MAX] {
            for crash in [Crash::Kill, Crash::PowerLoss] {
                let plan = FaultPlan {
                    syncs: Some((call, last)),
                    ..FaultPlan::default()
                };
                run_with(plan, crash);
            }
        }
    }
}

#[test]
fn each_capacity_leaves_prefixes() {
    for capacity in (4200..30_000).step_by(171) {
        for crash in [Crash::Kill, Crash::PowerLoss] {
            let plan = FaultPlan {
                capacity: Some(capacity),
                ..FaultPlan::default()
            };
            run_with(plan, crash);
        }
    }
}

/// A driver whose disk takes nothing more.
fn full_driver() -> (Driver, u128) {
    let mut driver = Driver::new(small_config(), 1);
    driver.has_faults = true;
    let id = driver.open();
    driver.tokens(id, 0, 10);
    driver.commit();
    driver.disk.set_faults(FaultPlan {
        capacity: Some(0),
        ..FaultPlan::default()
    });
    (driver, id)
}

#[test]
fn full_disk_is_reported_and_commits_are_acknowledged() {
    let (mut driver, id) = full_driver();
    assert!(driver.writer.is_durable(driver.keys[&id]));
    driver.tokens(id, 0, 5);
    driver.commit();
    let full = Durability::NotDurable(Impairment::DiskFull);
    assert_eq!(driver.writer.durability(), full);
    assert!(!driver.writer.is_durable(driver.keys[&id]));
    let commit = driver.writer.commit(driver.now);
    assert_eq!(driver.writer.acknowledged(), commit);
    let found = read_journal(&driver.disk.after_kill(), 1 << 20).unwrap();
    assert!(
        matches!(found.streams[0].integrity, Integrity::Lost(_)),
        "the stream went on unrecorded"
    );
}

#[test]
fn reserve_takes_ends_while_the_disk_is_full() {
    let (mut driver, id) = full_driver();
    let other = driver.open();
    driver.commit();
    driver.end(id, 0);
    driver.commit();
    driver.tokens(other, 0, 3);
    driver.commit();
    let found = read_journal(&driver.disk.after_kill(), 1 << 20).unwrap();
    let stream = &found.streams[0];
    assert_eq!((stream.id, stream.integrity), (id, Integrity::Intact));
    assert_eq!(stream.choices[0].ids.len(), 10);
    assert!(
        stream.choices[0].end.is_some(),
        "the end was written into the reserve"
    );
    assert_eq!(
        found.streams.len(),
        1,
        "the other stream was never on the disk"
    );
}

#[test]
fn streams_are_durable_again_when_the_disk_has_space() {
    let (mut driver, id) = full_driver();
    driver.tokens(id, 0, 5);
    let other = driver.open();
    driver.commit();
    driver.disk.set_faults(FaultPlan::default());
    driver.now += Duration::from_secs(2);
    driver.commit();
    driver.rewrite(10);
    driver.commit();
    assert_eq!(driver.writer.durability(), Durability::Durable);
    for id in [id, other] {
        assert!(driver.writer.is_durable(driver.keys[&id]));
    }
    driver.tokens(id, 0, 5);
    let found = driver.restart(Crash::Kill);
    assert_eq!((found.intact, found.lost, found.absent), (2, 0, 0));
}

#[test]
fn stored_responses_are_released_first() {
    let mut driver = Driver::new(small_config(), 1);
    for _ in 0..12 {
        let id = driver.open();
        driver.keep(id, 2000);
        driver.commit();
    }
    let live = driver.open();
    driver.commit();
    driver.has_faults = true;
    let used = driver.disk.segment_bytes() + driver.config.reserve_bytes;
    driver.disk.set_faults(FaultPlan {
        capacity: Some(used),
        ..FaultPlan::default()
    });
    driver.tokens(live, 0, 5);
    driver.commit();
    assert_eq!(driver.writer.durability(), Durability::Durable);
    assert!(driver.keys.len() < 13 && driver.keys.contains_key(&live));
    assert!(driver.writer.is_durable(driver.keys[&live]));
}

#[test]
fn file_with_a_failed_sync_is_never_written_again() {
    let mut driver = Driver::new(small_config(), 1);
    driver.has_faults = true;
    let id = driver.open();
    driver.tokens(id, 0, 10);
    driver.commit();
    let (_, syncs) = driver.disk.calls();
    driver.disk.set_faults(FaultPlan {
        syncs: Some((syncs + 1, syncs + 1)),
        ..FaultPlan::default()
    });
    let failed = driver.disk.segments();
    driver.sync();
    assert!(matches!(
        driver.writer.durability(),
        Durability::NotDurable(Impairment::SyncFailed(_))
    ));
    let before: Vec<_> = failed.iter().map(|name| driver.disk.read(name)).collect();
    driver.tokens(id, 0, 5);
    driver.commit();
    assert_ne!(driver.disk.segments(), failed);
    let after: Vec<_> = failed.iter().map(|name| driver.disk.read(name)).collect();
    assert_eq!(before, after);
    driver.rewrite(10);
    driver.commit();
    driver.now += Duration::from_secs(2);
    driver.sync();
    assert_eq!(driver.writer.durability(), Durability::Durable);
    // Even the machine may die now: the pages of the failed file are not needed.
    let found = driver.restart(Crash::PowerLoss);
    assert_eq!((found.intact, found.lost, found.absent), (1, 0, 0));
    assert_eq!(driver.truths[&id].choices[0].len(), 15);
}

/// Promise (Journal): a write never waits for a sync.
/// Also held by `journal/tests/it/threads.rs :: writes_go_on_while_the_disk_hangs`.
#[test]
fn slow_sync_delays_no_write() {
    let mut driver = Driver::new(small_config(), 1);
    let id = driver.open();
    driver.commit();
    driver.now += Duration::from_secs(1);
    let job = driver.writer.take_sync_job(driver.now).unwrap();
    for _ in 0..50 {
        driver.tokens(id, 0, 1);
        driver.commit();
        assert!(
            driver.writer.take_sync_job(driver.now).is_none(),
            "one sync at a time"
        );
        let commit = driver.writer.commit(driver.now);
        assert_eq!(driver.writer.acknowledged(), commit);
    }
    driver.writer.finish_sync(job.run(), driver.now);
    assert!(
        driver.writer.take_sync_job(driver.now).is_some(),
        "one sync covers all 50 writes"
    );
}

#[test]
fn sync_interval_of_zero_acknowledges_after_the_sync() {
    let mut config = small_config();
    config.sync_interval = Duration::ZERO;
    let mut driver = Driver::new(config, 1);
    let id = driver.open();
    let first = driver.writer.commit(driver.now);
    assert!(driver.writer.acknowledged() < first);
    let job = driver.writer.take_sync_job(driver.now).unwrap();
    driver.tokens(id, 0, 1);
    let second = driver.writer.commit(driver.now);
    driver.writer.finish_sync(job.run(), driver.now);
    assert_eq!(
        driver.writer.acknowledged(),
        first,
        "the second commit came after the sync began"
    );
    driver.begin_sync();
    driver.finish_sync();
    assert_eq!(driver.writer.acknowledged(), second);
}

#[test]
fn sync_of_ten_seconds_is_reported_and_delays_no_acknowledgement() {
    let mut config = small_config();
    config.sync_interval = Duration::ZERO;
    let mut driver = Driver::new(config, 1);
    let id = driver.open();
    driver.commit();
    let job = driver.writer.take_sync_job(driver.now).unwrap();
    let commit = driver.writer.commit(driver.now);
    assert!(driver.writer.acknowledged() < commit);
    driver.now = driver.writer.wake_at().unwrap();
    let commit = driver.writer.commit(driver.now);
    assert_eq!(driver.writer.acknowledged(), commit);
    let slow = Durability::NotDurable(Impairment::SyncSlow);
    assert_eq!(driver.writer.durability(), slow);
    driver.tokens(id, 0, 1);
    driver.commit();
    driver.writer.finish_sync(job.run(), driver.now);
    assert_eq!(driver.writer.durability(), Durability::Durable);
    assert_eq!(driver.restart(Crash::Kill).intact, 1);
}

#[test]
fn record_beyond_a_bound_is_rejected_and_leaves_no_trace() {
    let mut driver = Driver::new(small_config(), 1);
    let id = driver.open();
    let key = driver.keys[&id];
    let choice = journal::CHOICES_MAX;
    assert!(
        driver
            .writer
            .append(key, &Record::Broke { choice })
            .is_err()
    );
    let sampling = vec![0; journal::SAMPLING_BYTES_MAX + 1];
    assert!(
        driver
            .writer
            .append(
                key,
                &Record::Steered {
                    sampling: &sampling
                }
            )
            .is_err()
    );
    assert!(driver.writer.append(key, &Record::Seal).is_err());
    driver.tokens(id, 0, 2);
    let found = driver.restart(Crash::Kill);
    assert_eq!(found.lost, 0);
}
