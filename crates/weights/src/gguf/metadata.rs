//! Index of a file's metadata.

use super::cursor::Cursor;
use super::error::GgufError;
use super::limits::{ENTRY_BYTES_MIN, KEY_BYTES_MAX, METADATA_ENTRIES_MAX};
use super::value::{Value, read_kind, read_value};
use super::value_kind::ValueKind;
use std::ops::Range;

/// Index of one file's entries.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    entries: Vec<MetadataEntry>,
    /// Indices of `entries`, sorted by key.
    by_key: Vec<u32>,
}

/// Byte ranges of one entry.
#[derive(Debug)]
pub(super) struct MetadataEntry {
    key: Range<usize>,
    kind: ValueKind,
    value: Range<usize>,
}

impl Metadata {
    /// Reads and checks `count` entries.
    pub(super) fn read(
        cursor: &mut Cursor<'_>,
        bytes: &[u8],
        count: u64,
    ) -> Result<Self, GgufError> {
        let mut entries = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let key = read_key(cursor)?;
            let kind = read_kind(cursor, "metadata type")?;
            let start = cursor.offset() as usize;
            read_value(cursor, kind, 0)?;
            entries.push(MetadataEntry {
                key,
                kind,
                value: start..cursor.offset() as usize,
            });
        }
        let key_at = |index: &u32| &bytes[entries[*index as usize].key.clone()];
        let mut by_key: Vec<u32> = (0..count as u32).collect();
        by_key.sort_by(|a, b| key_at(a).cmp(key_at(b))); // stable: equal keys stay in file order
        for pair in by_key.windows(2) {
            if key_at(&pair[0]) == key_at(&pair[1]) {
                return Err(GgufError::DuplicateKey {
                    key: String::from_utf8_lossy(key_at(&pair[1])).into_owned(),
                    offset: entries[pair[1] as usize].key.start as u64,
                });
            }
        }
        Ok(Self { entries, by_key })
    }

    /// The checked number of entries, which precedes the entries.
    pub(super) fn read_count(cursor: &mut Cursor<'_>) -> Result<u64, GgufError> {
        cursor.count("metadata count", METADATA_ENTRIES_MAX, ENTRY_BYTES_MIN)
    }

    /// The value of a key, and the value's offset.
    pub(super) fn get<'a>(&self, bytes: &'a [u8], key: &str) -> Option<(Value<'a>, u64)> {
        let at = self
            .by_key
            .binary_search_by(|&at| {
                bytes[self.entries[at as usize].key.clone()].cmp(key.as_bytes())
            })
            .ok()?;
        let entry = &self.entries[self.by_key[at] as usize];
        Some((entry.value(bytes)?, entry.value.start as u64))
    }

    /// All keys and values, in file order.
    pub(super) fn iter<'a>(
        &'a self,
        bytes: &'a [u8],
    ) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        self.entries.iter().filter_map(move |entry| {
            let key = std::str::from_utf8(&bytes[entry.key.clone()]).ok()?;
            Some((key, entry.value(bytes)?))
        })
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

impl MetadataEntry {
    fn value<'a>(&self, bytes: &'a [u8]) -> Option<Value<'a>> {
        read_value(&mut Cursor::new(&bytes[self.value.clone()]), self.kind, 0).ok()
    }
}

fn read_key(cursor: &mut Cursor<'_>) -> Result<Range<usize>, GgufError> {
    const FIELD: &str = "metadata key";
    let offset = cursor.offset();
    let key = cursor.string(FIELD, KEY_BYTES_MAX)?;
    let invalid = |why: &str| GgufError::Invalid {
        field: FIELD,
        offset,
        why: why.to_owned(),
    };
    if key.is_empty() {
        return Err(invalid("is empty"));
    }
    if std::str::from_utf8(key).is_err() {
        return Err(invalid("is not UTF-8"));
    }
    let end = cursor.offset() as usize;
    Ok(end - key.len()..end)
}
