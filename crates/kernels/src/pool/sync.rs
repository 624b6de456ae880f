//! What the crew is built from; `modelled` builds the same crew from shuttle's twins.

pub(super) use std::hint;
pub(super) use std::sync::atomic;
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
pub(super) use std::thread;
