//! `std`'s once-lock, of a model checker's primitives: what `set` published, `get` acquires.

use super::{AtomicBool, Mutex, Ordering};

pub(crate) struct OnceLock<T> {
    set: AtomicBool,
    setting: Mutex<()>,
    value: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        let value = std::sync::OnceLock::new();
        Self {
            set: AtomicBool::new(false),
            setting: Mutex::new(()),
            value,
        }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        if self.set.load(Ordering::Acquire) {
            self.value.get()
        } else {
            None
        }
    }

    /// As `std`'s: who comes second returns when the first is done.
    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        let _setting = self.setting.lock().unwrap();
        self.value.set(value)?;
        self.set.store(true, Ordering::Release);
        Ok(())
    }

    pub(crate) fn take(&mut self) -> Option<T> {
        self.value.take()
    }
}
