//! Space on the disk: two times the live streams and two segments, and never more than `bytes_max`.

use crate::driver::{Crash, Driver, small_config};
use journal::{Durability, Impairment};

/// Rewrites one stream per commit, as a busy thread does.
fn check_bound(driver: &mut Driver, peak: &mut u64) {
    let sizes = driver.writer.sizes();
    *peak = (*peak).max(sizes.live_bytes);
    let segment = driver.config.segment_bytes_bounded();
    let bound = 2 * *peak + 2 * segment;
    let bytes = driver.disk.segment_bytes();
    assert_eq!(bytes, sizes.bytes, "the writer knows its segments");
    assert!(
        bytes <= bound,
        "{bytes} bytes on the disk, bound {bound}, {sizes:?}"
    );
    assert!(bytes + driver.config.reserve_bytes <= driver.config.bytes_max);
}

#[test]
fn one_long_stream_among_many_short_ones_is_rewritten() {
    let mut driver = Driver::new(small_config(), 1);
    let long = driver.open();
    let mut peak = 0;
    for round in 0..3000 {
        let id = driver.open();
        driver.tokens(id, 0, 40);
        driver.tokens(long, 0, 1);
        driver.commit();
        driver.rewrite(1);
        check_bound(&mut driver, &mut peak);
        driver.end(id, 0);
        driver.forget(id);
        if round % 4 == 0 {
            driver.sync();
        }
    }
    let counts = driver.writer.counts();
    assert!(counts.rewritten_streams > 5, "{counts:?}");
    assert!(
        counts.rewritten_streams < 300,
        "a rewriting per segment, not per commit: {counts:?}"
    );
    let found = driver.restart(Crash::Kill);
    assert_eq!((found.lost, found.absent), (0, 0));
    assert_eq!(driver.truths[&long].choices[0].len(), 3000);
}

#[test]
fn many_live_streams_are_rewritten_within_the_bound() {
    let mut driver = Driver::new(small_config(), 2);
    let mut peak = 0;
    let mut ids: Vec<u128> = (0..200).map(|_| driver.open()).collect();
    for round in 0..4000 {
        let id = ids[driver.random.below(200) as usize];
        driver.tokens(id, 0, 3);
        if round % 3 == 0 {
            let replaced = driver.random.below(200) as usize;
            driver.forget(ids[replaced]);
            ids[replaced] = driver.open();
        }
        driver.commit();
        driver.rewrite(20);
        if round % 10 == 0 {
            driver.sync();
        }
        check_bound(&mut driver, &mut peak);
    }
    assert_eq!(driver.writer.durability(), Durability::Durable);
    let found = driver.restart(Crash::Kill);
    assert_eq!((found.lost, found.absent), (0, 0));
}

#[test]
fn live_streams_beyond_the_limit_are_not_durable() {
    let mut driver = Driver::new(small_config(), 3);
    driver.has_faults = true;
    driver.tokens_max = 4000;
    let mut ids = Vec::new();
    for _ in 0..400 {
        let id = driver.open();
        driver.tokens(id, 0, 1500);
        driver.commit();
        driver.rewrite(20);
        driver.sync();
        ids.push(id);
        let used = driver.disk.segment_bytes() + driver.config.reserve_bytes;
        assert!(used <= driver.config.bytes_max);
    }
    let durable = ids
        .iter()
        .filter(|id| driver.writer.is_durable(driver.keys[*id]));
    let durable = durable.count();
    assert!(durable > 50 && durable < 390, "{durable} of 400");
    for id in &ids[..300] {
        driver.forget(*id);
    }
    for _ in 0..300 {
        driver.now += std::time::Duration::from_secs(1);
        driver.commit();
        driver.rewrite(20);
        driver.sync();
    }
    assert_eq!(driver.writer.durability(), Durability::Durable);
    assert_eq!(
        driver.writer.sizes().gaps,
        0,
        "the last hundred were rewritten"
    );
    let found = driver.restart(Crash::Kill);
    assert_eq!((found.intact, found.lost, found.absent), (100, 0, 0));
}

#[test]
fn growing_streams_reach_bytes_max_and_go_on() {
    let mut driver = Driver::new(small_config(), 4);
    driver.has_faults = true;
    let id = driver.open();
    for _ in 0..400 {
        driver.tokens(id, 0, 2000);
        driver.commit();
        driver.rewrite(5);
        driver.sync();
        let used = driver.disk.segment_bytes() + driver.config.reserve_bytes;
        assert!(used <= driver.config.bytes_max);
    }
    let limited = Durability::NotDurable(Impairment::SpaceLimit);
    assert_eq!(driver.writer.durability(), limited);
    driver.restart(Crash::Kill);
}

#[test]
fn stored_responses_give_way_to_live_streams() {
    let mut driver = Driver::new(small_config(), 5);
    for _ in 0..600 {
        let id = driver.open();
        driver.keep(id, 3000);
        driver.commit();
        driver.rewrite(20);
        driver.sync();
    }
    assert_eq!(driver.writer.durability(), Durability::Durable);
    let sizes = driver.writer.sizes();
    assert!(sizes.live_bytes <= driver.config.live_bytes_max());
    assert!(sizes.streams > 100 && sizes.streams < 599);
    let kept: Vec<u128> = driver.keys.keys().copied().collect();
    assert_eq!(kept.last(), Some(&600), "the newest stay");
    driver.restart(Crash::Kill);
}
