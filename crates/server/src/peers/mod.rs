//! Other instances of the cluster, asked over HTTP on behalf of a caller.
//!
//! ```text
//! peer             the other instances and their addresses
//! passed_request   a caller's request, as it is sent to another instance
//! living_body      the body of an instance's response, which breaks off when the instance is gone
//! peer_calls       one request to many instances at once, within bounds of number, bytes and time
//! seal             what proves that a gateway of this cluster asks, or answers
//! scope            `?scope=`: this instance, or the cluster
//! unanswered       instances whose part of an answer is missing
//! ```
//!
//! Each instance checks what the caller may see: a request is passed on with the caller's headers and in the name of the
//! key's owner, and answers of other instances are put together unchanged. The key does not travel. A request that was passed
//! on carries [`FORWARDED`] and is answered from what the instance itself has, so that no request travels in a circle.

mod living_body;
mod passed_request;
mod peer;
mod peer_calls;
mod scope;
mod seal;
mod unanswered;

pub(crate) use living_body::LivingBody;
pub(crate) use passed_request::{FORWARDED, PassedRequest, ask};
pub(crate) use peer::{Peer, PeerReach, Peers};
pub(crate) use peer_calls::{FeedPlace, FirstHit, PeerAnswer, PeerCallCounts, PeerCalls};
pub(crate) use scope::ListScope;
pub(crate) use seal::{SealedRequest, SeenNonces};
pub(crate) use unanswered::Unanswered;
