//! Random operations on a registry, compared step by step with a list that is searched from the
//! front.

use super::ops::{OWNERS, Op, limits, op};
use super::{id, now};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{
    Caller, Entry, EntryState, Eviction, Evictions, ListCursor, Missing, Owner, Registration,
    Registry, RegistryCounts, RegistryFull, RegistryLimits,
};

/// The registry under test beside what it ought to be.
struct Pair {
    registry: Registry<usize>,
    limits: RegistryLimits,
    start: Instant,
    /// All that were ever registered, in order; the place is the payload.
    streams: Vec<Stream>,
    /// Places of those that left, in order of leaving.
    left: Vec<usize>,
    refused: u64,
}

struct Stream {
    owner: Owner,
    opened: u64,
    standing: Standing,
    registration: Option<Registration<usize>>,
    payload: Arc<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Standing {
    Open,
    Ended { at: u64, bytes: usize },
    Gone(Eviction),
}

impl Pair {
    fn new(limits: RegistryLimits) -> Self {
        Self {
            registry: Registry::new(limits),
            limits,
            start: now(),
            streams: Vec::new(),
            left: Vec::new(),
            refused: 0,
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Register { owner, at } => self.register(Owner(owner), at),
            Op::Sweep { at } => self.sweep(at),
            Op::End { stream, at, bytes } => self.with(stream, |p, i| p.end(i, at, bytes)),
            Op::Keep { stream } => self.with(stream, Self::keep),
            Op::DropRegistration { stream } => self.with(stream, Self::drop_registration),
            Op::Forget { stream } => self.with(stream, Self::forget),
        }
    }

    /// One of the last eight streams: those are most likely to be there still.
    fn with(&mut self, stream: usize, work: impl FnOnce(&mut Self, usize)) {
        let last = self.streams.len().min(8);
        if let Some(back) = stream.checked_rem(last) {
            work(self, self.streams.len() - 1 - back);
        }
    }

    fn register(&mut self, owner: Owner, at: u64) {
        let place = self.streams.len();
        let open_max = self.limits.open_max;
        let full = self.places(|s| s == Standing::Open).len() >= open_max;
        match self
            .registry
            .register(id(place as u64), owner, self.at(at), place)
        {
            Ok(registration) => {
                assert!(!full);
                assert_eq!(registration.id(), id(place as u64));
                self.streams.push(Stream {
                    owner,
                    opened: at,
                    standing: Standing::Open,
                    payload: Arc::clone(registration.payload()),
                    registration: Some(registration),
                });
            }
            Err(refusal) => {
                assert!(full);
                assert_eq!(refusal, RegistryFull { open_max });
                self.refused += 1;
            }
        }
    }

    fn end(&mut self, place: usize, at: u64, bytes: usize) {
        let now = self.at(at);
        let was_open = match self.streams[place].registration.take() {
            Some(registration) => registration.ended(now, bytes),
            None => self.registry.ended(id(place as u64), now, bytes),
        };
        assert_eq!(was_open, self.streams[place].standing == Standing::Open);
        if !was_open {
            return;
        }
        if self.limits.retained_max == 0 {
            return self.leave(place, Eviction::Count);
        }
        if bytes > self.limits.retained_bytes_max {
            return self.leave(place, Eviction::Bytes);
        }
        let ended = |s| matches!(s, Standing::Ended { .. });
        loop {
            let cause = if self.places(ended).len() + 1 > self.limits.retained_max {
                Eviction::Count
            } else if self.retained_bytes() + bytes > self.limits.retained_bytes_max {
                Eviction::Bytes
            } else {
                break;
            };
            match self.in_the_way(place, bytes, cause) {
                Some(other) => self.leave(other, cause),
                None => return self.leave(place, cause),
            }
        }
        self.streams[place].standing = Standing::Ended { at, bytes };
    }

    fn keep(&mut self, place: usize) {
        if let Some(registration) = self.streams[place].registration.take() {
            assert_eq!(*registration.keep(), place);
        }
    }

    fn drop_registration(&mut self, place: usize) {
        if let Some(registration) = self.streams[place].registration.take() {
            drop(registration);
            if !self.has_left(place) {
                self.leave(place, Eviction::Dropped);
            }
        }
    }

    fn forget(&mut self, place: usize) {
        let forgotten = self.registry.forget(id(place as u64));
        assert_eq!(forgotten.is_some(), !self.has_left(place));
        if let Some(payload) = forgotten {
            assert_eq!(*payload, place);
            self.leave(place, Eviction::Forgotten);
        }
    }

    fn sweep(&mut self, at: u64) {
        let retention = self.limits.retention.as_secs();
        let due =
            |s| matches!(s, Standing::Ended { at: end, .. } if at >= end && at - end >= retention);
        let mut due = self.places(due);
        due.sort_by_key(|place| self.end_of(*place));
        assert_eq!(self.registry.sweep(self.at(at)), due.len());
        due.iter()
            .for_each(|place| self.leave(*place, Eviction::Expired));
    }

    fn leave(&mut self, place: usize, cause: Eviction) {
        self.streams[place].standing = Standing::Gone(cause);
        self.left.push(place);
    }

    fn places(&self, wanted: impl Fn(Standing) -> bool) -> Vec<usize> {
        let all = 0..self.streams.len();
        all.filter(|place| wanted(self.streams[*place].standing))
            .collect()
    }

    fn end_of(&self, place: usize) -> Option<(u64, usize)> {
        match self.streams[place].standing {
            Standing::Ended { at, .. } => Some((at, place)),
            _ => None,
        }
    }

    /// The oldest end of the owner that keeps most, counted with the stream that ends; of equals, of that
    /// stream's own. `None`: that has no other.
    fn in_the_way(&self, place: usize, bytes: usize, cause: Eviction) -> Option<usize> {
        let own = self.streams[place].owner;
        let kept = |owner: Owner| {
            let mut kept = if owner == own { (1, bytes) } else { (0, 0) };
            for stream in self.streams.iter().filter(|s| s.owner == owner) {
                if let Standing::Ended { bytes, .. } = stream.standing {
                    kept = (kept.0 + 1, kept.1 + bytes);
                }
            }
            match cause {
                Eviction::Count => kept.0,
                _ => kept.1,
            }
        };
        let ends = |owner: Owner| {
            (0..self.streams.len())
                .filter(move |&at| self.streams[at].owner == owner)
                .filter_map(|at| self.end_of(at))
        };
        let owners = (0..OWNERS).map(Owner);
        let keeps = owners.filter(|&owner| owner == own || ends(owner).next().is_some());
        let most = keeps.max_by_key(|&owner| (kept(owner), owner == own, owner))?;
        ends(most).min().map(|(_, at)| at)
    }

    fn retained_bytes(&self) -> usize {
        let bytes = |s: &Stream| match s.standing {
            Standing::Ended { bytes, .. } => bytes,
            _ => 0,
        };
        self.streams.iter().map(bytes).sum()
    }

    fn has_left(&self, place: usize) -> bool {
        matches!(self.streams[place].standing, Standing::Gone(_))
    }

    fn remembered(&self) -> &[usize] {
        &self.left[self.left.len().saturating_sub(self.limits.gone_max)..]
    }

    fn check(&self) {
        let callers = (0..OWNERS).map(|owner| Caller::Owner(Owner(owner)));
        for caller in callers.chain([Caller::Admin]) {
            for place in 0..=self.streams.len() {
                self.check_entry(place, caller);
            }
            for limit in [1, 2, 100] {
                self.check_list(caller, limit);
            }
        }
        self.check_counts();
        self.check_payloads();
    }

    fn check_entry(&self, place: usize, caller: Caller) {
        let expected = match self.streams.get(place) {
            Some(stream) if sees(caller, stream.owner) => match stream.standing {
                Standing::Gone(cause) if self.remembered().contains(&place) => {
                    Err(Missing::Gone(cause))
                }
                Standing::Gone(_) => Err(Missing::Unknown),
                _ => Ok(place),
            },
            _ => Err(Missing::Unknown),
        };
        let entry = self.registry.entry(id(place as u64), caller);
        let payload = self.registry.lookup(id(place as u64), caller).map(|p| *p);
        assert_eq!(payload, expected, "stream {place} for {caller:?}");
        match entry {
            Ok(entry) => self.check_told(&entry, place),
            Err(missing) => assert_eq!(Err(missing), expected),
        }
    }

    fn check_told(&self, entry: &Entry<usize>, place: usize) {
        let stream = &self.streams[place];
        assert_eq!((entry.id, *entry.payload), (id(place as u64), place));
        assert_eq!(
            (entry.owner, entry.opened_at),
            (stream.owner, self.at(stream.opened))
        );
        let state = match stream.standing {
            Standing::Open => EntryState::Open,
            Standing::Ended { at, .. } => EntryState::Ended { at: self.at(at) },
            Standing::Gone(_) => panic!("an entry that left is told"),
        };
        assert_eq!(entry.state, state);
    }

    fn check_list(&self, caller: Caller, limit: usize) {
        let visible = |place: &usize| sees(caller, self.streams[*place].owner);
        let all = self.places(|s| !matches!(s, Standing::Gone(_)));
        let expected: Vec<usize> = all.into_iter().filter(visible).collect();
        let mut told = Vec::new();
        let mut after: Option<ListCursor> = None;
        loop {
            let page = self.registry.list(caller, after, limit);
            assert!(page.entries.len() <= limit);
            for entry in &page.entries {
                self.check_told(entry, *entry.payload);
                told.push(*entry.payload);
            }
            if page.next.is_none() {
                break;
            }
            assert_eq!(
                page.entries.len(),
                limit,
                "a page with more behind it is full"
            );
            after = page.next;
        }
        assert_eq!(told, expected, "the list for {caller:?}, by {limit}");
    }

    fn check_counts(&self) {
        let with = |wanted: fn(Standing) -> bool| self.places(wanted).len();
        let gone = |cause| self.places(|s| s == Standing::Gone(cause)).len() as u64;
        let expected = RegistryCounts {
            open: with(|s| s == Standing::Open),
            retained: with(|s| matches!(s, Standing::Ended { .. })),
            retained_bytes: self.retained_bytes(),
            gone: self.remembered().len(),
            registered: self.streams.len() as u64,
            refused: self.refused,
            evicted: Evictions {
                expired: gone(Eviction::Expired),
                count: gone(Eviction::Count),
                bytes: gone(Eviction::Bytes),
                forgotten: gone(Eviction::Forgotten),
                dropped: gone(Eviction::Dropped),
            },
        };
        assert_eq!(self.registry.counts(), expected);
        assert!(expected.open <= self.limits.open_max);
        assert!(expected.retained <= self.limits.retained_max);
        assert!(expected.retained_bytes <= self.limits.retained_bytes_max);
    }

    /// The registry holds the payloads of those it has, and no others.
    fn check_payloads(&self) {
        for (place, stream) in self.streams.iter().enumerate() {
            let ours = 1 + usize::from(stream.registration.is_some());
            let its = usize::from(!self.has_left(place));
            assert_eq!(
                Arc::strong_count(&stream.payload),
                ours + its,
                "payload {place}"
            );
        }
    }

    fn at(&self, second: u64) -> Instant {
        self.start + Duration::from_secs(second)
    }
}

fn sees(caller: Caller, owner: Owner) -> bool {
    caller == Caller::Admin || caller == Caller::Owner(owner)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn a_registry_is_a_list(limits in limits(), ops in prop::collection::vec(op(), 1..60)) {
        let mut pair = Pair::new(limits);
        pair.check();
        for op in &ops {
            pair.apply(op);
            pair.check();
        }
    }
}
