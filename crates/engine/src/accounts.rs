//! Who was given how much: one counter per account and class.
//!
//! Virtual token counters (Sheng et al. 2024, "Fairness in Serving Large Language Models"). What an
//! account is given raises its counter, divided by its weight; where not all can be served, the
//! account with the lowest counter is. An account that comes to want something (again) is lifted to
//! the lowest counter among those that want something already, so that nobody saves up a claim by
//! staying away, by being parked or by being paused.
//!
//! A token is charged when its row is given; for who is started next, a prompt counts from its start. Two
//! accounts that both want more than they get then differ, however long that goes on, by no more
//! than what those in their places are given until they end (the paper's theorem: twice the larger
//! of a prompt and a full house's tokens).
//!
//! Counters are kept for each class by itself: what was taken in one class is no debt in another.

use crate::{Account, Class, WEIGHT_MAX};

/// What computing one token of a prompt counts.
pub(crate) const PREFILL_COST: u64 = 1;

/// What generating one token counts: as the paper has it, twice.
pub(crate) const DECODE_COST: u64 = 2;

/// A cost of 1 at a weight of 1. A counter is good for 2^47 generated tokens at that weight: at a
/// million per second, for four years of one process.
const UNIT: u64 = WEIGHT_MAX as u64;

pub(crate) struct Accounts {
    /// By place: whose entry it is. Beside the entries, to be searched quickly.
    ids: Vec<u64>,
    entries: Vec<Entry>,
    entries_max: usize,
    /// By class: the counter of the last account that stopped to want something.
    last: [u64; Class::COUNT],
    openings: u64,
}

struct Entry {
    weight: u64,
    /// Requests alive. An entry that has any is never dropped.
    requests: usize,
    /// When it was used last, in openings.
    used: u64,
    meters: [Meter; Class::COUNT],
}

#[derive(Clone, Copy, Default)]
struct Meter {
    counter: u64,
    /// Prompt tokens of started requests that are not computed yet. They count for who is started
    /// next, but are charged only when they are computed: who comes is lifted to what others were
    /// given, not to what they have asked for.
    owed: u64,
    /// Queued requests and sequences that want something now.
    wanting: usize,
    /// When one of its requests was started last, and when one had rows.
    started_ns: u64,
    rows_ns: u64,
}

/// An account's meter of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) place: usize,
    pub(crate) class: Class,
}

impl Accounts {
    /// `entries_max` accounts, at least one more than requests that may be alive.
    pub(crate) fn new(entries_max: usize) -> Self {
        Self {
            ids: Vec::with_capacity(entries_max),
            entries: Vec::with_capacity(entries_max),
            entries_max,
            last: [0; Class::COUNT],
            openings: 0,
        }
    }

    /// One more request of this account.
    pub(crate) fn open(&mut self, account: Account, class: Class) -> Share {
        let known = self.ids.iter().position(|&id| id == account.id);
        let place = known.unwrap_or_else(|| self.vacancy(account.id));
        self.openings += 1;
        let entry = &mut self.entries[place];
        entry.weight = u64::from(account.weight.clamp(1, WEIGHT_MAX));
        entry.requests += 1;
        entry.used = self.openings;
        Share { place, class }
    }

    /// One request less.
    pub(crate) fn close(&mut self, share: Share) {
        let entry = &mut self.entries[share.place];
        entry.requests -= 1;
        self.openings += 1;
        entry.used = self.openings;
    }

    /// A queued request or a sequence of it wants something from now on.
    pub(crate) fn want(&mut self, share: Share) {
        if self.meter(share).wanting == 0 {
            let class = share.class as usize;
            let meters = self.entries.iter().map(|entry| entry.meters[class]);
            let wanting = meters.filter(|meter| meter.wanting > 0);
            let least = wanting.map(|meter| meter.counter).min();
            let least = least.unwrap_or(self.last[class]);
            let meter = self.meter_mut(share);
            meter.counter = meter.counter.max(least);
        }
        self.meter_mut(share).wanting += 1;
    }

    /// It wants nothing any more.
    pub(crate) fn want_not(&mut self, share: Share) {
        let meter = self.meter_mut(share);
        meter.wanting -= 1;
        if meter.wanting == 0 {
            self.last[share.class as usize] = meter.counter;
        }
    }

    /// Something was given.
    pub(crate) fn charge(&mut self, share: Share, cost: u64) {
        let price = self.price(share, cost);
        let meter = self.meter_mut(share);
        meter.counter = meter.counter.saturating_add(price);
    }

    /// A request with so many prompt tokens to compute was started.
    pub(crate) fn owe(&mut self, share: Share, tokens: usize) {
        self.meter_mut(share).owed += tokens as u64;
    }

    /// So many of them will be computed now.
    pub(crate) fn pay(&mut self, share: Share, tokens: usize) {
        self.remit(share, tokens);
        self.charge(share, PREFILL_COST * tokens as u64);
    }

    /// So many of them will not be computed.
    pub(crate) fn remit(&mut self, share: Share, tokens: usize) {
        self.meter_mut(share).owed -= tokens as u64;
    }

    /// The counter as it will be when the prompts of started requests are computed.
    pub(crate) fn counter_owing(&self, share: Share) -> u64 {
        let meter = self.meter(share);
        let price = self.price(share, PREFILL_COST * meter.owed);
        meter.counter.saturating_add(price)
    }

    /// What the counter rises by for this cost.
    pub(crate) fn price(&self, share: Share, cost: u64) -> u64 {
        cost.saturating_mul(UNIT) / self.entries[share.place].weight
    }

    pub(crate) fn counter(&self, share: Share) -> u64 {
        self.meter(share).counter
    }

    pub(crate) fn started(&mut self, share: Share, now_ns: u64) {
        self.meter_mut(share).started_ns = now_ns;
    }

    pub(crate) fn started_ns(&self, share: Share) -> u64 {
        self.meter(share).started_ns
    }

    pub(crate) fn had_rows(&mut self, share: Share, now_ns: u64) {
        self.meter_mut(share).rows_ns = now_ns;
    }

    pub(crate) fn rows_ns(&self, share: Share) -> u64 {
        self.meter(share).rows_ns
    }

    /// Requests alive, how many want something, and tokens owed, over all accounts and classes.
    pub(crate) fn totals(&self) -> (usize, usize, u64) {
        let requests = self.entries.iter().map(|entry| entry.requests).sum();
        let meters = || self.entries.iter().flat_map(|entry| &entry.meters);
        let wanting = meters().map(|meter| meter.wanting).sum();
        (requests, wanting, meters().map(|meter| meter.owed).sum())
    }

    /// A new entry, in place of the one that was out of use longest when there are too many.
    fn vacancy(&mut self, id: u64) -> usize {
        let entry = Entry {
            weight: 1,
            requests: 0,
            used: 0,
            meters: [Meter::default(); Class::COUNT],
        };
        if self.entries.len() < self.entries_max {
            self.ids.push(id);
            self.entries.push(entry);
            return self.entries.len() - 1;
        }
        let unused = self.entries.iter().enumerate();
        let unused = unused.filter(|(_, entry)| entry.requests == 0);
        let (place, _) = unused
            .min_by_key(|(_, entry)| entry.used)
            .expect("fewer requests than entries");
        self.ids[place] = id;
        self.entries[place] = entry;
        place
    }

    fn meter(&self, share: Share) -> &Meter {
        &self.entries[share.place].meters[share.class as usize]
    }

    fn meter_mut(&mut self, share: Share) -> &mut Meter {
        &mut self.entries[share.place].meters[share.class as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(id: u64, weight: u32) -> Account {
        Account { id, weight }
    }

    #[test]
    fn who_comes_is_lifted_to_the_least_who_want() {
        let mut accounts = Accounts::new(8);
        let a = accounts.open(account(1, 1), Class::Normal);
        accounts.want(a);
        accounts.charge(a, 100);
        let b = accounts.open(account(2, 2), Class::Normal);
        accounts.want(b);
        assert_eq!(
            accounts.counter(b),
            accounts.counter(a),
            "no claim saved up"
        );
        accounts.charge(b, 100);
        assert_eq!(accounts.counter(b), 150 * UNIT, "half the price");
        let elsewhere = accounts.open(account(3, 1), Class::Low);
        accounts.want(elsewhere);
        assert_eq!(accounts.counter(elsewhere), 0, "another class");
    }

    #[test]
    fn who_comes_to_nobody_starts_where_the_last_stood() {
        let mut accounts = Accounts::new(8);
        let a = accounts.open(account(1, 1), Class::Normal);
        accounts.want(a);
        accounts.charge(a, 100);
        accounts.want_not(a);
        let b = accounts.open(account(2, 1), Class::Normal);
        accounts.want(b);
        accounts.want(a);
        assert_eq!(accounts.counter(a), accounts.counter(b));
    }

    #[test]
    fn the_table_drops_who_was_out_of_use_longest() {
        let mut accounts = Accounts::new(3);
        let open = |accounts: &mut Accounts, id| accounts.open(account(id, 1), Class::Normal);
        let kept = open(&mut accounts, 1);
        let old = open(&mut accounts, 2);
        let new = open(&mut accounts, 3);
        accounts.close(old);
        accounts.close(new);
        let next = open(&mut accounts, 4);
        assert_eq!(next.place, old.place);
        assert_eq!(open(&mut accounts, 1).place, kept.place, "known");
        assert_eq!(open(&mut accounts, 3).place, new.place, "still known");
        assert_eq!(accounts.totals(), (4, 0, 0));
    }
}
