//! All started requests and their sequences.
//!
//! A request has a *slot*, given by the inbox; a sequence has a *key*, given here, from the start of the
//! sequence to the step after the end. `order` holds the keys by age, so choices of a request are neighbors.
//! Removing a sequence empties the entry at once and frees the key in [`SequenceTable::sweep`], so that code
//! which walks `order` by index may end sequences on the way.

use crate::fair_share::FairShareKey;
use crate::request_state::RequestState;
use crate::sequence::{Sequence, SequenceState};

/// The tables of started requests and sequences.
pub(super) struct SequenceTable {
    /// By slot.
    requests: Vec<Option<RequestState>>,
    /// By key.
    sequences: Vec<Option<Sequence>>,
    /// Keys without a sequence.
    vacant: Vec<usize>,
    /// Keys, oldest sequence first.
    order: Vec<usize>,
}

impl SequenceTable {
    pub(super) fn new(sequences_max: usize, requests_max: usize) -> Self {
        Self {
            requests: (0..requests_max).map(|_| None).collect(),
            sequences: (0..sequences_max).map(|_| None).collect(),
            vacant: (0..sequences_max).rev().collect(),
            order: Vec::with_capacity(sequences_max),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sequences.iter().all(Option::is_none)
    }

    /// Sequences that can be started now.
    pub(super) fn vacancies(&self) -> usize {
        self.vacant.len()
    }

    /// Length of the age order, ended sequences included.
    pub(super) fn order_len(&self) -> usize {
        self.order.len()
    }

    /// The key at this index of the age order; the sequence may have ended.
    pub(super) fn key_at(&self, at: usize) -> usize {
        self.order[at]
    }

    /// The slot of the first live sequence at or after this index of the age order.
    pub(super) fn slot_at(&self, at: usize) -> Option<usize> {
        let mut keys = self.order.get(at..)?.iter();
        keys.find_map(|&key| Some(self.sequences[key].as_ref()?.slot))
    }

    /// Live sequences by age.
    pub(super) fn live(&self) -> impl DoubleEndedIterator<Item = (usize, &Sequence)> + Clone {
        self.order
            .iter()
            .filter_map(|&key| Some((key, self.sequences[key].as_ref()?)))
    }

    /// Live sequences in this state.
    pub(super) fn in_state(
        &self,
        state: SequenceState,
    ) -> impl Iterator<Item = (usize, &Sequence)> {
        self.live().filter(move |(_, s)| s.state == state)
    }

    /// Live sequences in no particular order.
    pub(super) fn sequences_mut(&mut self) -> impl Iterator<Item = &mut Sequence> {
        self.sequences.iter_mut().flatten()
    }

    pub(super) fn get(&self, key: usize) -> Option<&Sequence> {
        self.sequences[key].as_ref()
    }

    pub(super) fn get_mut(&mut self, key: usize) -> Option<&mut Sequence> {
        self.sequences[key].as_mut()
    }

    /// A sequence and the request of the sequence.
    pub(super) fn pair(&self, key: usize) -> Option<(&Sequence, &RequestState)> {
        let sequence = self.sequences[key].as_ref()?;
        Some((sequence, self.requests[sequence.slot].as_ref()?))
    }

    /// A sequence and the request of the sequence.
    pub(super) fn pair_mut(&mut self, key: usize) -> Option<(&mut Sequence, &mut RequestState)> {
        let sequence = self.sequences[key].as_mut()?;
        let request = self.requests[sequence.slot].as_mut()?;
        Some((sequence, request))
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = &RequestState> {
        self.requests.iter().flatten()
    }

    pub(super) fn request(&self, slot: usize) -> Option<&RequestState> {
        self.requests[slot].as_ref()
    }

    pub(super) fn request_mut(&mut self, slot: usize) -> Option<&mut RequestState> {
        self.requests[slot].as_mut()
    }

    /// The fair-share counter that pays for an open request.
    pub(super) fn fair_share(&self, slot: usize) -> FairShareKey {
        let request = self.requests[slot].as_ref();
        request.expect("an open choice has a request").fair_share
    }

    /// Whether the sequence under this key is live and belongs to the request in this slot.
    pub(super) fn belongs_to(&self, key: usize, slot: usize) -> bool {
        self.get(key).is_some_and(|s| s.slot == slot)
    }

    pub(super) fn insert_request(&mut self, request: RequestState) {
        let slot = request.slot;
        self.requests[slot] = Some(request);
    }

    pub(super) fn remove_request(&mut self, slot: usize) -> Option<RequestState> {
        self.requests[slot].take()
    }

    /// Inserts a sequence in the order of age.
    pub(super) fn insert(&mut self, sequence: Sequence) {
        let sequences = &self.sequences;
        let is_older = |key: &usize| {
            let other = sequences[*key].as_ref();
            other.is_some_and(|other| other.age < sequence.age)
        };
        let at = self.order.partition_point(is_older);
        let key = self.vacant.pop().expect("a vacant key for each sequence");
        self.order.insert(at, key);
        self.sequences[key] = Some(sequence);
    }

    /// Takes a sequence out: for good, or until [`SequenceTable::put_back`].
    pub(super) fn take(&mut self, key: usize) -> Option<Sequence> {
        self.sequences[key].take()
    }

    /// Returns a sequence that was taken out under this key.
    pub(super) fn put_back(&mut self, key: usize, sequence: Sequence) {
        self.sequences[key] = Some(sequence);
    }

    /// Frees the keys of ended sequences.
    pub(super) fn sweep(&mut self) {
        let (sequences, vacant) = (&self.sequences, &mut self.vacant);
        self.order.retain(|&key| {
            let lives = sequences[key].is_some();
            if !lives {
                vacant.push(key);
            }
            lives
        });
    }

    /// Panics unless every key is either vacant or in the age order, and every request has as many live
    /// sequences as open choices.
    pub(super) fn check(&self) {
        assert_eq!(
            self.order.len() + self.vacant.len(),
            self.sequences.len(),
            "each key is in order or vacant"
        );
        let live = self.sequences.iter().flatten().count();
        assert_eq!(self.live().count(), live, "each sequence is in order once");
        let ages = self.live().map(|(_, s)| s.age);
        assert!(ages.is_sorted_by(|a, b| a < b), "the order is by age");
        self.check_requests();
        for (_, sequence) in self.in_state(SequenceState::Forking) {
            let leads = |s: &Sequence| {
                s.slot == sequence.slot && s.generated() == 0 && s.state != SequenceState::Forking
            };
            assert!(
                self.live().any(|(_, s)| leads(s)),
                "a choice waits for a prompt that no choice computes"
            );
        }
    }

    fn check_requests(&self) {
        let (mut requests, mut at) = (0, self.live().peekable());
        while let Some((_, first)) = at.next() {
            let mut open = 1;
            while at.next_if(|(_, s)| s.slot == first.slot).is_some() {
                open += 1;
            }
            let request = self.requests[first.slot].as_ref();
            assert_eq!(
                request.map(|request| request.open_choices),
                Some(open),
                "open choices of a request"
            );
            requests += 1;
        }
        assert_eq!(
            self.requests().count(),
            requests,
            "requests without a choice"
        );
    }
}
