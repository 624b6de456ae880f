//! Memory of a run's values: bytes, counted once for all copies that share them.
//!
//! A [`Charge`] is the right to some bytes of an [`Account`], given back on drop. A copy of a state
//! shares values with their charges: so a roll-back needs no accounting.

use crate::trouble::Trouble;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes used by a run, and their bound.
#[derive(Clone, Debug)]
pub(crate) struct Account(Arc<Ledger>);

#[derive(Debug)]
struct Ledger {
    /// Shared by one run's values, which one thread uses at a time.
    used: AtomicUsize,
    most: usize,
}

impl Account {
    pub(crate) fn new(most: usize) -> Self {
        let used = AtomicUsize::new(0);
        Self(Arc::new(Ledger { used, most }))
    }

    /// Reserves bytes.
    ///
    /// # Errors
    /// The bound would be exceeded.
    pub(crate) fn charge(&self, bytes: usize) -> Result<Charge, Trouble> {
        self.expect_room(bytes)?;
        Ok(self.owe(bytes))
    }

    /// Reserves bytes without a check: for values with their own bound, or values that exist already.
    pub(crate) fn owe(&self, bytes: usize) -> Charge {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
        Charge {
            account: self.clone(),
            bytes,
        }
    }

    /// # Errors
    /// The bound would be exceeded.
    pub(crate) fn expect_room(&self, bytes: usize) -> Result<(), Trouble> {
        let (used, most) = (self.used(), self.0.most);
        let sum = used.saturating_add(bytes);
        if sum <= most {
            return Ok(());
        }
        let what = format!(
            "the run's values would take {sum} bytes; at most {most} (value_bytes_max): shorter texts and \
             lists, and smaller windows, need fewer"
        );
        Err(Trouble::program(what))
    }

    pub(crate) fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    pub(crate) fn most(&self) -> usize {
        self.0.most
    }
}

/// Reserved bytes, given back on drop.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Account,
    bytes: usize,
}

impl Charge {
    /// Adds bytes, within the bound.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Trouble> {
        self.account.expect_room(bytes)?;
        self.account.0.used.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes of a token id.
pub(crate) const ID_BYTES: usize = size_of::<u32>();

/// Appends to a list; a list with other owners is copied first.
pub(crate) fn append(
    ids: &mut Arc<Vec<u32>>,
    charge: &mut Option<Arc<Charge>>,
    more: &[u32],
    account: &Account,
) -> Result<(), Trouble> {
    let own = charge.as_mut().and_then(Arc::get_mut);
    if let (Some(own), Some(ids)) = (own, Arc::get_mut(ids)) {
        own.grow(more.len() * ID_BYTES)?;
        ids.extend_from_slice(more);
        return Ok(());
    }
    let copy = account.charge((ids.len() + more.len()) * ID_BYTES)?;
    let mut all = Vec::with_capacity(ids.len() + more.len());
    all.extend_from_slice(ids);
    all.extend_from_slice(more);
    (*ids, *charge) = (Arc::new(all), Some(Arc::new(copy)));
    Ok(())
}

/// A large value that copies share, with the charge.
#[derive(Debug)]
pub(crate) struct Charged<T> {
    value: Arc<T>,
    /// `None`: not charged.
    charge: Option<Arc<Charge>>,
}

impl<T> Charged<T> {
    /// # Errors
    /// The bound would be exceeded.
    pub(crate) fn new(value: T, bytes: usize, account: &Account) -> Result<Self, Trouble> {
        Ok(Self {
            charge: Some(Arc::new(account.charge(bytes)?)),
            value: Arc::new(value),
        })
    }

    /// Charges the value to this account, without a check.
    pub(crate) fn owe(&mut self, account: &Account) {
        let bytes = self.bytes();
        self.charge = Some(Arc::new(account.owe(bytes)));
    }

    /// Bytes of the value.
    pub(crate) fn bytes(&self) -> usize {
        self.charge.as_ref().map_or(0, |charge| charge.bytes)
    }
}

impl Charged<Vec<u32>> {
    /// Appends an item.
    ///
    /// # Errors
    /// The bound would be exceeded; the list is unchanged.
    pub(crate) fn append(&mut self, more: &[u32], account: &Account) -> Result<(), Trouble> {
        append(&mut self.value, &mut self.charge, more, account)
    }
}

impl<T> Deref for Charged<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Clone for Charged<T> {
    fn clone(&self) -> Self {
        Self {
            value: Arc::clone(&self.value),
            charge: self.charge.clone(),
        }
    }
}

impl<T: Default> Default for Charged<T> {
    fn default() -> Self {
        Self {
            value: Arc::default(),
            charge: None,
        }
    }
}

impl<T: PartialEq> PartialEq for Charged<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_list_is_charged_once() {
        let account = Account::new(100);
        let mut ids = Charged::new(vec![1, 2, 3], 12, &account).expect("room");
        ids.append(&[4], &account).expect("room");
        assert_eq!((ids.bytes(), account.used()), (16, 16));
        let before = ids.clone();
        assert_eq!(account.used(), 16);
        ids.append(&[5, 6], &account).expect("room");
        assert_eq!(account.used(), 16 + 24, "a copy went on");
        assert_eq!(
            (&before[..], &ids[..]),
            (&[1, 2, 3, 4][..], &[1, 2, 3, 4, 5, 6][..])
        );
        let full = ids.append(&[0; 20], &account).expect_err("no room");
        assert!(full.what.expect("words").contains("value_bytes_max"));
        assert_eq!((ids.len(), account.used()), (6, 40));
        drop(ids);
        assert_eq!(account.used(), 16);
        drop(before);
        assert_eq!(account.used(), 0);
    }
}
