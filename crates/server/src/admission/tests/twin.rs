//! Random operations, on the core and on a twin that is too simple to be wrong.

use super::*;
use crate::admission::refusal::Refusal;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Arrive {
        class: usize,
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
    FirstToken(usize),
    Pass {
        ms: u64,
    },
    Close,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0..5usize, 0..8usize, 1..=PAGES, prop::option::weighted(0.2, 1..4000u64))
            .prop_map(|(class, n, pages, patience_ms)| Op::Arrive { class, streams: n.saturating_sub(2).max(1), pages, patience_ms }),
        5 => any::<usize>().prop_map(Op::Leave),
        3 => (any::<usize>(), 1..=PAGES).prop_map(|(who, pages)| Op::Settle { who, pages }),
        4 => any::<usize>().prop_map(Op::Poll),
        2 => any::<usize>().prop_map(Op::FirstToken),
        4 => (1..2000u64).prop_map(|ms| Op::Pass { ms }),
        1 => prop::bool::weighted(0.02).prop_map(|yes| if yes { Op::Close } else { Op::Pass { ms: 1 } }),
    ]
}

const STREAMS: usize = 4;
const DEPTH: usize = 16;
const OPEN: usize = 24;
const PAGES: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Is {
    Waiting,
    Running,
    Refused,
}

#[derive(Clone, Debug)]
struct Twin {
    id: u64,
    class: usize,
    due: Instant,
    until: Instant,
    deadline: Option<Instant>,
    streams: usize,
    pages: usize,
    is: Is,
}

/// Every question is answered by looking at everything.
#[derive(Default)]
struct Naive(Vec<Twin>);

impl Naive {
    fn count(&self, is: Is) -> usize {
        self.0.iter().filter(|t| t.is == is).count()
    }

    fn pages(&self) -> usize {
        let running = self.0.iter().filter(|t| t.is == Is::Running);
        running.map(|t| t.pages).sum()
    }

    fn streams(&self) -> usize {
        let running = self.0.iter().filter(|t| t.is == Is::Running);
        running.map(|t| t.streams).sum()
    }

    fn fits(&self, t: &Twin) -> bool {
        let alone = self.streams() == 0;
        (alone || self.streams() + t.streams <= STREAMS) && self.pages() + t.pages <= PAGES
    }

    fn first(&self) -> Option<usize> {
        let waiting = (0..self.0.len()).filter(|&i| self.0[i].is == Is::Waiting);
        waiting.min_by_key(|&i| (self.0[i].due, self.0[i].id))
    }

    fn grant(&mut self, now: Instant) {
        while let Some(i) = self.first() {
            let fits = self.fits(&self.0[i]);
            self.0[i].is = match fits {
                _ if self.0[i].until <= now => Is::Refused,
                true => Is::Running,
                false => return,
            };
        }
    }

    fn has_room(&self, class: usize) -> bool {
        let of_class = |t: &&Twin| t.is == Is::Waiting && t.class == class;
        self.count(Is::Waiting) < DEPTH || self.0.iter().filter(of_class).count() < DEPTH / 16
    }

    /// Whether places may be kept for those who were told to come back.
    fn is_nearly_full(&self) -> bool {
        let waiting = self.count(Is::Waiting);
        waiting >= DEPTH - DEPTH / 4 || self.count(Is::Running) + waiting >= OPEN - OPEN / 4
    }

    /// Whether it would be let in at once, and whether there is a place for it at all.
    fn room_for(&self, new: &Twin) -> (bool, bool) {
        let ahead = |t: &Twin| t.is == Is::Waiting && (t.due, t.id) < (new.due, new.id);
        let at_once = !self.0.iter().any(ahead) && self.fits(new);
        let open = self.count(Is::Running) + self.count(Is::Waiting);
        (
            at_once,
            open < OPEN && (at_once || self.has_room(new.class)),
        )
    }
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
        let bounds = Bounds {
            open_max: OPEN,
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
                streams,
                pages,
                patience_ms,
            } => self.arrive(class, streams, pages, patience_ms),
            Op::Pass { ms } => self.now += ms as u32 * MS,
            Op::Close => {
                self.closed = true;
                self.core.close(now);
                for t in self.naive.0.iter_mut().filter(|t| t.is == Is::Waiting) {
                    t.is = Is::Refused;
                }
            }
            Op::Leave(who) | Op::Settle { who, .. } | Op::Poll(who) | Op::FirstToken(who) => {
                if !self.naive.0.is_empty() {
                    self.touch(op, who % self.naive.0.len());
                }
            }
        }
    }

    fn arrive(&mut self, class: usize, streams: usize, pages: usize, patience_ms: Option<u64>) {
        let now = self.now;
        self.naive.grant(now);
        let deadline = patience_ms.map(|ms| now + ms as u32 * MS);
        let new = Twin {
            id: self.ids,
            class,
            due: now + class as u32 * S,
            until: deadline.unwrap_or(now + 10 * S).min(now + 10 * S),
            deadline,
            streams,
            pages,
            is: Is::Waiting,
        };
        let (at_once, room) = self.naive.room_for(&new);
        let mut asked = Asking {
            deadline,
            ..asking(Class::ALL[class], pages, 10)
        };
        asked.need.streams = streams;
        match self.core.arrive(asked, now) {
            Ok(id) => {
                assert!(room && !self.closed, "let in without room");
                assert_eq!(id, self.ids);
                self.ids += 1;
                self.naive.0.push(new);
                self.naive.grant(now);
            }
            Err(Refusal::QueueFull { .. }) => {
                let kept = !at_once && self.naive.is_nearly_full();
                assert!((!room || kept) && !self.closed);
            }
            Err(Refusal::Closed { .. }) => assert!(self.closed),
            Err(Refusal::WaitTooLong { .. }) => assert!(!at_once),
            Err(Refusal::Unattainable { .. }) => assert!(deadline.is_some()),
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    fn touch(&mut self, op: &Op, i: usize) {
        let (now, id) = (self.now, self.naive.0[i].id);
        match *op {
            Op::Leave(_) => {
                self.core.leave(id, now);
                self.naive.0.remove(i);
            }
            Op::Settle { pages, .. } if self.naive.0[i].is == Is::Running => {
                let (old, all) = (self.naive.0[i].pages, self.naive.pages());
                let stays = pages <= old || all - old + pages <= PAGES;
                let need = Need {
                    streams: self.naive.0[i].streams,
                    pages,
                    prompt_tokens: 7,
                };
                assert_eq!(self.core.settle(id, need, now), stays);
                let t = &mut self.naive.0[i];
                t.pages = pages;
                if !stays {
                    t.is = Is::Waiting;
                    t.until = t.deadline.unwrap_or(now + 10 * S).min(now + 10 * S);
                }
            }
            Op::Poll(_) => {
                let t = &mut self.naive.0[i];
                if t.is == Is::Waiting && t.until <= now {
                    t.is = Is::Refused;
                }
                self.naive.grant(now);
                let is = self.naive.0[i].is;
                let standing = poll(&mut self.core, id, now);
                assert_eq!(told(standing), is, "{standing:?}");
                if is == Is::Refused {
                    self.naive.0.remove(i);
                }
            }
            Op::FirstToken(_) => self.core.first_token(id, now, now),
            _ => return,
        }
        self.naive.grant(now);
    }

    fn compare(&self) {
        self.core.check();
        let snapshot = self.core.snapshot();
        assert_eq!(snapshot.open, self.naive.count(Is::Running));
        assert_eq!(snapshot.running, self.naive.streams());
        assert_eq!(snapshot.waiting, self.naive.count(Is::Waiting));
        assert_eq!(snapshot.pages_reserved, self.naive.pages());
        assert_eq!(self.core.held(), self.naive.0.len());
        for t in &self.naive.0 {
            let ahead = |o: &&Twin| o.is == Is::Waiting && (o.due, o.id) < (t.due, t.id);
            let position = self.naive.0.iter().filter(ahead).count() + 1;
            let want = (t.is == Is::Waiting).then_some(position);
            assert_eq!(self.core.position(t.id), want, "position of {}", t.id);
        }
    }
}

fn told(standing: Standing) -> Is {
    match standing {
        Standing::Waiting { .. } => Is::Waiting,
        Standing::Running => Is::Running,
        Standing::Refused(_) => Is::Refused,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order: the two agree on who runs, who waits where, and how much is
    /// promised; and when all have left nothing is.
    #[test]
    fn core_and_twin_agree(ops in prop::collection::vec(op(), 1..300)) {
        let mut pair = Pair::new();
        for op in &ops {
            pair.apply(op);
            pair.compare();
        }
        while !pair.naive.0.is_empty() {
            pair.apply(&Op::Leave(0));
            pair.compare();
        }
        let left = pair.core.snapshot();
        prop_assert_eq!((left.open, left.running, left.waiting), (0, 0, 0));
        prop_assert_eq!((left.pages_reserved, left.prefill_pending), (0, 0));
    }
}
