//! Every end of a request, read in every way: exactly one end, as the wire protocol represents it, with token counts, and
//! nothing after it. A stream beside it is not affected.
//!
//! One test is one column of the matrix: an event happens to a server while a request of each way of [`ways`] is running.
//! One state machine, `support::automaton`, checks all transcripts.

mod clocks;
mod cuts;
mod faults;
mod mutations;
mod scene;
mod socket;
mod socket_cuts;
mod ways;
