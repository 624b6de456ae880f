//! Fair sharing between accounts: one virtual token counter per account and class.
//!
//! The algorithm is VTC (Sheng et al. 2024, "Fairness in Serving Large Language Models"). Service raises an
//! account's counter by the cost of the service divided by the account's weight; under contention the account
//! with the lowest counter is served. An account whose demand begins (again) is lifted to the lowest counter
//! among accounts with demand, so that staying away, being parked or being paused saves up no credit.
//!
//! A token is charged when the row for the token is given; for the choice of the next request to start, a
//! prompt counts from the start of its request. Two accounts with steady demand then differ, for any length
//! of time, by no more than the service of their running requests until those end (the paper's theorem: twice
//! the larger of a prompt and a full batch's tokens).
//!
//! Classes have separate counters: service in one class is no debt in another.

use crate::{Account, Priority, WEIGHT_MAX};

/// Cost of computing one prompt token.
pub(crate) const PREFILL_COST: u64 = 1;

/// Cost of generating one token: twice a prompt token's, as in the paper.
pub(crate) const DECODE_COST: u64 = 2;

/// Counter units of a cost of 1 at a weight of 1. A counter lasts for 2^47 generated tokens at that
/// weight: at a million per second, for four years of one process.
const UNIT: u64 = WEIGHT_MAX as u64;

/// The counters of all known accounts.
pub(crate) struct FairShares {
    /// Account id by index, in a separate array for a fast search.
    ids: Vec<u64>,
    entries: Vec<AccountEntry>,
    entries_max: usize,
    /// By class: the counter of the account whose demand ended last.
    last: [u64; Priority::COUNT],
    /// Number of `open` and `close` calls, the time scale of `AccountEntry::used`.
    openings: u64,
}

struct AccountEntry {
    weight: u64,
    /// Live requests. An entry with live requests is never evicted.
    requests: usize,
    /// Time of the last use, in openings.
    used: u64,
    counters: [FairShareCounter; Priority::COUNT],
}

#[derive(Clone, Copy, Default)]
struct FairShareCounter {
    counter: u64,
    /// Prompt tokens of started requests that are not computed yet. They count for the choice of the
    /// next request to start, but are charged only when they are computed: a new account is
    /// lifted to the service that others had, not to the service that they requested.
    uncharged: u64,
    /// Queued requests and sequences that have demand now.
    demand: usize,
    /// Time at which one of the account's requests was started last, and at which one had rows.
    started_ns: u64,
    rows_ns: u64,
}

/// Identifies an account's counter of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FairShareKey {
    index: usize,
    class: Priority,
}

impl FairShareKey {
    /// The key of a request whose account has no entry yet.
    pub(crate) fn unassigned(class: Priority) -> Self {
        let index = usize::MAX;
        Self { index, class }
    }

    pub(crate) fn class(self) -> Priority {
        self.class
    }
}

impl FairShares {
    /// `entries_max` accounts, at least one more than requests that may be alive.
    pub(crate) fn new(entries_max: usize) -> Self {
        Self {
            ids: Vec::with_capacity(entries_max),
            entries: Vec::with_capacity(entries_max),
            entries_max,
            last: [0; Priority::COUNT],
            openings: 0,
        }
    }

    /// Adds a live request of this account.
    pub(crate) fn open(&mut self, account: Account, class: Priority) -> FairShareKey {
        let known = self.ids.iter().position(|&id| id == account.id);
        let index = known.unwrap_or_else(|| self.new_entry(account.id));
        self.openings += 1;
        let entry = &mut self.entries[index];
        entry.weight = u64::from(account.weight.clamp(1, WEIGHT_MAX));
        entry.requests += 1;
        entry.used = self.openings;
        FairShareKey { index, class }
    }

    /// Removes a live request.
    pub(crate) fn close(&mut self, key: FairShareKey) {
        let entry = &mut self.entries[key.index];
        entry.requests -= 1;
        self.openings += 1;
        entry.used = self.openings;
    }

    /// A queued request or a sequence has demand from now on.
    pub(crate) fn begin_demand(&mut self, key: FairShareKey) {
        if self.counter_of(key).demand == 0 {
            let class = key.class as usize;
            let counters = self.entries.iter().map(|entry| entry.counters[class]);
            let demanding = counters.filter(|counter| counter.demand > 0);
            let least = demanding.map(|counter| counter.counter).min();
            let least = least.unwrap_or(self.last[class]);
            let counter = self.counter_mut(key);
            counter.counter = counter.counter.max(least);
        }
        self.counter_mut(key).demand += 1;
    }

    /// A queued request or a sequence has no demand any more.
    pub(crate) fn end_demand(&mut self, key: FairShareKey) {
        let counter = self.counter_mut(key);
        counter.demand -= 1;
        if counter.demand == 0 {
            self.last[key.class as usize] = counter.counter;
        }
    }

    /// Charges service that was given.
    pub(crate) fn charge(&mut self, key: FairShareKey, cost: u64) {
        let price = self.price(key, cost);
        let counter = self.counter_mut(key);
        counter.counter = counter.counter.saturating_add(price);
    }

    /// Adds the uncomputed prompt tokens of a request that starts.
    pub(crate) fn add_uncharged(&mut self, key: FairShareKey, tokens: usize) {
        self.counter_mut(key).uncharged += tokens as u64;
    }

    /// Charges prompt tokens that are computed in this step.
    pub(crate) fn charge_prefill(&mut self, key: FairShareKey, tokens: usize) {
        self.drop_uncharged(key, tokens);
        self.charge(key, PREFILL_COST * tokens as u64);
    }

    /// Removes prompt tokens that will not be computed.
    pub(crate) fn drop_uncharged(&mut self, key: FairShareKey, tokens: usize) {
        self.counter_mut(key).uncharged -= tokens as u64;
    }

    /// The counter after the prompts of all started requests are computed.
    pub(crate) fn projected_counter(&self, key: FairShareKey) -> u64 {
        let counter = self.counter_of(key);
        let price = self.price(key, PREFILL_COST * counter.uncharged);
        counter.counter.saturating_add(price)
    }

    /// Counter units of this cost.
    pub(crate) fn price(&self, key: FairShareKey, cost: u64) -> u64 {
        cost.saturating_mul(UNIT) / self.entries[key.index].weight
    }

    pub(crate) fn counter(&self, key: FairShareKey) -> u64 {
        self.counter_of(key).counter
    }

    pub(crate) fn set_started(&mut self, key: FairShareKey, now_ns: u64) {
        self.counter_mut(key).started_ns = now_ns;
    }

    pub(crate) fn started_ns(&self, key: FairShareKey) -> u64 {
        self.counter_of(key).started_ns
    }

    pub(crate) fn set_rows_given(&mut self, key: FairShareKey, now_ns: u64) {
        self.counter_mut(key).rows_ns = now_ns;
    }

    pub(crate) fn rows_given_ns(&self, key: FairShareKey) -> u64 {
        self.counter_of(key).rows_ns
    }

    /// Live requests, holders of demand and uncharged tokens, summed over accounts and classes.
    pub(crate) fn totals(&self) -> (usize, usize, u64) {
        let requests = self.entries.iter().map(|entry| entry.requests).sum();
        let counters = || self.entries.iter().flat_map(|entry| &entry.counters);
        let demand = counters().map(|counter| counter.demand).sum();
        let uncharged = counters().map(|counter| counter.uncharged).sum();
        (requests, demand, uncharged)
    }

    /// Adds an entry; in a full table the new entry replaces the least recently used one without live requests.
    fn new_entry(&mut self, id: u64) -> usize {
        let entry = AccountEntry {
            weight: 1,
            requests: 0,
            used: 0,
            counters: [FairShareCounter::default(); Priority::COUNT],
        };
        if self.entries.len() < self.entries_max {
            self.ids.push(id);
            self.entries.push(entry);
            return self.entries.len() - 1;
        }
        let unused = self.entries.iter().enumerate();
        let unused = unused.filter(|(_, entry)| entry.requests == 0);
        let (index, _) = unused
            .min_by_key(|(_, entry)| entry.used)
            .expect("fewer requests than entries");
        self.ids[index] = id;
        self.entries[index] = entry;
        index
    }

    fn counter_of(&self, key: FairShareKey) -> &FairShareCounter {
        &self.entries[key.index].counters[key.class as usize]
    }

    fn counter_mut(&mut self, key: FairShareKey) -> &mut FairShareCounter {
        &mut self.entries[key.index].counters[key.class as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(id: u64, weight: u32) -> Account {
        Account { id, weight }
    }

    #[test]
    fn new_account_is_lifted_to_the_lowest_counter_with_demand() {
        let mut accounts = FairShares::new(8);
        let a = accounts.open(account(1, 1), Priority::Normal);
        accounts.begin_demand(a);
        accounts.charge(a, 100);
        let b = accounts.open(account(2, 2), Priority::Normal);
        accounts.begin_demand(b);
        assert_eq!(
            accounts.counter(b),
            accounts.counter(a),
            "no claim saved up"
        );
        accounts.charge(b, 100);
        assert_eq!(accounts.counter(b), 150 * UNIT, "half the price");
        let elsewhere = accounts.open(account(3, 1), Priority::Low);
        accounts.begin_demand(elsewhere);
        assert_eq!(accounts.counter(elsewhere), 0, "another class");
    }

    #[test]
    fn account_without_rivals_starts_at_the_last_counter() {
        let mut accounts = FairShares::new(8);
        let a = accounts.open(account(1, 1), Priority::Normal);
        accounts.begin_demand(a);
        accounts.charge(a, 100);
        accounts.end_demand(a);
        let b = accounts.open(account(2, 1), Priority::Normal);
        accounts.begin_demand(b);
        accounts.begin_demand(a);
        assert_eq!(accounts.counter(a), accounts.counter(b));
    }

    #[test]
    fn full_table_evicts_the_least_recently_used_account() {
        let mut accounts = FairShares::new(3);
        let open = |accounts: &mut FairShares, id| accounts.open(account(id, 1), Priority::Normal);
        let kept = open(&mut accounts, 1);
        let old = open(&mut accounts, 2);
        let new = open(&mut accounts, 3);
        accounts.close(old);
        accounts.close(new);
        let next = open(&mut accounts, 4);
        assert_eq!(next.index, old.index);
        assert_eq!(open(&mut accounts, 1).index, kept.index, "known");
        assert_eq!(open(&mut accounts, 3).index, new.index, "still known");
        assert_eq!(accounts.totals(), (4, 0, 0));
    }
}
