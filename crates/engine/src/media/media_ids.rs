//! Numbers of inputs: what stands for an input's rows among a sequence's tokens.
//!
//! A row of an input is [`MEDIA_ROW`] with the number that the engine gave the input's name. The prefix index compares such
//! rows like tokens, so two inputs share a page only if their names are equal, in all 256 bits of the key. Which row of the
//! input a page begins with follows from the chain before the page: equal names have equally many rows, and the chain has the
//! rows of the input so far, so that even two equal inputs side by side are distinct.
//!
//! A number is never given twice. A name that was forgotten, because others were used since, gets another number: then pages
//! are computed again that could have been shared, and no more.

use crate::CacheSalt;
use crate::idle_list::IdleList;
use std::collections::HashMap;

/// The bit that distinguishes a row of an input from a token.
pub(crate) const MEDIA_ROW: u32 = 1 << 31;

/// Names that are remembered with their numbers (about 200 bytes each); the least recently used one is forgotten first.
pub(crate) const MEDIA_IDS_MAX: usize = 1 << 16;

/// One more than the last number: [`MEDIA_ROW`] with this one would be [`model::VECTOR`].
const NUMBERS_END: u32 = MEDIA_ROW - 1;

/// Whether an entry of a sequence's tokens is a row of an input.
pub(crate) fn is_media(token: u32) -> bool {
    token >= MEDIA_ROW
}

/// Everything that rows of an input, and the keys and values computed from them, depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MediaName {
    pub(crate) key: [u8; 32],
    /// Requests with other salts share no rows, as they share no pages.
    pub(crate) salt: CacheSalt,
    pub(crate) rows: usize,
    pub(crate) grid: (u32, u32),
}

/// The numbers of the names that were used last.
pub(crate) struct MediaIds {
    next: u32,
    places: HashMap<MediaName, u32>,
    /// By place: the name and its number.
    names: Vec<(MediaName, u32)>,
    /// Places in order of use; sized at the first use.
    used: Option<IdleList>,
}

impl MediaIds {
    pub(crate) fn new() -> Self {
        Self::starting_at(0)
    }

    /// Whether there are numbers for so many more names.
    pub(crate) fn has_numbers(&self, names: usize) -> bool {
        (NUMBERS_END - self.next) as usize >= names
    }

    /// The entry for a row of an input with this name. The caller has checked [`Self::has_numbers`].
    pub(crate) fn row_of(&mut self, name: MediaName) -> u32 {
        let used = self
            .used
            .get_or_insert_with(|| IdleList::new(MEDIA_IDS_MAX));
        if let Some(&place) = self.places.get(&name) {
            used.remove(place);
            used.push_newest(place);
            return MEDIA_ROW | self.names[place as usize].1;
        }
        let number = self.next;
        debug_assert!(number < NUMBERS_END, "all numbers were given");
        self.next += 1;
        let oldest = used.oldest().filter(|_| self.names.len() == MEDIA_IDS_MAX);
        let place = oldest.unwrap_or(self.names.len() as u32);
        match oldest {
            None => self.names.push((name, number)),
            Some(oldest) => {
                used.remove(oldest);
                let forgotten = std::mem::replace(&mut self.names[oldest as usize], (name, number));
                self.places.remove(&forgotten.0);
            }
        }
        used.push_newest(place);
        self.places.insert(name, place);
        MEDIA_ROW | number
    }

    fn starting_at(next: u32) -> Self {
        Self {
            next,
            places: HashMap::new(),
            names: Vec::new(),
            used: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u64) -> MediaName {
        let mut key = [0; 32];
        // Keys with many equal bits.
        key[24..].copy_from_slice(&number.to_le_bytes());
        MediaName {
            key,
            salt: CacheSalt::NONE,
            rows: 4,
            grid: (2, 2),
        }
    }

    #[test]
    fn equal_names_have_equal_numbers_and_others_have_others() {
        let mut ids = MediaIds::new();
        let first = ids.row_of(name(1));
        assert_eq!(ids.row_of(name(1)), first);
        let others = [
            name(2),
            MediaName {
                salt: CacheSalt(7),
                ..name(1)
            },
            MediaName { rows: 5, ..name(1) },
            MediaName {
                grid: (1, 4),
                ..name(1)
            },
        ];
        let mut seen = vec![first];
        for other in others {
            let row = ids.row_of(other);
            assert!(is_media(row) && !seen.contains(&row), "{other:?}");
            seen.push(row);
        }
    }

    #[test]
    fn forgotten_name_gets_another_number() {
        let mut ids = MediaIds::new();
        let first = ids.row_of(name(0));
        let second = ids.row_of(name(1));
        for number in 2..MEDIA_IDS_MAX as u64 {
            ids.row_of(name(number));
        }
        assert_eq!(ids.row_of(name(0)), first, "used again");
        let new = ids.row_of(name(u64::MAX));
        assert_eq!(new, MEDIA_ROW | MEDIA_IDS_MAX as u32);
        assert_eq!(ids.row_of(name(0)), first, "still known");
        let again = ids.row_of(name(1));
        assert!(again != second && again > new, "the oldest was forgotten");
        assert_eq!(ids.names.len(), MEDIA_IDS_MAX);
        assert_eq!(ids.places.len(), MEDIA_IDS_MAX);
    }

    #[test]
    fn numbers_end_before_the_mark_of_a_vector() {
        let mut ids = MediaIds::starting_at(NUMBERS_END - 1);
        assert!(ids.has_numbers(1) && !ids.has_numbers(2));
        assert_eq!(ids.row_of(name(1)), model::VECTOR - 1);
        assert!(!ids.has_numbers(1));
        assert_eq!(ids.row_of(name(1)), model::VECTOR - 1);
    }
}
