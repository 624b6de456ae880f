//! Random operations with kills, power losses and disk errors, beside a plain copy in memory.
//!
//! Promise (Journal): after `kill -9` everything that was committed is there, also after many in a row; after a power
//! loss, everything that was synced.
//! Also held by `journal/tests/it/torn_tails.rs :: twenty_restarts_in_a_row_lose_nothing`.

use crate::driver::{Crash, Driver, small_config};
use crate::model_disk::{Fault, FaultPlan};
use journal::JournalConfig;
use proptest::prelude::*;
use std::time::Duration;
use testing::random::Random;

fn run_steps(driver: &mut Driver, steps: u64) {
    for _ in 0..steps {
        driver.step();
    }
}

fn random_crash(random: &mut Random) -> Crash {
    if random.chance(50) {
        Crash::Kill
    } else {
        Crash::PowerLoss
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// On a disk that works, each crash leaves a prefix of each stream, and a kill leaves everything that was committed.
    #[test]
    fn working_disk_keeps_every_committed_record(seed in any::<u64>(), syncs_first in any::<bool>()) {
        let mut config = small_config();
        if syncs_first {
            config.sync_interval = Duration::ZERO;
        }
        let mut driver = Driver::new(config, seed);
        for _ in 0..6 {
            let steps = driver.random.below(150);
            run_steps(&mut driver, steps);
            let crash = random_crash(&mut driver.random);
            driver.restart(crash);
        }
    }

    /// Large records: segments roll, streams are rewritten, segments are deleted.
    #[test]
    fn small_segments_keep_every_committed_record(seed in any::<u64>()) {
        let mut driver = Driver::new(small_config(), seed);
        driver.tokens_max = 300;
        for _ in 0..4 {
            run_steps(&mut driver, 150);
            let crash = random_crash(&mut driver.random);
            driver.restart(crash);
        }
    }

    /// Without a power loss and with space, no segment goes before it is written what became of its streams (the driver checks it).
    #[test]
    fn killed_processes_leave_no_stream_without_its_beginning(seed in any::<u64>()) {
        let config = JournalConfig { bytes_max: 64 << 20, ..small_config() };
        let mut driver = Driver::new(config, seed);
        driver.tokens_max = 300;
        for _ in 0..4 {
            run_steps(&mut driver, 150);
            driver.restart(Crash::Kill);
        }
    }

    /// On a disk that fails at random, each crash leaves a prefix or a lost stream, never other text; a kill leaves
    /// everything of the streams that the writer calls durable.
    #[test]
    fn failing_disk_never_gives_other_text(seed in any::<u64>()) {
        run_on_failing_disk(seed);
    }
}

/// Seeds that found errors.
#[test]
fn failing_disk_gives_no_other_text_with_seeds_that_once_failed() {
    for seed in [
        4_792_746_935_064_990_352,
        5_380_248_462_503_904_612,
        5_910_123_326_253_563_656,
        8_259_708_674_857_489_570,
        8_597_054_974_496_470_450,
        15_021_268_166_007_772_822,
        11_374_562_532_564_127_234,
        11_999_105_386_864_602_604,
        1_951_188_266_060_386_025,
        17_815_802_351_264_641_719,
        16_738_276_146_153_947_611,
        11_617_861_252_682_541_545,
    ] {
        run_on_failing_disk(seed);
    }
}

fn run_on_failing_disk(seed: u64) {
    let mut config = small_config();
    if seed.is_multiple_of(2) {
        config.batch_bytes = 200;
    }
    let mut driver = Driver::new(config, seed);
    driver.has_faults = true;
    driver.tokens_max = 100;
    for _ in 0..5 {
        for _ in 0..5 {
            let faults = random_faults(&driver.disk.calls(), &mut driver.random);
            driver.disk.set_faults(faults);
            run_steps(&mut driver, 30);
            // Time for the next attempt.
            driver.now += Duration::from_secs(driver.random.below(90));
        }
        let crash = random_crash(&mut driver.random);
        driver.restart(crash);
    }
}

fn random_faults(calls: &(u64, u64), random: &mut Random) -> FaultPlan {
    let (writes, syncs) = *calls;
    let mut plan = FaultPlan::default();
    let first = writes + random.below(10);
    let last = first + random.below(6);
    let kinds = [
        Fault::Full,
        Fault::Broken,
        Fault::Late,
        Fault::Interrupted,
        Fault::Short,
    ];
    let kind = kinds[random.below(5) as usize];
    if random.chance(60) {
        plan.writes = Some((first, last, kind));
    }
    if random.chance(30) {
        plan.syncs = Some((syncs, syncs + random.below(4)));
    }
    if random.chance(20) {
        plan.capacity = Some(20_000 + random.below(80_000));
    }
    plan.cuts_fail = random.chance(30);
    plan
}
