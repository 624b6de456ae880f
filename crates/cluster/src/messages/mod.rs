//! Messages between gateways and engines. Every length is bounded; bytes of others are an error, never a panic.

use std::fmt;

mod bytes;
mod control;

pub use control::{ORDERS_MAX, Order, OrderKind, decode_orders, encode_orders};

/// Why a message cannot be encoded or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// Written in another version of the encoding.
    Version(u8),
    /// More of these than the bound.
    TooMany(&'static str, usize),
    /// Bytes are missing, unknown or left over.
    Malformed(&'static str),
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "version {version} of a message, not 1"),
            Self::TooMany(field, max) => write!(f, "a message has at most {max} {field}"),
            Self::Malformed(field) => write!(f, "the {field} of a message cannot be read"),
        }
    }
}

impl std::error::Error for MessageError {}
