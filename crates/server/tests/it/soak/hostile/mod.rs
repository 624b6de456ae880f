//! What a broken or malicious client does, at every stage of a request, in every dialect and over WebSockets.

mod request;
mod stream;
mod websocket;
mod wire;

use crate::soak::deeds::Deed;

/// Every hostile action.
pub(crate) const HOSTILE: [Deed; 25] = [
    ("hostile: connect only", request::connect_only),
    ("hostile: cut head", request::cut_head),
    ("hostile: cut body", request::cut_body),
    ("hostile: half-close", request::half_close),
    ("hostile: slow head", request::slow_head),
    ("hostile: slow body", request::slow_body),
    ("hostile: storm", request::storm),
    ("hostile: pipeline", request::pipeline),
    ("hostile: random bytes", request::random_bytes),
    ("hostile: mutated body", request::mutated_body),
    ("hostile: absurd length", request::absurd_length),
    ("hostile: broken chunks", request::broken_chunks),
    ("hostile: wrong route", request::wrong_route),
    ("hostile: reset request", stream::reset_after_request),
    ("hostile: reset head", stream::reset_after_head),
    ("hostile: reset stream", stream::reset_in_stream),
    ("hostile: close stream", stream::close_in_stream),
    ("hostile: unread stream", stream::reset_unread),
    ("hostile: bad cursor", stream::bad_cursor),
    ("hostile: foreign stream", stream::foreign_control),
    ("hostile: cancel storm", stream::cancel_storm),
    ("hostile: socket vanishes", websocket::vanish),
    ("hostile: socket random bytes", websocket::random_bytes),
    ("hostile: socket bad messages", websocket::bad_messages),
    ("hostile: socket reset", websocket::reset_with_streams),
];
