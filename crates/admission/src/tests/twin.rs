//! Random operations, on the core and on a twin that is too simple to be wrong.
//!
//! Promise (Admission and keys): the admission core conserves slots, pages and seats after every operation, and
//! grants first and further slots by its rules.

pub(crate) mod naive;

use self::naive::{DEPTH, Is, Naive, OPEN, PAGES, SEATS, STREAMS, Twin, WEIGHTS};
use super::*;
use crate::rejection::Rejection;
use engine::Account;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Arrive {
        class: usize,
        account: usize,
        streams: usize,
        pages: usize,
        patience_ms: Option<u64>,
    },
    Leave(usize),
    Settle {
        who: usize,
        pages: usize,
    },
    Poll(usize),
    Want(usize),
    WantNot(usize),
    Take(usize),
    IsRecalled(usize),
    GiveBack(usize, bool),
    FirstToken(usize),
    Pass {
        ms: u64,
    },
    Close,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0..5usize, 0..3usize, 0..8usize, 0..=PAGES, prop::option::weighted(0.2, 1..4000u64))
            .prop_map(|(class, account, n, pages, patience_ms)| {
                let streams = n.saturating_sub(2).max(1);
                Op::Arrive { class, account, streams, pages: pages.saturating_sub(PAGES / 2).max(1), patience_ms }
            }),
        5 => any::<usize>().prop_map(Op::Leave),
        3 => (any::<usize>(), 1..=PAGES).prop_map(|(who, pages)| Op::Settle { who, pages }),
        4 => any::<usize>().prop_map(Op::Poll),
        6 => any::<usize>().prop_map(Op::Want),
        2 => any::<usize>().prop_map(Op::WantNot),
        6 => any::<usize>().prop_map(Op::Take),
        2 => any::<usize>().prop_map(Op::IsRecalled),
        5 => any::<(usize, bool)>().prop_map(|(who, more)| Op::GiveBack(who, more)),
        2 => any::<usize>().prop_map(Op::FirstToken),
        4 => (1..2000u64).prop_map(|ms| Op::Pass { ms }),
        1 => prop::bool::weighted(0.02).prop_map(|yes| if yes { Op::Close } else { Op::Pass { ms: 1 } }),
    ]
}

struct Pair {
    core: Core,
    naive: Naive,
    now: Instant,
    ids: u64,
    closed: bool,
}

impl Pair {
    fn new() -> Self {
        let bounds = AdmissionBounds {
            open_max: OPEN,
            seats: SEATS,
            pages_limit: PAGES,
            queue: QueueLimits {
                max_depth: DEPTH,
                timeout: 10 * S,
                ageing: S,
            },
            ..fixed(STREAMS, DEPTH)
        };
        let now = start();
        Self {
            core: Core::new(bounds, now),
            naive: Naive::default(),
            now,
            ids: 0,
            closed: false,
        }
    }

    fn apply(&mut self, op: &Op) {
        let now = self.now;
        match *op {
            Op::Arrive {
                class,
                account,
                streams,
                pages,
                patience_ms,
            } => {
                let deadline = patience_ms.map(|ms| now + ms as u32 * MS);
                self.arrive((class, account), (streams, pages), deadline);
            }
            Op::Pass { ms } => self.now += ms as u32 * MS,
            Op::Close => {
                self.closed = true;
                self.core.close(now);
                for t in self.naive.all.iter_mut().filter(|t| t.is == Is::Waiting) {
                    t.is = Is::Rejected;
                }
                self.naive.grant(now);
            }
            Op::Leave(who)
            | Op::Settle { who, .. }
            | Op::Poll(who)
            | Op::Want(who)
            | Op::WantNot(who)
            | Op::Take(who)
            | Op::IsRecalled(who)
            | Op::GiveBack(who, _)
            | Op::FirstToken(who) => {
                if !self.naive.all.is_empty() {
                    self.touch(op, who % self.naive.all.len());
                }
            }
        }
    }

    fn arrive(
        &mut self,
        (class, account): (usize, usize),
        (streams, pages): (usize, usize),
        deadline: Option<Instant>,
    ) {
        let now = self.now;
        self.naive.grant(now);
        let new = Twin {
            id: self.ids,
            class,
            account,
            due: now + class as u32 * S,
            until: deadline.unwrap_or(now + 10 * S).min(now + 10 * S),
            deadline,
            streams,
            pages,
            more: pages.div_ceil(2),
            is: Is::Waiting,
            aside: None,
            held: 0,
            free: 0,
            claims: 0,
            recalled: 0,
            is_recallable: streams % 2 == 0,
        };
        let (at_once, room) = self.naive.room_for(&new, now);
        let mut asked = AdmissionRequest {
            deadline,
            is_recallable: new.is_recallable,
            account: Account {
                id: account as u64,
                weight: WEIGHTS[account] as u32,
            },
            ..request(Priority::ALL[class], pages, 10)
        };
        (asked.need.streams, asked.need.pages_more) = (streams, new.more);
        match self.core.add_ticket(asked, now) {
            Ok(id) => {
                assert!(room && !self.closed, "let in without room");
                assert_eq!(id, self.ids);
                self.ids += 1;
                self.naive.all.push(new);
                self.naive.grant(now);
            }
            Err(Rejection::QueueFull { .. }) => {
                let kept = !at_once && self.naive.is_nearly_full();
                assert!((!room || kept) && !self.closed);
            }
            Err(Rejection::Closed { .. }) => assert!(self.closed),
            Err(Rejection::WaitTooLong { .. }) => assert!(!at_once),
            Err(Rejection::Unattainable { .. }) => assert!(deadline.is_some()),
            Err(rejection) => panic!("{rejection:?}"),
        }
    }

    fn touch(&mut self, op: &Op, i: usize) {
        let (now, id) = (self.now, self.naive.all[i].id);
        match *op {
            Op::Leave(_) => {
                self.core.remove_ticket(id, now);
                self.naive.all.remove(i);
                self.naive.forget();
            }
            Op::Settle { pages, .. } if self.naive.all[i].is == Is::Running => {
                self.settle(i, pages);
            }
            Op::Poll(_) => return self.poll(i),
            Op::FirstToken(_) => self.core.first_token(id, now, now),
            _ if self.naive.all[i].is == Is::Running => return self.use_places(op, i),
            _ => return,
        }
        self.naive.grant(now);
    }

    fn settle(&mut self, i: usize, pages: usize) {
        let (now, all) = (self.now, self.naive.pages());
        let old = &self.naive.all[i];
        let new = Twin {
            pages,
            more: pages.div_ceil(2),
            ..old.clone()
        };
        let (had, wants) = (old.pages_for(old.held), new.pages_for(old.held));
        let stays = wants <= had || all - had + wants <= PAGES;
        let need = ResourceEstimate {
            streams: new.streams,
            pages,
            pages_more: new.more,
            prompt_tokens: 7,
        };
        assert_eq!(self.core.update_estimate(new.id, need, now), stays);
        let t = &mut self.naive.all[i];
        *t = new;
        if !stays {
            (t.is, t.held, t.free, t.claims, t.recalled) = (Is::Waiting, 0, 0, 0, 0);
            t.until = t.deadline.unwrap_or(now + 10 * S).min(now + 10 * S);
        }
    }

    fn poll(&mut self, i: usize) {
        let now = self.now;
        let t = &mut self.naive.all[i];
        if t.is == Is::Waiting && t.until <= now {
            t.is = Is::Rejected;
        }
        let id = t.id;
        self.naive.grant(now);
        let is = self.naive.all[i].is;
        let status = poll(&mut self.core, id, now);
        assert_eq!(told(status), is, "{status:?}");
        if is == Is::Rejected {
            self.naive.all.remove(i);
            self.naive.forget();
        }
    }

    /// As the engine does: who has not asked gives nothing back.
    fn use_places(&mut self, op: &Op, i: usize) {
        let (now, t) = (self.now, &mut self.naive.all[i]);
        match *op {
            Op::Want(_) if t.claims + t.held - t.free < t.streams => {
                self.core.request_slot(t.id, now);
                t.claims += 1;
            }
            Op::WantNot(_) if t.claims > 0 => {
                self.core.cancel_slot_request(t.id, now);
                t.claims -= 1;
                let excess = t.free.saturating_sub(t.claims);
                t.free -= excess;
                t.give(excess);
            }
            Op::Take(_) => {
                let there = t.free > 0 && t.claims > 0;
                assert_eq!(self.core.take_slot(t.id), there);
                if there {
                    (t.free, t.claims) = (t.free - 1, t.claims - 1);
                }
                return;
            }
            Op::IsRecalled(_) => {
                let id = t.id;
                if self.naive.in_line() == 0 {
                    self.naive.all[i].recalled = 0;
                }
                let is_recalled = self.naive.all[i].recalled > 0;
                assert_eq!(self.core.is_recalled(id), is_recalled);
                return;
            }
            Op::GiveBack(_, more) if t.held > t.free => {
                self.core.return_slot(t.id, more, now);
                if t.held == 1 && (t.claims > t.free || more) {
                    t.free += 1;
                } else {
                    t.give(1);
                }
            }
            _ => return,
        }
        self.naive.grant(now);
    }

    fn compare(&self) {
        self.core.check_invariants();
        let snapshot = self.core.snapshot();
        assert_eq!(snapshot.open, self.naive.count(Is::Running));
        assert_eq!(snapshot.running, self.naive.slots());
        assert_eq!(snapshot.waiting, self.naive.count(Is::Waiting));
        assert_eq!(snapshot.pages_reserved, self.naive.pages());
        assert_eq!(self.core.held_tickets(), self.naive.all.len());
        for t in &self.naive.all {
            let position = (t.is == Is::Waiting).then(|| self.naive.position(t, self.now));
            let told = self.core.queue_position(t.id, self.now);
            assert_eq!(told, position, "position of {}", t.id);
        }
    }
}

fn told(status: TicketStatus) -> Is {
    match status {
        TicketStatus::Waiting { .. } => Is::Waiting,
        TicketStatus::Running => Is::Running,
        TicketStatus::Rejected(_) => Is::Rejected,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order: the two agree on who runs, who waits where, and how much is
    /// promised; and when all have left nothing is.
    #[test]
    fn core_agrees_with_the_reference_implementation(ops in prop::collection::vec(op(), 1..300)) {
        let mut pair = Pair::new();
        for op in &ops {
            pair.apply(op);
            pair.compare();
        }
        while !pair.naive.all.is_empty() {
            pair.apply(&Op::Leave(0));
            pair.compare();
        }
        let left = pair.core.snapshot();
        prop_assert_eq!((left.open, left.running, left.waiting), (0, 0, 0));
        prop_assert_eq!((left.pages_reserved, left.prefill_pending), (0, 0));
    }
}
