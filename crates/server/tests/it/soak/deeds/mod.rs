//! What a client may do, one thing after the other, from a seed.

mod acknowledge;
mod answer;
mod control;
mod jobs;
pub(crate) mod question;
mod read;
mod resume;
mod sockets;

use crate::support::Rig;
use std::time::Duration;

/// What it is called, and how it is done.
pub(crate) type Deed = (&'static str, fn(&mut Actor, &Rig) -> Outcome);

/// Everything an actor does.
pub(crate) const DEEDS: [Deed; 27] = [
    ("read", read::read),
    ("whole", read::whole),
    ("leave", read::leave),
    ("vanish", read::vanish),
    ("stall", read::stall),
    ("hurry", read::hurry),
    ("err", read::err),
    ("cut and resume", resume::in_its_dialect),
    ("resume in another dialect", resume::in_another),
    ("two readers", resume::two_readers),
    ("keep a response", resume::kept),
    ("acknowledge", acknowledge::one_by_one),
    ("acknowledge in batches", acknowledge::in_batches),
    ("pause", control::pause),
    ("cancel", control::cancel),
    ("look around", control::look),
    ("watch a job", jobs::watch),
    ("cancel a job", jobs::cancel),
    ("socket: read", sockets::read),
    ("socket: acknowledge", sockets::acknowledge),
    ("socket: in batches", sockets::in_batches),
    ("socket: pause", sockets::pause),
    ("socket: cancel", sockets::cancel),
    ("socket: detach", sockets::detach),
    ("socket: attach", sockets::attach),
    ("socket: cut", sockets::cut),
    ("socket: leave", sockets::leave),
];

/// What came of it. What must not be panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// No room, and none in time: told so.
    NoRoom,
    /// More than its key may.
    OverLimit,
    /// It came back too late: nothing is kept for long here.
    Gone,
}

impl Outcome {
    /// All there are, in the order of a [`Tally`].
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Done, "done"),
        (Self::NoRoom, "no room"),
        (Self::OverLimit, "over its limit"),
        (Self::Gone, "too late"),
    ];

    /// What an answer's status means, of those that refuse.
    fn of_status(status: u16) -> Option<Self> {
        match status {
            503 | 504 | 529 => Some(Self::NoRoom),
            429 => Some(Self::OverLimit),
            404 | 410 | 499 => Some(Self::Gone),
            _ => None,
        }
    }
}

impl Outcome {
    /// What the words of an error mean that is told in a stream.
    fn of_words(words: &str) -> Option<Self> {
        let words = words.to_ascii_lowercase();
        let meant = [
            ("(queue)", Self::NoRoom),
            ("this key may", Self::OverLimit),
            ("cancelled", Self::Gone),
        ];
        let meant = meant.iter().find(|(says, _)| words.contains(says));
        meant.map(|(_, outcome)| *outcome)
    }
}

/// How often a deed had each outcome.
pub(crate) type Tally = [u64; Outcome::ALL.len()];

/// One client.
pub(crate) struct Actor {
    state: u64,
    /// Its key, and one that is not its own.
    keys: [&'static str; 2],
}

impl Actor {
    pub(crate) fn new(seed: u64, keys: [&'static str; 2]) -> Self {
        Self { state: seed, keys }
    }

    /// Does one of these; says which.
    pub(crate) fn act(&mut self, deeds: &[Deed], rig: &Rig) -> (usize, Outcome) {
        let which = self.below(deeds.len());
        (which, deeds[which].1(self, rig))
    }

    /// Waits for as long as passes between events that know nothing of each other.
    pub(crate) fn rest(&mut self, mean: Duration) {
        let unit = (self.bits() >> 11) as f64 / (1u64 << 53) as f64;
        std::thread::park_timeout(mean.mul_f64(-(1.0 - unit).ln()));
    }

    /// A key that is not its own.
    pub(crate) fn foreign_key(&self) -> &'static str {
        self.keys[1]
    }

    /// The header field that says who it is.
    pub(crate) fn field(&self) -> String {
        field(self.keys[0])
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// splitmix64.
    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The header field that presents a key.
pub(crate) fn field(key: &str) -> String {
    format!("authorization: Bearer {key}\r\n")
}
