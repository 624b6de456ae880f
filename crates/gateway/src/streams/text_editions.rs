//! Editions of a stream's text.
//!
//! The owner of a stream may have told tokens that were not stored when it died. The next owner then has fewer tokens than
//! clients have, and the tokens after them may come out otherwise where the arithmetic of the engines is not equal bit for
//! bit. Such an owner begins an *edition*: the text after the tokens that were stored. Cursors name the edition that they
//! belong to. A client whose cursor is of an earlier edition, and behind the beginning of a later one, has tokens that are
//! told no more; it is told where to read on.
//!
//! No edition begins where an engine that still computes the stream goes on with it: that engine has the tokens that clients
//! have. If the engine is lost later, the tokens that came from it are there, and an edition begins after them.

use generate::output::position::Position;
use generate::text_edition::TextEdition;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use tokio::sync::watch;

/// Editions that are kept; the two oldest become one, which begins at the earlier place.
pub(crate) const EDITIONS_MAX: usize = 4;

/// An edition of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Edition {
    /// Number, larger than that of any earlier edition, and not 0.
    pub number: u64,
    /// By choice: steps that are those of the edition before.
    pub steps: Vec<u64>,
}

/// Whether an edition begins with this owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum NextEdition {
    /// None begins.
    #[default]
    None,
    /// Not known, and the stream is not submitted.
    Expected,
    /// This one begins unless all of so many requests are adopted.
    Proposed { edition: Edition, requests: usize },
    /// All requests were adopted: an edition with this number begins if one is computed again.
    Adopted(u64),
}

#[derive(Debug, Default)]
struct EditionState {
    begun: Vec<Edition>,
    next: NextEdition,
}

/// The editions of one stream.
#[derive(Debug)]
pub(crate) struct TextEditions {
    told: TextEdition,
    /// Only of a stream that was taken over: a channel is as large as the rest of an idle stream's state.
    state: OnceLock<watch::Sender<EditionState>>,
}

/// What a cursor means to the owner of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CursorText {
    /// The client has the text that is told here.
    Same,
    /// The client may have another text after these positions.
    Diverged(Vec<Position>),
    /// Not known yet.
    Undecided,
}

impl TextEditions {
    /// The editions of a stream of this process; `told` is the number in cursors.
    pub(crate) fn new(told: TextEdition) -> Self {
        Self {
            told,
            state: OnceLock::new(),
        }
    }

    fn state(&self) -> &watch::Sender<EditionState> {
        self.state
            .get_or_init(|| watch::Sender::new(EditionState::default()))
    }

    fn next(&self) -> NextEdition {
        let state = self.state.get();
        state.map_or(NextEdition::None, |state| state.borrow().next.clone())
    }

    /// The editions of earlier owners.
    pub(crate) fn restore(&self, editions: &[Edition]) {
        if editions.is_empty() {
            return;
        }
        self.state().send_modify(|state| {
            state.begun = editions.to_vec();
            self.told.set(state.last());
        });
    }

    /// The stream was taken over from an owner that may have told more than is stored.
    pub(crate) fn expect(&self) {
        self.state()
            .send_modify(|state| state.next = NextEdition::Expected);
    }

    /// Whether an edition may begin with this owner.
    pub(crate) fn may_begin(&self) -> bool {
        self.next() != NextEdition::None
    }

    /// Whether it is to be decided if an edition begins.
    pub(crate) fn is_expected(&self) -> bool {
        matches!(
            self.next(),
            NextEdition::Expected | NextEdition::Proposed { .. }
        )
    }

    /// The tokens to come are equal to those that clients have, or there are none to come.
    pub(crate) fn settle(&self) {
        if let Some(state) = self.state.get() {
            state.send_modify(|state| state.next = NextEdition::None);
        }
    }

    /// An edition begins after so many steps of each choice, unless all requests are adopted. To be called before the
    /// submission, and [`Self::set_requests`] at the submission.
    pub(crate) fn propose(&self, steps: Vec<u64>, number: u64) {
        self.state().send_modify(|state| {
            let number = number.max(state.last() + 1);
            let edition = Edition { number, steps };
            let requests = usize::MAX;
            state.next = NextEdition::Proposed { edition, requests };
        });
    }

    /// So many requests are submitted; without one, every choice has ended, and no token is to come.
    pub(crate) fn set_requests(&self, count: usize) {
        let Some(state) = self.state.get() else {
            return;
        };
        state.send_if_modified(|state| {
            let NextEdition::Proposed { requests, .. } = &mut state.next else {
                return false;
            };
            *requests = count;
            if count == 0 {
                state.next = NextEdition::None;
            }
            true
        });
    }

    /// An engine goes on with a request. Returns whether all requests have been adopted now.
    pub(crate) fn adopt(&self) -> bool {
        let mut is_last = false;
        self.state().send_if_modified(|state| {
            if let NextEdition::Proposed { edition, requests } = &mut state.next {
                *requests = requests.saturating_sub(1);
                is_last = *requests == 0;
                if is_last {
                    state.next = NextEdition::Adopted(edition.number);
                }
            }
            is_last
        });
        is_last
    }

    /// A request is computed again; `steps` are there now. Returns whether an edition begins.
    pub(crate) fn begin(&self, steps: impl FnOnce() -> Vec<u64>) -> bool {
        let mut has_begun = false;
        self.state().send_if_modified(|state| {
            let edition = match std::mem::replace(&mut state.next, NextEdition::None) {
                NextEdition::Proposed { edition, .. } => edition,
                NextEdition::Adopted(number) => Edition {
                    number,
                    steps: steps(),
                },
                next => {
                    state.next = next;
                    return false;
                }
            };
            state.push(edition);
            self.told.set(state.last());
            has_begun = true;
            true
        });
        has_begun
    }

    /// The editions for a later owner: with the one that may begin.
    pub(crate) fn recorded(&self) -> Vec<Edition> {
        let Some(state) = self.state.get() else {
            return Vec::new();
        };
        let state = state.borrow();
        let mut recorded = EditionState {
            begun: state.begun.clone(),
            next: NextEdition::None,
        };
        if let NextEdition::Proposed { edition, .. } = &state.next {
            recorded.push(edition.clone());
        }
        recorded.begun
    }

    /// Compares the text of a client that has these positions of this edition.
    pub(crate) fn compare(&self, positions: &[Position], edition: u64) -> CursorText {
        let Some(state) = self.state.get() else {
            return CursorText::Same;
        };
        let state = state.borrow();
        let mut place = positions.to_vec();
        for later in state.begun.iter().filter(|later| later.number > edition) {
            later.cut(&mut place);
        }
        if place != positions {
            return CursorText::Diverged(place);
        }
        match &state.next {
            NextEdition::None | NextEdition::Adopted(_) => CursorText::Same,
            NextEdition::Expected if positions.iter().all(|place| place.begun() == 0) => {
                CursorText::Same
            }
            NextEdition::Expected => CursorText::Undecided,
            NextEdition::Proposed { edition, .. } => {
                edition.cut(&mut place);
                match place == positions {
                    true => CursorText::Same,
                    false => CursorText::Undecided,
                }
            }
        }
    }

    /// Waits until [`Self::compare`] is not [`CursorText::Undecided`].
    pub(crate) async fn decided(&self, positions: &[Position], edition: u64) {
        let Some(state) = self.state.get() else {
            return;
        };
        let mut changes = state.subscribe();
        while self.compare(positions, edition) == CursorText::Undecided {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Edition {
    /// Moves positions that this edition does not share with the one before to its beginning.
    fn cut(&self, positions: &mut [Position]) {
        for (position, &steps) in positions.iter_mut().zip(&self.steps) {
            if position.begun() > steps {
                *position = Position::whole(steps);
            }
        }
    }
}

impl EditionState {
    fn last(&self) -> u64 {
        self.begun.last().map_or(0, |edition| edition.number)
    }

    fn push(&mut self, edition: Edition) {
        self.begun.push(edition);
        while self.begun.len() > EDITIONS_MAX {
            let oldest = self.begun.remove(0);
            let next = &mut self.begun[0];
            for (steps, before) in next.steps.iter_mut().zip(oldest.steps) {
                *steps = before.min(*steps);
            }
        }
    }
}

#[cfg(test)]
mod tests;
