//! Keys whose limits are divided by the number of gateways.

use super::*;
use testing::random::Random;

/// The caller of this key at each of so many gateways.
fn callers(count: u32, key: &Key) -> Vec<Caller> {
    let at_one = |_| {
        let keys = Keys::at_time(std::slice::from_ref(key), at(0)).unwrap();
        keys.set_gateways(count);
        caller(&keys, "secret").unwrap()
    };
    (0..count).map(at_one).collect()
}

fn served_at(caller: &Caller, ms: u64) -> usize {
    let tries = (0..10_000).take_while(|_| caller.count_request(at(ms)).is_ok());
    tries.count()
}

/// Promise (Limits of keys over gateways): each of N gateways has limit / N of each limit of a key; a request that
/// fits the limit is admitted in the end.
/// Also held by `gateway/src/keys/tests/gateways.rs :: request_that_fits_the_limit_fits_at_each_gateway`.
#[test]
fn each_gateway_has_its_part_of_the_limits() {
    for caller in callers(2, &limited(4, 6, 600)) {
        assert_eq!(served_at(&caller, 0), 3);
        let (per_min, wait) = (NonZeroU32::new(6).unwrap(), Duration::from_secs(20));
        let over = Err(LimitExceeded::Requests { per_min, wait });
        assert_eq!(caller.count_request(at(0)), over);

        let one = caller.open_streams_permit(1).unwrap();
        let _second = caller.open_streams_permit(1).unwrap();
        let over = caller.open_streams_permit(1).unwrap_err();
        assert_eq!(over.limit_name(), "concurrent_streams");

        assert_eq!(one.charge_prompt(300, at(0)), Ok(()));
        one.charge_generated(300, at(0));
        let (per_min, wait) = (NonZeroU32::new(600).unwrap(), Duration::from_millis(60_200));
        let over = Err(LimitExceeded::Tokens { per_min, wait });
        assert_eq!(one.charge_prompt(1, at(0)), over);
    }
}

#[test]
fn request_that_fits_the_limit_fits_at_each_gateway() {
    for caller in callers(4, &limited(3, 1, 100)) {
        assert_eq!(served_at(&caller, 0), 1, "a part is less than a request");
        assert_eq!(served_at(&caller, 239_999), 0, "paid by waiting");
        assert_eq!(served_at(&caller, 240_000), 1);

        let all = caller.open_streams_permit(3).unwrap();
        assert!(caller.open_streams_permit(1).is_err());
        assert_eq!(all.charge_prompt(100, at(0)), Ok(()));
        assert!(all.charge_prompt(1, at(180_000)).is_err());
        assert_eq!(all.charge_prompt(1, at(182_400)), Ok(()));
        let over = all.charge_prompt(101, at(1_000_000)).unwrap_err();
        assert!(matches!(over, LimitExceeded::Prompt { .. }), "{over:?}");
        drop(all);
        let over = caller.open_streams_permit(4).unwrap_err();
        assert!(matches!(over, LimitExceeded::Choices { .. }), "{over:?}");
    }
}

#[test]
fn gateways_together_admit_the_limit() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let count = 1 + random.below(5) as u32;
        let per_min = 1 + random.below(600) as u32;
        let callers = callers(count, &limited(0, per_min, 0));
        let mut served = 0;
        // Much more than the limit at each gateway, in bursts.
        for ms in (0..180_000).step_by(50) {
            let caller = &callers[random.below(u64::from(count)) as usize];
            let burst = 1 + random.below(200);
            let tries = (0..burst).take_while(|_| caller.count_request(at(ms)).is_ok());
            served += tries.count() as u64;
            let rate = u64::from(per_min);
            let most = rate + rate * ms / 60_000 + u64::from(count);
            assert!(served <= most, "seed {seed}: {served} of {most} at {ms} ms");
        }
        let least = f64::from(per_min) * 4.0 * 0.93 - f64::from(count);
        assert!(served as f64 >= least, "seed {seed}: {served} of {least}");
    }
}

#[test]
fn bucket_stays_as_empty_as_it_is_when_the_number_of_gateways_changes() {
    let keys = Keys::at_time(&[limited(0, 600, 0)], at(0)).unwrap();
    let caller = caller(&keys, "secret").unwrap();
    for _ in 0..300 {
        caller.count_request(at(0)).unwrap();
    }
    keys.set_gateways(2);
    assert_eq!(served_at(&caller, 0), 150, "the other half of a part");
    keys.set_gateways(1);
    assert_eq!(served_at(&caller, 0), 0, "nothing is given back");
    keys.set_gateways(3);
    assert_eq!(served_at(&caller, 30_000), 100);
    // A removed key is forgotten, and keeps its part when it is there again.
    keys.replace(&[]).unwrap();
    keys.replace(&[limited(0, 600, 0)]).unwrap();
    let caller = super::caller(&keys, "secret").unwrap();
    assert_eq!(served_at(&caller, 30_000), 200);
}
