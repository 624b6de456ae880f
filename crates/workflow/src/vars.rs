//! Variables of a run, by slot.

use crate::account::{Account, Charge, append};
use crate::trouble::Trouble;
use crate::value::{Value, json_bytes};
use serde_json::Value as Json;
use std::sync::Arc;

/// Variables of a run, by slot. Copies share large values.
#[derive(Clone, Debug)]
pub(crate) struct Vars(Vec<Option<Held>>);

#[derive(Clone, Debug)]
struct Held {
    value: Value,
    /// Items of a list, characters of a text: counted when the value is set.
    len: usize,
    /// Charge of the value; `None`: too small to count.
    charge: Option<Arc<Charge>>,
    bytes: usize,
}

impl Vars {
    /// With this many unset variables.
    pub(crate) fn new(slots: usize) -> Self {
        Self(vec![None; slots])
    }

    /// The value; `None` until set.
    pub(crate) fn get(&self, slot: usize) -> Option<&Value> {
        self.0[slot].as_ref().map(|held| &held.value)
    }

    /// Length of the value; 0 for values that are neither list nor text.
    pub(crate) fn len(&self, slot: usize) -> Option<usize> {
        self.0[slot].as_ref().map(|held| held.len)
    }

    /// Bytes of the value.
    pub(crate) fn bytes(&self, slot: usize) -> usize {
        self.0[slot].as_ref().map_or(0, |held| held.bytes)
    }

    /// # Errors
    /// The bound would be exceeded, the old value included; the old value stays.
    pub(crate) fn set(
        &mut self,
        slot: usize,
        value: Value,
        account: &Account,
    ) -> Result<(), Trouble> {
        let bytes = value.bytes();
        let charge = match bytes {
            0 => None,
            bytes => Some(account.charge(bytes)?),
        };
        self.put_value(slot, value, bytes, charge);
        Ok(())
    }

    /// Sets a value that has a separate bound.
    pub(crate) fn owe(&mut self, slot: usize, value: Value, account: &Account) {
        let bytes = value.bytes();
        self.put_value(slot, value, bytes, Some(account.owe(bytes)));
    }

    fn put_value(&mut self, slot: usize, value: Value, bytes: usize, charge: Option<Charge>) {
        self.0[slot] = Some(Held {
            len: value.len().unwrap_or(0),
            value,
            charge: charge.map(Arc::new),
            bytes,
        });
    }

    /// Appends to a token list, which is created if need be.
    ///
    /// # Errors
    /// The bound would be exceeded.
    pub(crate) fn append(
        &mut self,
        slot: usize,
        id: u32,
        account: &Account,
    ) -> Result<(), Trouble> {
        if let Some(Held {
            value: Value::Tokens(ids),
            len,
            charge,
            bytes,
        }) = &mut self.0[slot]
        {
            append(ids, charge, &[id], account)?;
            (*len, *bytes) = (ids.len(), ids.len() * crate::account::ID_BYTES);
            return Ok(());
        }
        self.set(slot, Value::tokens(vec![id]), account)
    }

    /// Appends to a list.
    ///
    /// # Errors
    /// The bound would be exceeded, or the value is no list.
    pub(crate) fn append_item(
        &mut self,
        slot: usize,
        item: Json,
        account: &Account,
    ) -> Result<(), Trouble> {
        let Some(Held {
            value: Value::Array(items),
            len,
            charge,
            bytes,
        }) = &mut self.0[slot]
        else {
            return Err(Trouble::program("there is no list"));
        };
        let more = json_bytes(&item);
        let own = charge.as_mut().and_then(Arc::get_mut);
        match (own, Arc::get_mut(items)) {
            (Some(own), Some(items)) => {
                own.grow(more)?;
                items.push(item);
            }
            _ => {
                let copy = account.charge(*bytes + more)?;
                let mut all = items.to_vec();
                all.push(item);
                (*items, *charge) = (Arc::new(all), Some(Arc::new(copy)));
            }
        }
        (*len, *bytes) = (items.len(), *bytes + more);
        Ok(())
    }

    /// Unsets a variable.
    pub(crate) fn clear(&mut self, slot: usize) {
        self.0[slot] = None;
    }

    /// Bytes of a copy, shared values left out.
    pub(crate) fn copy_bytes(&self) -> usize {
        self.0.len() * size_of::<Option<Held>>()
    }
}
