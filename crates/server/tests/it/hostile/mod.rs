//! Hostile input over sockets.

/// Promise (Hostile input and memory): each of 40 kinds of malformed body is a 4xx with a JSON error on each of 17
/// routes; 28 kinds of absurd value in each field of each route are answered or rejected, never a 5xx; bodies over
/// the limit are 413 before they are sent.
mod bodies;
mod credentials;
mod http_vectors;
