//! The names callers gave their jobs.

use crate::locks::lock;
use generate::error::{ApiError, ErrorKind};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stream::{Owner, StreamId};
use wire::shared::job_outcome::JobId;

type OwnedName = (Owner, JobId);

/// The stream of each named job. A name belongs to one owner: another owner may use an equal name.
///
/// A name is taken while the named stream is in the registry. Names are checked when a request claims one, and
/// when the table is full; no task cleans up.
pub struct JobNames {
    /// At most `max`. `None`: claimed, and not a stream yet.
    names: Mutex<HashMap<OwnedName, Option<StreamId>>>,
    max: AtomicUsize,
}

impl JobNames {
    /// None yet. Twice as many as there can be streams, so that cleaning up is rare.
    pub(crate) fn new(streams_max: usize) -> Self {
        Self {
            names: Mutex::default(),
            max: AtomicUsize::new(names_max(streams_max)),
        }
    }

    /// For other bounds of streams. No name is lost.
    pub(crate) fn set_max(&self, streams_max: usize) {
        self.max.store(names_max(streams_max), Ordering::Relaxed);
    }

    /// Takes a name for a job that is about to be opened.
    ///
    /// # Errors
    /// The owner has a job of this name, or there is no room for another name.
    pub(crate) fn claim_name(
        &self,
        owner: Owner,
        id: JobId,
        is_known: impl Fn(Owner, StreamId) -> bool,
        retry_after: Duration,
    ) -> Result<NameClaim<'_>, ApiError> {
        let key = (owner, id);
        let max = self.max.load(Ordering::Relaxed);
        let mut names = lock(&self.names);
        let taken =
            |key: &OwnedName, id: &Option<StreamId>| id.is_none_or(|id| is_known(key.0, id));
        if names.get(&key).is_some_and(|id| taken(&key, id)) {
            return Err(name_is_taken());
        }
        if names.len() >= max {
            names.retain(|key, id| taken(key, id));
        }
        if names.len() >= max {
            return Err(ApiError::capacity(
                "overloaded",
                "there are too many named jobs",
                retry_after,
            ));
        }
        names.insert(key.clone(), None);
        drop(names);
        Ok(NameClaim {
            names: self,
            key: Some(key),
        })
    }

    /// Takes the name of a job that an earlier process had accepted.
    pub(crate) fn restore_name(&self, owner: Owner, id: JobId, stream: StreamId) {
        lock(&self.names).insert((owner, id), Some(stream));
    }

    /// The stream that is this owner's job of this name.
    pub fn find_stream(&self, owner: Owner, id: &JobId) -> Option<StreamId> {
        *lock(&self.names).get(&(owner, id.clone()))?
    }
}

/// A claimed name without a stream; released on drop.
pub(crate) struct NameClaim<'a> {
    names: &'a JobNames,
    /// `None` after [`NameClaim::assign_stream`].
    key: Option<OwnedName>,
}

impl NameClaim<'_> {
    /// The job is this stream.
    pub(crate) fn assign_stream(mut self, id: StreamId) {
        if let Some(key) = self.key.take() {
            lock(&self.names.names).insert(key, Some(id));
        }
    }
}

fn names_max(streams_max: usize) -> usize {
    streams_max.saturating_mul(2)
}

impl Drop for NameClaim<'_> {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            lock(&self.names.names).remove(key);
        }
    }
}

/// The error of a job whose name the caller has given to another job.
pub fn name_is_taken() -> ApiError {
    let words = "is the name of a job that this server still knows";
    ApiError {
        kind: ErrorKind::Conflict,
        ..ApiError::field("job_id", "job_exists", words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(n: u8) -> StreamId {
        StreamId::from_random([n; 16])
    }

    fn name(text: &str) -> JobId {
        JobId::parse(text).unwrap()
    }

    #[test]
    fn name_belongs_to_one_owner_while_the_stream_exists() {
        let names = JobNames::new(8);
        let (a, b, second) = (Owner(1), Owner(2), Duration::from_secs(1));
        let claim =
            |owner, known: bool| names.claim_name(owner, name("x"), move |_, _| known, second);
        let first = claim(a, true).unwrap();
        assert_eq!(
            claim(a, true).err().unwrap().kind,
            ErrorKind::Conflict,
            "claimed"
        );
        assert_eq!(names.find_stream(a, &name("x")), None, "not a stream yet");
        drop(first);
        claim(a, true).unwrap().assign_stream(stream(1));
        assert_eq!(claim(a, true).err().unwrap().code, "job_exists");
        assert_eq!(
            (
                names.find_stream(a, &name("x")),
                names.find_stream(b, &name("x"))
            ),
            (Some(stream(1)), None)
        );
        claim(b, true).unwrap().assign_stream(stream(2));
        assert_eq!(names.find_stream(a, &name("x")), Some(stream(1)));
        claim(a, false).unwrap().assign_stream(stream(3));
        assert_eq!(
            names.find_stream(a, &name("x")),
            Some(stream(3)),
            "the stream was gone"
        );
    }

    #[test]
    fn full_table_drops_names_without_a_stream() {
        let names = JobNames::new(2);
        let take = |text: &str, known: fn(Owner, StreamId) -> bool| {
            let claim = names.claim_name(Owner(1), name(text), known, Duration::from_secs(1))?;
            claim.assign_stream(stream(1));
            Ok::<_, ApiError>(())
        };
        for text in ["a", "b", "c", "d"] {
            take(text, |_, _| true).unwrap();
        }
        assert_eq!(
            take("e", |_, _| true).err().unwrap().kind,
            ErrorKind::Unavailable
        );
        take("e", |_, _| false).unwrap();
        assert_eq!(names.find_stream(Owner(1), &name("a")), None, "made room");
        assert!(names.find_stream(Owner(1), &name("e")).is_some());
    }
}
