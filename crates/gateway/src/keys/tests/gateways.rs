//! Keys whose limits hold for two gateways together.

use super::*;

/// Two gateways of one cluster; `exchange` delivers a report of each to the other.
struct TwoGateways {
    keys: [Keys; 2],
    shares: [KeyShares; 2],
}

impl TwoGateways {
    fn new(key: &Key) -> Self {
        let ids = [1, 2].map(cluster::names::InstanceId);
        let shares = ids.map(|id| KeyShares::new(id, at(0)));
        let keys = [(); 2].map(|()| Keys::at_time(std::slice::from_ref(key), at(0)).unwrap());
        for (keys, shares) in keys.iter().zip(&shares) {
            keys.share_limits(shares);
        }
        let two = Self { keys, shares };
        (0..10).for_each(|round| two.exchange(round * 100));
        two
    }

    fn exchange(&self, ms: u64) {
        let reports = [0, 1].map(|i: usize| self.shares[i].tick(true, at(ms)));
        for (report, to) in reports.iter().zip([1, 0]) {
            self.shares[to].receive(&report.encode().unwrap(), at(ms));
        }
    }

    fn caller(&self, index: usize) -> Caller {
        caller(&self.keys[index], "secret").unwrap()
    }
}

#[test]
fn limits_hold_for_two_gateways_together() {
    let two = TwoGateways::new(&limited(4, 6, 600));
    let mut counted = [0; 2];
    for ms in (1000..4000).step_by(100) {
        for (index, counted) in counted.iter_mut().enumerate() {
            *counted += u32::from(two.caller(index).count_request(at(ms)).is_ok());
        }
        two.exchange(ms);
    }
    let sum: u32 = counted.iter().sum();
    assert!(
        (6..=7).contains(&sum) && counted[0].abs_diff(counted[1]) <= 1,
        "{counted:?}"
    );
    let over = two.caller(0).count_request(at(4000)).unwrap_err();
    assert!(matches!(over, LimitExceeded::Requests { wait, .. } if wait > Duration::from_secs(5)));

    let first = two.caller(0).open_streams_permit(3).unwrap();
    (40..50).for_each(|round| two.exchange(round * 100));
    assert!(two.caller(1).open_streams_permit(2).is_err());
    let second = two.caller(1).open_streams_permit(1).unwrap();
    drop(first);
    (50..60).for_each(|round| two.exchange(round * 100));
    assert!(two.caller(1).open_streams_permit(3).is_ok());

    second.charge_generated(1200, at(6000));
    (60..70).for_each(|round| two.exchange(round * 100));
    let permit = two.caller(0).open_streams_permit(1).unwrap();
    let over = permit.charge_prompt(1, at(7000)).unwrap_err();
    assert!(matches!(over, LimitExceeded::Tokens { wait, .. } if wait > Duration::from_secs(55)));
}

#[test]
fn reloaded_limits_are_those_of_the_cluster() {
    let two = TwoGateways::new(&limited(4, 6, 600));
    for keys in &two.keys {
        keys.replace(&[limited(4, 600, 600)]).unwrap();
    }
    for ms in (1000..20_000).step_by(100) {
        let _ = two.caller(0).count_request(at(ms));
        two.exchange(ms);
    }
    let wait = |caller: &Caller| (0..600).find_map(|_| caller.count_request(at(20_000)).err());
    assert!(wait(&two.caller(1)).is_some(), "at most a minute's worth");
    for keys in &two.keys {
        keys.replace(&[]).unwrap();
        keys.replace(&[limited(4, 6, 600)]).unwrap();
    }
    assert_eq!(two.caller(1).count_request(at(20_000)), Ok(()), "forgotten");
}
