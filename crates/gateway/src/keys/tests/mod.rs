//! Promise (Admission and keys): a key never exceeds its rate, and never waits longer than its `Retry-After`.

use super::key_usage::LimitExceeded;
use super::*;
use std::num::NonZeroU32;
use std::time::Duration;
use stream::Owner;

mod gateways;

fn at(ms: u64) -> Instant {
    // One epoch for all: `Instant` has no zero.
    static EPOCH: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *EPOCH.get_or_init(clock::now) + Duration::from_millis(ms)
}

fn key(name: &str, text: &str) -> Key {
    Key {
        name: name.to_owned(),
        hash: KeyHash::of(text.as_bytes()),
        scopes: Scopes::of(&[Scope::Inference]),
        limits: KeyLimits::default(),
        weight: 1,
    }
}

fn limited(streams: u32, requests: u32, tokens: u32) -> Key {
    let limits = KeyLimits {
        concurrent_streams: NonZeroU32::new(streams),
        requests_per_min: NonZeroU32::new(requests),
        tokens_per_min: NonZeroU32::new(tokens),
    };
    Key {
        limits,
        ..key("limited", "secret")
    }
}

fn caller(keys: &Keys, text: &str) -> Option<Caller> {
    keys.identify(Some(text.as_bytes()))
}

fn the_caller(key: &Key) -> Caller {
    let keys = Keys::at_time(std::slice::from_ref(key), at(0)).unwrap();
    caller(&keys, "secret").unwrap()
}

#[test]
fn each_key_has_a_caller_and_unknown_keys_have_none() {
    let many: Vec<Key> = (0..KEYS_MAX)
        .map(|i| key(&format!("k{i}"), &format!("secret {i}")))
        .collect();
    let keys = Keys::at_time(&many, at(0)).unwrap();
    for i in [0, 1, 500, KEYS_MAX - 1] {
        let caller = caller(&keys, &format!("secret {i}")).unwrap();
        assert_eq!(&*caller.name, format!("k{i}"));
        assert_ne!(caller.owner, Owner(0));
    }
    for stranger in ["", "secret", "secret 0 ", "secret 1024"] {
        assert!(caller(&keys, stranger).is_none(), "{stranger:?}");
    }
    assert!(keys.identify(None).is_none());
    let none = Keys::at_time(&[], at(0)).unwrap();
    assert!(caller(&none, "secret").is_none() && none.identify(None).is_none());
}

#[test]
fn server_without_keys_has_one_caller() {
    let keys = Keys::anonymous();
    for text in [None, Some(&b"whatever"[..])] {
        let caller = keys.identify(text).unwrap();
        assert_eq!((caller.owner, caller.scopes), (Owner(0), Scopes::all()));
    }
    keys.replace(&[key("late", "late")]).unwrap();
    assert_eq!(caller(&keys, "x").unwrap().owner, Owner(0));
}

#[test]
fn all_problems_of_keys_are_reported() {
    let weight = |weight| Key {
        weight,
        ..key("a", "a")
    };
    let rows = [
        ("empty name", vec![key("", "a")], "64 letters"),
        ("long name", vec![key(&"x".repeat(65), "a")], "64 letters"),
        ("odd name", vec![key("a\nb", "a")], "64 letters"),
        (
            "no scope",
            vec![Key {
                scopes: Scopes::default(),
                ..key("a", "a")
            }],
            "scope",
        ),
        ("no weight", vec![weight(0)], "weight"),
        ("too heavy", vec![weight(1001)], "weight"),
        ("fast", vec![limited(1, 100_000_001, 1)], "rate"),
        (
            "same name",
            vec![key("a", "a"), key("a", "b")],
            "name is used twice",
        ),
        ("same key", vec![key("a", "a"), key("b", "a")], "same key"),
        ("crowd", vec![key("a", "a"); KEYS_MAX + 1], "at most 1024"),
    ];
    for (label, keys, why) in rows {
        let problems = Keys::at_time(&keys, at(0)).expect_err(label);
        assert_eq!(problems.len(), 1, "{label}: {problems:?}");
        assert!(
            problems[0].to_string().contains(why),
            "{label}: {problems:?}"
        );
    }
}

#[test]
fn revoked_key_is_rejected_and_streams_keep_permits() {
    let (a, b) = (limited(2, 0, 0), key("b", "b"));
    let keys = Keys::at_time(&[a.clone(), b.clone()], at(0)).unwrap();
    let before = caller(&keys, "secret").unwrap();
    let permit = before.open_streams_permit(2).unwrap();
    keys.replace(std::slice::from_ref(&b)).unwrap();
    assert!(caller(&keys, "secret").is_none());
    assert!(caller(&keys, "b").is_some());
    assert_eq!(before.open_streams(), 2);
    drop(permit);
    assert_eq!(before.open_streams(), 0);
}

#[test]
fn permit_has_the_tenant_of_the_key() {
    let heavy = Key {
        weight: 7,
        ..limited(0, 0, 0)
    };
    let caller = the_caller(&heavy);
    let account = caller.open_streams_permit(1).unwrap().account();
    assert_eq!((account.id, account.weight), (caller.owner.0, 7));
    let anybody = Keys::anonymous().identify(None).unwrap();
    let account = anybody.open_streams_permit(1).unwrap().account();
    assert_eq!(account, engine::Account::default());
}

#[test]
fn invalid_keys_replace_nothing() {
    let keys = Keys::at_time(&[key("a", "a")], at(0)).unwrap();
    keys.replace(&[key("b", "b"), key("b", "c")]).unwrap_err();
    assert!(caller(&keys, "a").is_some() && caller(&keys, "b").is_none());
}

#[test]
fn replaced_key_keeps_its_usage_under_new_limits() {
    let keys = Keys::at_time(&[limited(2, 2, 10)], at(0)).unwrap();
    let before = caller(&keys, "secret").unwrap();
    let held = before.open_streams_permit(2).unwrap();
    held.charge_prompt(10, at(0)).unwrap();
    before.count_request(at(0)).unwrap();
    before.count_request(at(0)).unwrap();
    keys.replace(&[limited(3, 4, 20)]).unwrap();
    let after = caller(&keys, "secret").unwrap();
    assert_eq!(after.owner, before.owner);
    assert_eq!(after.open_streams(), 2);
    let _third = after.open_streams_permit(1).unwrap();
    let fourth = after
        .open_streams_permit(1)
        .expect_err("over the new limit");
    assert_eq!(fourth.limit_name(), "concurrent_streams");
    // The bucket was empty and is: emptiness is a time, whatever the rate.
    let wait = Duration::from_secs(15);
    let per_min = NonZeroU32::new(4).unwrap();
    assert_eq!(
        after.count_request(at(0)),
        Err(LimitExceeded::Requests { per_min, wait })
    );
    assert_eq!(after.count_request(at(15_000)), Ok(()));
}

#[test]
fn requests_are_limited_to_the_rate() {
    let caller = the_caller(&limited(0, 3, 0));
    for _ in 0..3 {
        caller.count_request(at(0)).unwrap();
    }
    let over = |ms| match caller.count_request(at(ms)) {
        Err(LimitExceeded::Requests { wait, .. }) => wait.as_millis(),
        other => panic!("{other:?}"),
    };
    assert_eq!((over(0), over(5_000), over(19_999)), (20_000, 15_000, 1));
    caller.count_request(at(20_000)).unwrap();
    assert_eq!(over(20_000), 20_000);
}

#[test]
fn answers_are_charged_and_debt_delays_prompts() {
    let caller = the_caller(&limited(0, 0, 60));
    let permit = caller.open_streams_permit(1).unwrap();
    permit.charge_prompt(50, at(0)).unwrap();
    permit.charge_generated(40, at(0));
    let second = caller.open_streams_permit(1).unwrap();
    let wait = Duration::from_secs(31);
    let per_min = NonZeroU32::new(60).unwrap();
    let over = Err(LimitExceeded::Tokens { per_min, wait });
    assert_eq!(second.charge_prompt(1, at(0)), over);
    drop(permit);
    assert_eq!(
        second.charge_prompt(1, at(0)),
        over,
        "an end pays nothing back"
    );
    assert_eq!(second.charge_prompt(1, at(31_000)), Ok(()));
    let never = Err(LimitExceeded::Prompt {
        per_min,
        tokens: 61,
    });
    assert_eq!(second.charge_prompt(61, at(1_000_000)), never);
}

#[test]
fn streams_open_all_or_none_and_close_on_drop() {
    let caller = the_caller(&limited(3, 0, 0));
    let two = caller.open_streams_permit(2).unwrap();
    let max = NonZeroU32::new(3).unwrap();
    let over = caller.open_streams_permit(2).err();
    assert!(matches!(over, Some(LimitExceeded::Streams { max: told, .. }) if told == max));
    assert_eq!(caller.open_streams(), 2);
    let _one = caller.open_streams_permit(1).unwrap();
    drop(two);
    assert_eq!(caller.open_streams(), 1);
    let over = LimitExceeded::Choices { max, streams: 4 };
    assert_eq!(caller.open_streams_permit(4).err(), Some(over));
}

#[test]
fn recovered_streams_count_for_their_key_whatever_its_limits() {
    let limited = limited(1, 1, 1);
    let owner = limited.hash.stream_owner();
    let keys = Keys::at_time(&[limited], at(0)).unwrap();
    let permits = [1, 2].map(|streams| keys.recovered_permit(owner, streams));
    let caller = caller(&keys, "secret").unwrap();
    assert_eq!(caller.open_streams(), 3);
    assert!(caller.open_streams_permit(1).is_err(), "beyond the limit");
    drop(permits);
    assert_eq!(caller.open_streams(), 0);
    let removed = keys.recovered_permit(Owner(7), 1000);
    assert_eq!(removed.account().id, 7, "streams of a removed key run on");
    assert!(removed.charge_prompt(1 << 40, at(0)).is_ok());
}

#[test]
fn streams_close_on_panic() {
    let caller = the_caller(&limited(1, 0, 0));
    let permit = caller.open_streams_permit(1).unwrap();
    let fell = std::thread::spawn(move || {
        let _held = permit;
        std::panic::resume_unwind(Box::new("a request's own failure"));
    });
    fell.join().unwrap_err();
    assert_eq!(caller.open_streams(), 0);
    assert!(caller.open_streams_permit(1).is_ok());
}

#[test]
fn concurrent_streams_stay_within_the_limit() {
    let caller = the_caller(&limited(3, 0, 0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let held = caller.open_streams_permit(1);
                    assert!(caller.open_streams() <= 3);
                    drop(held);
                }
            });
        }
    });
    assert_eq!(caller.open_streams(), 0);
}

#[test]
fn debug_output_hides_key_and_hash() {
    let hash = KeyHash::of(b"secret");
    let shown = {
        let keys = Keys::at_time(&[limited(1, 1, 1)], at(0)).unwrap();
        let caller = caller(&keys, "secret").unwrap();
        let permit = caller.open_streams_permit(1).unwrap();
        format!(
            "{keys:?} {caller:?} {permit:?} {:?} {hash:?}",
            limited(1, 1, 1)
        )
    };
    assert!(shown.contains("limited"), "names are shown: {shown}");
    let bytes = format!("{:?}", &hash.to_hex().as_bytes()[..4]);
    for hidden in ["secret", &hash.to_hex()[..8], &bytes] {
        assert!(!shown.contains(hidden), "{hidden} in {shown}");
    }
}

#[test]
fn hash_is_blake3_and_parses_back() {
    // The hash of nothing, from BLAKE3's own test vectors.
    let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
    assert_eq!(KeyHash::of(b"").to_hex(), empty);
    assert_eq!(KeyHash::from_hex(empty), Some(KeyHash::of(b"")));
    for bad in [
        "",
        "af13",
        &empty[1..],
        &format!("{empty}0"),
        &empty.replace('a', "g"),
    ] {
        assert_eq!(KeyHash::from_hex(bad), None, "{bad}");
    }
}

#[test]
fn scopes_behave_as_sets() {
    let two: Scopes = [Scope::Metrics, Scope::Inference].into_iter().collect();
    assert!(two.has(Scope::Metrics) && !two.has(Scope::Admin));
    assert_eq!(two.to_string(), "inference or metrics");
    assert!(!two.has_any(Scopes::of(&[Scope::Admin])) && !two.has_any(Scopes::default()));
    for scope in Scope::ALL {
        assert_eq!(Scope::from_name(scope.name()), Some(scope));
    }
    assert_eq!(Scope::from_name("root"), None);
}
