//! Synchronization primitives of this crate. All other files use these names, so that `tests/loom` and
//! `tests/shuttle` can compile them, unchanged, against a model checker's primitives.

pub(crate) use std::hint;
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
pub(crate) use std::sync::{Arc, Mutex, OnceLock};
pub(crate) use std::thread;

/// `std`'s `UnsafeCell` with loom's interface: each access is a closure, so that a model checker sees the
/// beginning and the end of the access.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Shared access: the pointer may be read while no thread has exclusive access.
    #[inline]
    pub(crate) fn with<R>(&self, access: impl FnOnce(*const T) -> R) -> R {
        access(self.0.get())
    }

    /// Exclusive access: the pointer may be written while no other thread has access.
    #[inline]
    pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}
