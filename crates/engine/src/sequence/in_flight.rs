//! Results of a sequence that have not come, of a model that runs ahead.

use super::Sequence;
use crate::request_state::RequestState;

/// The results of a sequence's last rows, which have not come. Taken away with the pages: what is lost is computed again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    /// Number of the batch.
    pub(crate) batch: u64,
    /// The draw that gives the next token. `None`: the rows come, and the token is sampled here; until then the rows'
    /// positions do not count as computed.
    pub(crate) draw: Option<u32>,
    /// Whether the next row may be computed before the token is known.
    pub(crate) may_follow: bool,
}

impl Sequence {
    /// The draw in flight that gives the next token.
    pub(crate) fn next_draw(&self) -> Option<u32> {
        self.in_flight?.draw
    }

    /// Whether the sequence may get rows: all tokens are known, or there is a token, and credit, after the one that is drawn.
    pub(crate) fn may_get_rows(&self, request: &RequestState) -> bool {
        let Some(in_flight) = self.in_flight else {
            return true;
        };
        in_flight.draw.is_some()
            && in_flight.may_follow
            && !request.update_waits
            && self.tokens_left() > 1
            && self.credit_left(request.credit_window) > 1
    }
}
