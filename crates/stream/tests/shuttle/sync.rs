//! Shuttle's primitives under the names of `src/sync.rs`.

#[path = "../shim/once_lock.rs"]
mod once_lock;

pub(crate) use once_lock::OnceLock;
pub(crate) use shuttle::hint;
pub(crate) use shuttle::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
pub(crate) use shuttle::sync::{Arc, Mutex};
pub(crate) use shuttle::thread;

/// The cell of `src/sync.rs`. Shuttle does not follow it; loom does.
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    pub(crate) fn with<R>(&self, access: impl FnOnce(*const T) -> R) -> R {
        access(self.0.get())
    }

    pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}
