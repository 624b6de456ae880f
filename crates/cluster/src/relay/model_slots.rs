//! The models of a relay: added while the relay runs, and replaced after their handles were closed.

use crate::messages::{ContentIdentity, MODELS_MAX};
use engine::remote::RemoteInbox;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Models of one relay, closed ones with open requests included.
const SLOTS_MAX: usize = 2 * MODELS_MAX;

/// A model whose requests are relayed.
pub struct RelayedModel {
    /// Name in requests.
    pub key: String,
    /// Content, the arithmetic left out; engines with another one get no request.
    pub identity: ContentIdentity,
    /// Tokens that prompt and answer may have together; engines with a shorter context get no request.
    pub context_max: usize,
    /// Requests of the model's handle.
    pub inbox: RemoteInbox,
}

/// A model, by a number that its requests have.
pub(super) struct ModelSlot {
    pub(super) model: RelayedModel,
    /// For the placement: equal for equal content.
    pub(super) hash: u64,
    /// Whether the handles were dropped or shut down, as of the last look.
    pub(super) is_closed: bool,
}

/// All models of a relay, at most [`SLOTS_MAX`].
#[derive(Default)]
pub(super) struct ModelSlots(pub(super) Vec<ModelSlot>);

impl ModelSlots {
    /// Adds a model in a free place; `is_used` tells whether a closed model has requests. Returns the number; `None`: there
    /// are too many, and the model's handle rejects requests.
    pub(super) fn add(
        &mut self,
        model: RelayedModel,
        is_used: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut hasher = DefaultHasher::new();
        model.identity.hash(&mut hasher);
        let slot = ModelSlot {
            model,
            hash: hasher.finish(),
            is_closed: false,
        };
        let mut slots = self.0.iter().enumerate();
        let free = slots.find(|(index, slot)| slot.is_closed && !is_used(*index));
        match free.map(|(index, _)| index) {
            Some(index) => {
                self.0[index] = slot;
                Some(index)
            }
            None if self.0.len() < SLOTS_MAX => {
                self.0.push(slot);
                Some(self.0.len() - 1)
            }
            None => None,
        }
    }

    /// All models, in the order of their numbers.
    pub(super) fn models(&self) -> impl Iterator<Item = &RelayedModel> {
        self.0.iter().map(|slot| &slot.model)
    }

    /// Whether no handle could submit a request.
    pub(super) fn are_closed(&self) -> bool {
        self.0.iter().all(|slot| slot.is_closed)
    }
}
