//! Cursors: how far a client has read.
//!
//! Each process that puts events into mailboxes is an *origin*, with a random number. An event has a place among the
//! events of its origin, and a cursor has the place reached for each origin. So a cursor is valid at all gateways, and
//! after a restart: the events of the next process have another origin, which an older cursor does not know.

use super::mail::MailboxEntry;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use generate::error::ApiError;
use std::fmt;

/// Origins of a cursor. Beyond it the origin is forgotten whose events were read longest ago: those that are not acknowledged
/// are read again.
const ORIGINS_MAX: usize = 32;
/// First byte of an encoded cursor.
const VERSION: u8 = 1;
/// Bytes of an encoded place: origin and sequence.
const PLACE_BYTES: usize = 16;
/// Characters of an encoded cursor.
pub const CURSOR_CHARS_MAX: usize = (1 + ORIGINS_MAX * PLACE_BYTES).div_ceil(3) * 4;

/// The place of an event among the events of all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The process that has put the event into a mailbox.
    pub(crate) origin: u64,
    /// Ascends within the origin, from 1.
    pub(crate) sequence: u64,
}

/// How far a client has read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MailboxCursor {
    /// At most [`ORIGINS_MAX`], each origin once; the one that was read last is the last.
    reached: Vec<Place>,
}

impl MailboxCursor {
    /// Whether the client has the event of this place.
    pub(crate) fn covers(&self, place: Place) -> bool {
        let reached = self.reached.iter();
        let mut of_origin = reached.filter(|reached| reached.origin == place.origin);
        of_origin.any(|reached| reached.sequence >= place.sequence)
    }

    /// The client has this event, and those of its origin before.
    pub fn pass(&mut self, entry: &MailboxEntry) {
        self.advance(entry.place());
    }

    /// The client has the event of this place, and those of the origin before.
    pub(crate) fn advance(&mut self, place: Place) {
        let mut known = self.reached.iter();
        let known = known.position(|reached| reached.origin == place.origin);
        let before = known.map_or(0, |at| self.reached.remove(at).sequence);
        if self.reached.len() == ORIGINS_MAX {
            self.reached.remove(0);
        }
        self.reached.push(Place {
            sequence: place.sequence.max(before),
            ..place
        });
    }

    /// The client has what a client with the other cursor has.
    pub(super) fn merge(&mut self, other: &Self) {
        for place in &other.reached {
            self.advance(*place);
        }
    }

    /// The cursor of a client's text.
    ///
    /// # Errors
    /// The text is no cursor; `field` names it.
    pub fn parse(text: &str, field: &str) -> Result<Self, ApiError> {
        let bytes = match text.len() <= CURSOR_CHARS_MAX {
            true => URL_SAFE_NO_PAD.decode(text).ok(),
            false => None,
        };
        let decoded = bytes.and_then(|bytes| Self::decode(&bytes));
        decoded.ok_or_else(|| {
            let words = format!("{field}: must be a cursor that the mailbox has sent");
            ApiError::field(field, "invalid_cursor", words)
        })
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&VERSION, places) = bytes.split_first()? else {
            return None;
        };
        let (places, []) = places.as_chunks::<PLACE_BYTES>() else {
            return None;
        };
        if places.len() > ORIGINS_MAX {
            return None;
        }
        let mut cursor = Self::default();
        for place in places {
            let (origin, sequence) = place.split_first_chunk()?;
            cursor.advance(Place {
                origin: u64::from_be_bytes(*origin),
                sequence: u64::from_be_bytes(sequence.try_into().ok()?),
            });
        }
        // Each origin occurs once.
        (cursor.reached.len() == places.len()).then_some(cursor)
    }
}

impl fmt::Display for MailboxCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![VERSION];
        for place in &self.reached {
            bytes.extend_from_slice(&place.origin.to_be_bytes());
            bytes.extend_from_slice(&place.sequence.to_be_bytes());
        }
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(origin: u64, sequence: u64) -> Place {
        Place { origin, sequence }
    }

    #[test]
    fn origin_that_was_read_longest_ago_is_forgotten() {
        let mut cursor = MailboxCursor::default();
        for origin in 0..ORIGINS_MAX as u64 {
            cursor.advance(place(origin, 1));
        }
        cursor.advance(place(0, 2));
        cursor.advance(place(99, 1));
        assert!(cursor.covers(place(0, 2)) && cursor.covers(place(99, 1)));
        assert!(!cursor.covers(place(1, 1)) && cursor.covers(place(2, 1)));
        let text = cursor.to_string();
        assert!(text.len() <= CURSOR_CHARS_MAX);
        assert_eq!(MailboxCursor::parse(&text, "after").unwrap(), cursor);
    }

    #[test]
    fn text_that_is_no_cursor_is_rejected() {
        let mut one = MailboxCursor::default();
        one.advance(place(1, 1));
        let one = one.to_string();
        let twice = URL_SAFE_NO_PAD.encode([&[VERSION][..], &[0; 32]].concat());
        let later = URL_SAFE_NO_PAD.encode([2; 17]);
        let long = "A".repeat(CURSOR_CHARS_MAX + 4);
        for text in ["", "?", &one[1..], &one[..8], &twice, &later, &long] {
            let why = MailboxCursor::parse(text, "after").expect_err(text);
            assert_eq!(why.code, "invalid_cursor", "{text}");
        }
    }

    proptest! {
        #[test]
        fn cursor_covers_what_was_reached_and_nothing_else(
            reached in proptest::collection::vec((0_u64..8, 0_u64..50), 0..40),
            asked in (0_u64..8, 0_u64..50),
        ) {
            let mut cursor = MailboxCursor::default();
            for (origin, sequence) in &reached {
                cursor.advance(place(*origin, *sequence));
            }
            let read = MailboxCursor::parse(&cursor.to_string(), "after").unwrap();
            prop_assert_eq!(&read, &cursor);
            let expected = reached.iter().any(|(o, s)| *o == asked.0 && *s >= asked.1);
            prop_assert_eq!(read.covers(place(asked.0, asked.1)), expected);
        }

        #[test]
        fn any_text_is_a_cursor_or_an_error(text in "[A-Za-z0-9_-]{0,80}") {
            if let Ok(cursor) = MailboxCursor::parse(&text, "after") {
                prop_assert!(cursor.to_string().len() <= CURSOR_CHARS_MAX);
            }
        }
    }
}
