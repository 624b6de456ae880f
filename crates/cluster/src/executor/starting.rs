//! Requests that are being submitted.
//!
//! A request that was replaced by a later attempt, or forgotten, keeps its place until its submission is done: the submission
//! holds the whole request, and a new one for each number of an attempt would have no bound.

use crate::messages::{Attempt, RUN_BYTES_MAX, Run};
use crate::names::InstanceId;
use std::collections::BTreeMap;

/// Requests that are being submitted at one time.
pub const STARTING_MAX: usize = 256;
/// Bytes of these requests.
pub const STARTING_BYTES_MAX: usize = 4 * RUN_BYTES_MAX;
/// Bytes of a request besides its record, ids and updates.
const FIXED_BYTES: usize = 1024;

type Name = (InstanceId, Attempt);

/// The submissions, by name. One name can have several: a gateway may repeat a request that it had let go.
#[derive(Debug, Default)]
pub(super) struct StartingRequests {
    by_name: BTreeMap<Name, Vec<usize>>,
    count: usize,
    bytes: usize,
}

impl StartingRequests {
    /// Whether another request of so many bytes may be submitted.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let is_within = self.bytes.saturating_add(bytes) <= STARTING_BYTES_MAX;
        self.count < STARTING_MAX && (is_within || self.count == 0)
    }

    /// A submission begins.
    pub(super) fn begin(&mut self, name: Name, bytes: usize) {
        self.by_name.entry(name).or_default().push(bytes);
        self.count += 1;
        self.bytes += bytes;
    }

    /// A submission is done.
    pub(super) fn end(&mut self, name: Name) {
        let Some(sizes) = self.by_name.get_mut(&name) else {
            return;
        };
        if let Some(bytes) = sizes.pop() {
            self.count -= 1;
            self.bytes -= bytes;
        }
        if sizes.is_empty() {
            self.by_name.remove(&name);
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.count
    }
}

/// Bytes of a request in memory, about.
pub(super) fn bytes_of(run: &Run) -> usize {
    let ids = run.choices.iter().map(|choice| 4 * choice.ids.len() + 64);
    let updates = run.updates.iter();
    let updates = updates.map(|update| 4 * update.inject.len() + 128);
    FIXED_BYTES + run.request.len() + ids.sum::<usize>() + updates.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(handle: u64) -> Name {
        (InstanceId(1), Attempt { handle, attempt: 1 })
    }

    #[test]
    fn submissions_are_bounded_in_number_and_bytes() {
        let mut starting = StartingRequests::default();
        assert!(starting.has_room(usize::MAX), "one request always fits");
        starting.begin(name(1), STARTING_BYTES_MAX - 10);
        assert!(starting.has_room(10) && !starting.has_room(11));
        starting.end(name(2));
        assert!(
            !starting.has_room(11),
            "another name's end gives nothing back"
        );
        starting.end(name(1));
        for handle in 0..STARTING_MAX as u64 {
            assert!(starting.has_room(1));
            starting.begin(name(handle / 2), 1);
        }
        assert!(!starting.has_room(0));
        for handle in 0..STARTING_MAX as u64 {
            starting.end(name(handle / 2));
        }
        starting.end(name(0));
        let left = (starting.count, starting.bytes, starting.by_name.len());
        assert_eq!(left, (0, 0, 0));
    }
}
