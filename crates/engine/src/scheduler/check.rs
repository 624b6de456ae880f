//! What must hold after every step.

use super::Scheduler;
use crate::sequence::State;

impl Scheduler {
    /// Panics unless pages are conserved, every sequence is in exactly one state and consistent
    /// with its log, and every started request has as many open choices as it says.
    pub(crate) fn check(&mut self) {
        self.held.fill(0);
        for sequence in self.sequences.iter().flatten() {
            sequence.check(self.pages.page_tokens());
            for &page in &sequence.pages {
                self.held[page as usize] += 1;
            }
        }
        self.pages.check(&self.held);
        self.check_small();
        self.check_order();
        self.check_requests();
        self.check_accounts();
    }

    /// The draft model's pages are conserved too, and hold nothing beyond the tokens.
    fn check_small(&mut self) {
        let Some(small) = &self.small else {
            return;
        };
        self.held_small.fill(0);
        for sequence in self.sequences.iter().flatten() {
            let table = &sequence.drafts.table;
            let held = table.pages.len() * small.pages.page_tokens();
            assert!(
                table.computed <= sequence.tokens.len().min(held),
                "the draft model is ahead of the tokens or the pages"
            );
            for &page in &table.pages {
                self.held_small[page as usize] += 1;
            }
        }
        small.pages.check(&self.held_small);
    }

    /// What accounts are said to want is what waits and runs.
    fn check_accounts(&self) {
        let requests = self.queue.len() + self.requests.iter().flatten().count();
        let queued = self.queue.iter().filter(|s| !s.common.paused).count();
        let going = self
            .live()
            .filter(|(_, s)| s.state != State::Parked)
            .count();
        let owed = self.live().map(|(_, s)| s.owed as u64).sum();
        assert_eq!(
            self.accounts.totals(),
            (requests, queued + going, owed),
            "requests, wants and debts of accounts"
        );
    }

    fn check_order(&self) {
        assert_eq!(
            self.order.len() + self.vacant.len(),
            self.sequences.len(),
            "each key is in order or vacant"
        );
        let live = self.sequences.iter().flatten().count();
        assert_eq!(self.live().count(), live, "each sequence is in order once");
        let ages = self.live().map(|(_, s)| s.age);
        assert!(ages.is_sorted_by(|a, b| a < b), "the order is by age");
    }

    fn check_requests(&self) {
        let (mut requests, mut at) = (0, self.live().peekable());
        while let Some((_, first)) = at.next() {
            let mut open = 1;
            while at.next_if(|(_, s)| s.slot == first.slot).is_some() {
                open += 1;
            }
            let common = self.requests[first.slot].as_ref();
            assert_eq!(
                common.map(|c| c.open),
                Some(open),
                "open choices of a request"
            );
            requests += 1;
        }
        assert_eq!(
            self.requests.iter().flatten().count(),
            requests,
            "requests without a choice"
        );
        for (_, sequence) in self.live().filter(|(_, s)| s.state == State::Forking) {
            let leads = |s: &crate::sequence::Sequence| {
                s.slot == sequence.slot && s.own() == 0 && s.state != State::Forking
            };
            assert!(
                self.live().any(|(_, s)| leads(s)),
                "a choice waits for nobody's prompt"
            );
        }
    }
}
