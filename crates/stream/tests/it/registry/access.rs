//! Who finds what: owners, admins, names, pages.

use super::{ANN, BOB, LIMITS, id, now, second};
use stream::{
    Caller, EntryState, Eviction, LIST_PAGE_MAX, ListCursor, Missing, Owner, Page, Registration,
    Registry, RegistryFull, RegistryLimits,
};

#[test]
fn only_its_owner_and_an_admin_see_a_stream() {
    let start = now();
    let registry = Registry::new(LIMITS);
    let open = registry.register(id(1), ANN, start, "ann's").unwrap();
    let rows = |state: &str, ann: Result<&'static str, Missing>| {
        for (who, caller, expected) in [
            ("ann", Caller::Owner(ANN), ann),
            ("admin", Caller::Admin, ann),
            ("bob", Caller::Owner(BOB), Err(Missing::Unknown)),
        ] {
            let found = registry.lookup(id(1), caller).map(|payload| *payload);
            assert_eq!(found, expected, "{state}, {who}");
            let never = registry.lookup(id(2), caller);
            assert_eq!(never, Err(Missing::Unknown), "{state}, {who}, unknown id");
        }
    };
    rows("open", Ok("ann's"));
    open.ended(start, 0);
    rows("ended", Ok("ann's"));
    registry.sweep(start + LIMITS.retention);
    rows("gone", Err(Missing::Gone(Eviction::Expired)));
}

#[test]
fn an_entry_tells_its_life() {
    let start = now();
    let registry = Registry::new(LIMITS);
    let open = registry.register(id(1), ANN, start, ()).unwrap();
    let entry = registry.entry(id(1), Caller::Admin).unwrap();
    assert_eq!(
        (entry.id, entry.owner, entry.opened_at),
        (id(1), ANN, start)
    );
    assert_eq!(entry.state, EntryState::Open);
    let at = start + second(3);
    assert!(open.ended(at, 7));
    assert!(
        !registry.ended(id(1), at + second(1), 8),
        "an end is told once"
    );
    let entry = registry.entry(id(1), Caller::Admin).unwrap();
    assert_eq!(entry.state, EntryState::Ended { at });
    assert_eq!(registry.counts().retained_bytes, 7);
}

#[test]
fn a_full_registry_refuses_until_one_ends() {
    let start = now();
    let registry = Registry::new(RegistryLimits {
        open_max: 2,
        ..LIMITS
    });
    let first = registry.register(id(1), ANN, start, ()).unwrap();
    let _second = registry.register(id(2), BOB, start, ()).unwrap();
    let full = registry.register(id(3), ANN, start, ()).err();
    assert_eq!(full, Some(RegistryFull { open_max: 2 }));
    assert_eq!(registry.lookup(id(3), Caller::Admin), Err(Missing::Unknown));
    first.ended(start, 0);
    assert!(registry.register(id(3), ANN, start, ()).is_ok());
    let counts = registry.counts();
    assert_eq!((counts.registered, counts.refused), (3, 1));
}

#[test]
fn restored_stream_is_listed_by_its_opening_and_counts_beyond_the_limit() {
    let start = now();
    let registry = Registry::new(RegistryLimits {
        open_max: 1,
        ..LIMITS
    });
    let opened_at = start - second(5);
    let restored = [1, 2].map(|n| {
        registry
            .restore(id(n), ANN, (opened_at, 50 * n), ())
            .unwrap()
    });
    assert!(
        registry.restore(id(2), BOB, (start, 0), ()).is_none(),
        "known"
    );
    let after = registry.list(Caller::Admin, Some(ListCursor(99)), 10);
    assert_eq!(after.entries.len(), 1, "numbers are those of the caller");
    let page = registry.list(Caller::Admin, None, 10);
    let listed: Vec<_> = page.entries.iter().map(|e| (e.id, e.opened_at)).collect();
    assert_eq!(listed, [(id(1), opened_at), (id(2), opened_at)]);
    assert!(registry.register(id(3), ANN, start, ()).is_err(), "full");
    for registration in restored {
        registration.ended(opened_at, 0);
    }
    assert_eq!(registry.counts().retained, 2);
    registry.sweep(opened_at + LIMITS.retention);
    let gone = Missing::Gone(Eviction::Expired);
    assert_eq!(registry.lookup(id(1), Caller::Owner(ANN)), Err(gone));
}

#[test]
#[should_panic(expected = "was registered twice")]
fn a_name_is_given_once() {
    let registry = Registry::new(LIMITS);
    let _first = registry.register(id(1), ANN, now(), ()).unwrap();
    let _second = registry.register(id(1), BOB, now(), ());
}

#[test]
fn of_those_gone_the_last_are_remembered() {
    let start = now();
    for gone_max in [0, 1, 3] {
        let registry = Registry::new(RegistryLimits { gone_max, ..LIMITS });
        for n in 0..6 {
            drop(registry.register(id(n), ANN, start, ()).unwrap());
        }
        for n in 0..6 {
            let remembered = n as usize >= 6 - gone_max;
            let expected = if remembered {
                Missing::Gone(Eviction::Dropped)
            } else {
                Missing::Unknown
            };
            let found = registry.lookup(id(n), Caller::Owner(ANN));
            assert_eq!(found, Err(expected), "{n} of 6, {gone_max} remembered");
        }
        assert_eq!(registry.counts().gone, gone_max);
    }
}

/// A name that left twice is remembered as long as its second leaving is.
#[test]
fn a_name_that_left_twice_is_remembered_by_the_second_time() {
    let start = now();
    let registry = Registry::new(RegistryLimits {
        gone_max: 2,
        ..LIMITS
    });
    for n in [1, 1, 2] {
        drop(registry.register(id(n), ANN, start, ()).unwrap());
    }
    let gone = Err(Missing::Gone(Eviction::Dropped));
    assert_eq!(registry.lookup(id(1), Caller::Owner(ANN)), gone);
    drop(registry.register(id(3), ANN, start, ()).unwrap());
    assert_eq!(
        registry.lookup(id(1), Caller::Owner(ANN)),
        Err(Missing::Unknown)
    );
}

#[test]
fn pages_show_each_entry_once_while_others_come_and_go() {
    let start = now();
    let registry = Registry::new(RegistryLimits {
        open_max: 1000,
        ..LIMITS
    });
    let open = |n: u64| {
        let owner = if n.is_multiple_of(2) { ANN } else { BOB };
        registry.register(id(n), owner, start, n).unwrap()
    };
    let mut all: Vec<Option<Registration<u64>>> = (0..20).map(|n| Some(open(n))).collect();
    let ann = Caller::Owner(ANN);
    let numbers = |page: &Page<u64>| -> Vec<u64> {
        page.entries.iter().map(|entry| *entry.payload).collect()
    };

    let first = registry.list(ann, None, 4);
    assert_eq!(numbers(&first), [0, 2, 4, 6]);
    all[6] = None; // the one the cursor stands on
    all[8] = None; // the one after it
    let _late = open(20);
    let second = registry.list(ann, first.next, 4);
    assert_eq!(numbers(&second), [10, 12, 14, 16]);
    let third = registry.list(ann, second.next, 2);
    assert_eq!((numbers(&third), third.next), (vec![18, 20], None));
    assert_eq!(
        numbers(&registry.list(ann, third.next, 1)),
        [0],
        "from the start"
    );

    let beyond = registry.list(ann, Some(ListCursor(u64::MAX)), 4);
    assert_eq!((numbers(&beyond), beyond.next), (vec![], None));
    let none = registry.list(Caller::Owner(Owner(3)), None, 4);
    assert_eq!((numbers(&none), none.next), (vec![], None));
    assert_eq!(
        numbers(&registry.list(Caller::Admin, None, 0)),
        [0],
        "at least one"
    );
    assert_eq!(
        registry.list(Caller::Admin, None, usize::MAX).entries.len(),
        19
    );

    let _more: Vec<_> = (21..21 + LIST_PAGE_MAX as u64).map(open).collect();
    let page = registry.list(Caller::Admin, None, usize::MAX);
    assert_eq!(page.entries.len(), LIST_PAGE_MAX);
    assert!(page.next.is_some());
}
