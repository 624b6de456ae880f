//! Synchronization primitives of [`super::workers`]; `modelled` compiles the same source with shuttle's
//! primitives.

pub(super) use std::hint;
pub(super) use std::sync::atomic;
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
pub(super) use std::thread;
