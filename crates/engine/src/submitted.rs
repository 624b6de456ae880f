//! A request between the caller's thread and the scheduler.

use crate::accounts::Share;
use crate::embedding::Pool;
use crate::places::Place;
use crate::prefix::Chain;
use crate::sequence::{Common, Room, Sequence, Told};
use crate::{Request, RequestId};

/// A request on its way to the scheduler. Everything it may need is allocated here, on the
/// caller's thread.
pub(crate) struct Submitted {
    pub(crate) common: Common,
    /// In choice order.
    pub(crate) sequences: Vec<Sequence>,
}

impl Submitted {
    pub(crate) fn new(request: Request, id: RequestId, slot: usize, room: Room) -> Self {
        let prompt = request.prompt;
        let open = request.choices.len();
        let salt = request.terms.salt;
        let mut sequences: Vec<_> = request
            .choices
            .into_iter()
            .enumerate()
            .map(|(i, choice)| {
                let mut sequence = Sequence::new(choice, i, slot, &prompt, room);
                (sequence.salt, sequence.chain) = (salt, Chain::Start(salt));
                sequence
            })
            .collect();
        if request.places.is_none() {
            sequences.iter_mut().for_each(|s| s.place = Place::Held);
        }
        if let Some(sequence) = sequences.first_mut() {
            sequence.pool = request.embedding.map(|it| Box::new(Pool::new(it)));
        }
        let common = Common {
            id,
            slot,
            sampling: request.sampling,
            eos: request.eos,
            deadline: request.deadline,
            credit_window: request.credit_window,
            progress: request.progress,
            places: request.places,
            held: request.held,
            prompt_tokens: prompt.len(),
            open,
            has_token: false,
            now_ns: 0,
            tokens_max: open * (prompt.len() + room.own_max),
            account: request.terms.account,
            clocks: request.terms.clocks,
            policy: request.terms.policy,
            since: request.terms.since,
            share: Share {
                place: usize::MAX,
                class: request.terms.class,
            },
            since_ns: 0,
            from_ns: 0,
            paused: false,
            paused_ns: 0,
            told: Told::Going,
        };
        Self { common, sequences }
    }

    /// Whether it can be started: it is not paused, and has a place.
    pub(crate) fn may_start(&self) -> bool {
        !self.common.paused && self.sequences[0].place == Place::Held
    }

    /// Its place in the queue, known when it is put there.
    pub(crate) fn set_age(&mut self, place: u64) {
        for sequence in &mut self.sequences {
            sequence.age.0 = place;
        }
    }
}
