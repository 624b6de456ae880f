//! Loom's primitives under the names of `src/sync.rs`.

#[path = "../shim/once_lock.rs"]
mod once_lock;

pub(crate) use loom::cell::UnsafeCell;
pub(crate) use loom::hint;
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
pub(crate) use loom::sync::{Arc, Mutex};
pub(crate) use loom::thread;
pub(crate) use once_lock::OnceLock;
