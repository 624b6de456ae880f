//! Subjects that a NATS server denies to this process.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Denials that are kept; further ones are only counted.
const DENIALS_MAX: usize = 32;

/// Time after which a denied publication that was not repeated is no longer shown: the rights may have changed.
const PUBLICATION_SHOWN: Duration = Duration::from_secs(10);

/// Bytes of a subject that is shown.
const SUBJECT_BYTES_MAX: usize = 256;

/// Denied use of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Publish,
    Subscribe,
}

/// A right that is missing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Denial {
    operation: Operation,
    subject: String,
}

impl Denial {
    /// Reads an error of a NATS server, such as `Permissions Violation for Publish to "mr.a.hb"`. `None`: another error.
    pub(super) fn parse(error: &str) -> Option<Self> {
        let lower = error.to_ascii_lowercase();
        let what = lower.strip_prefix("permissions violation for ")?;
        let operation = match what.split(' ').next()? {
            "publish" => Operation::Publish,
            "subscription" => Operation::Subscribe,
            _ => return None,
        };
        // Lower case keeps the length; subjects do not.
        let subject = error.split('"').nth(1)?;
        let subject: String = subject
            .chars()
            .filter(|c| !c.is_control())
            .take(SUBJECT_BYTES_MAX)
            .collect();
        Some(Self { operation, subject })
    }

    /// Whether only the records of streams need the subject: a process serves without them.
    pub(super) fn concerns_records(&self) -> bool {
        let subject = &*self.subject;
        let is_stored = subject.starts_with("mr.") && subject.contains(".s.");
        is_stored || subject.starts_with("$JS.") || subject.ends_with(".claimed")
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = match self.operation {
            Operation::Publish => "publish to",
            Operation::Subscribe => "subscribe to",
        };
        write!(
            f,
            "the NATS user of this process may not {operation} \"{}\"",
            self.subject
        )
    }
}

/// The rights that are missing on one connection.
#[derive(Debug, Default)]
pub(super) struct Denials {
    /// When each was last seen; at most [`DENIALS_MAX`].
    seen: BTreeMap<Denial, Instant>,
}

impl Denials {
    /// Adds a denial; returns whether it is a new one.
    pub(super) fn add(&mut self, denial: Denial, now: Instant) -> bool {
        if self.seen.len() >= DENIALS_MAX && !self.seen.contains_key(&denial) {
            return false;
        }
        self.seen.insert(denial, now).is_none()
    }

    /// Forgets all: a new connection has new rights.
    pub(super) fn clear(&mut self) {
        self.seen.clear();
    }

    /// Forgets publications that were not denied again.
    pub(super) fn expire(&mut self, now: Instant) {
        self.seen.retain(|denial, at| {
            denial.operation == Operation::Subscribe
                || now.saturating_duration_since(*at) < PUBLICATION_SHOWN
        });
    }

    /// The denials in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Denial> {
        self.seen.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(text: &str) -> Denial {
        Denial::parse(text).unwrap()
    }

    #[test]
    fn errors_of_all_versions_name_the_subject() {
        let rows = [
            (
                "Permissions Violation for Publish to \"mr.Prod.hb\"",
                "may not publish to \"mr.Prod.hb\"",
            ),
            (
                "Permissions Violation for Subscription to \"mr.a.find\"",
                "may not subscribe to \"mr.a.find\"",
            ),
            (
                "Permissions Violation for Subscription to \"mr.a.w\" using queue \"q\"",
                "may not subscribe to \"mr.a.w\"",
            ),
        ];
        for (error, expected) in rows {
            let told = denial(error).to_string();
            assert!(told.ends_with(expected), "{told}");
        }
        let records = "Permissions Violation for Publish to \"$JS.API.STREAM.INFO.mr_a_records\"";
        assert!(denial(records).concerns_records() && !denial(rows[0].0).concerns_records());
        for other in ["", "Unknown Protocol Operation", "permissions violation"] {
            assert_eq!(Denial::parse(other), None, "{other}");
        }
    }

    #[test]
    fn publications_expire_and_subscriptions_stay() {
        let start = tokio::time::Instant::now().into_std();
        let mut denials = Denials::default();
        let publish = denial("Permissions Violation for Publish to \"a\"");
        let subscribe = denial("Permissions Violation for Subscription to \"b\"");
        assert!(denials.add(publish.clone(), start));
        assert!(denials.add(subscribe.clone(), start));
        assert!(!denials.add(publish, start), "not new");
        denials.expire(start + PUBLICATION_SHOWN);
        assert_eq!(denials.iter().collect::<Vec<_>>(), [&subscribe]);
        denials.clear();
        assert_eq!(denials.iter().count(), 0);
    }

    #[test]
    fn denials_are_bounded() {
        let start = tokio::time::Instant::now().into_std();
        let mut denials = Denials::default();
        for n in 0..DENIALS_MAX + 9 {
            let text = format!("Permissions Violation for Publish to \"a.{n}\"");
            assert_eq!(denials.add(denial(&text), start), n < DENIALS_MAX);
        }
        assert_eq!(denials.iter().count(), DENIALS_MAX);
    }
}
