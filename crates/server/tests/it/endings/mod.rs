//! Every way a request can end, told in every way it can be read: one ending each, in its dialect's
//! words, with its counts, and nothing after it; and whoever is beside it does not notice.
//!
//! One test is one column of the matrix: something happens to a server, and every way of [`ways`] is
//! there when it does. One state machine, `support::automaton`, judges all transcripts.

mod clocks;
mod cuts;
mod faults;
mod mutations;
mod scene;
mod socket;
mod socket_cuts;
mod ways;
