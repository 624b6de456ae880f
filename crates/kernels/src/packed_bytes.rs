//! Bytes of packed weights: memory of their own, or a part of memory that is lent, shared by all who read them.

use crate::Pool;
use crate::memory::{AlignedBytes, LINE};
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Memory that is lent, such as a mapped file. The slice is the same one at each call.
pub type LentMemory = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Packed weights, a whole number of cache lines. A clone is a further handle of the same bytes.
#[derive(Clone)]
pub struct PackedBytes(Storage);

#[derive(Clone)]
enum Storage {
    Own(Arc<AlignedBytes>),
    Lent {
        memory: LentMemory,
        range: Range<usize>,
    },
}

impl PackedBytes {
    /// Bytes that were just packed.
    pub(crate) fn own(bytes: AlignedBytes) -> Self {
        Self(Storage::Own(Arc::new(bytes)))
    }

    /// A part of lent memory, which is not copied; `None` if the range is outside, or not in whole cache lines.
    pub fn lent(memory: LentMemory, range: Range<usize>) -> Option<Self> {
        let part = bytes_of(&memory).get(range.clone())?;
        let is_whole = part.len().is_multiple_of(LINE) && part.as_ptr().addr().is_multiple_of(LINE);
        is_whole.then_some(Self(Storage::Lent { memory, range }))
    }

    /// A copy of `source` in huge pages where the operating system agrees, made by all workers. `is_right` sees each copied
    /// chunk of `chunk_bytes` (the last one may be shorter) with its number; `None` if it rejects one, or if `source` is
    /// no whole number of cache lines.
    pub fn copied(
        pool: &mut Pool,
        source: &[u8],
        chunk_bytes: usize,
        is_right: impl Fn(usize, &[u8]) -> bool + Sync,
    ) -> Option<Self> {
        if chunk_bytes == 0 || !source.len().is_multiple_of(LINE) {
            return None;
        }
        let mut copy = AlignedBytes::zeroed(source.len());
        let all_right = AtomicBool::new(true);
        let fill = |chunk: usize, to: &mut [u8]| {
            to.copy_from_slice(&source[chunk * chunk_bytes..][..to.len()]);
            if !is_right(chunk, to) {
                all_right.store(false, Ordering::Relaxed);
            }
        };
        let whole = source.len() / chunk_bytes;
        let (chunks, rest) = copy.split_at_mut(whole * chunk_bytes);
        pool.rows(chunks, chunk_bytes, fill);
        if !rest.is_empty() {
            fill(whole, rest);
        }
        all_right.into_inner().then(|| Self::own(copy))
    }

    /// The bytes, to be written. Shared or lent bytes are copied first, so that no other handle sees the change.
    pub(crate) fn to_mut(&mut self) -> &mut [u8] {
        let is_alone = match &mut self.0 {
            Storage::Own(bytes) => Arc::get_mut(bytes).is_some(),
            Storage::Lent { .. } => false,
        };
        if !is_alone {
            let mut copy = AlignedBytes::zeroed(self.len());
            copy.copy_from_slice(self);
            *self = Self::own(copy);
        }
        match &mut self.0 {
            Storage::Own(bytes) => Arc::get_mut(bytes).expect("the only handle"),
            Storage::Lent { .. } => unreachable!("copied above"),
        }
    }
}

impl Deref for PackedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Storage::Own(bytes) => bytes,
            Storage::Lent { memory, range } => {
                let part = &bytes_of(memory)[range.clone()];
                // Kernels load whole lines; the type of `memory` is not known here.
                assert!(
                    part.as_ptr().addr().is_multiple_of(LINE),
                    "lent memory moved"
                );
                part
            }
        }
    }
}

fn bytes_of(memory: &LentMemory) -> &[u8] {
    let memory: &(dyn AsRef<[u8]> + Send + Sync) = &**memory;
    memory.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that begin at a cache line.
    struct Lines(AlignedBytes);

    impl AsRef<[u8]> for Lines {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    fn numbered(len: usize) -> AlignedBytes {
        let mut bytes = AlignedBytes::zeroed(len);
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = (at % 251) as u8;
        }
        bytes
    }

    #[test]
    fn lent_range_is_whole_lines_inside_of_the_memory() {
        let memory: LentMemory = Arc::new(Lines(numbered(4 * LINE)));
        let rows = [
            (0..4 * LINE, true),
            (LINE..2 * LINE, true),
            (2 * LINE..2 * LINE, true),
            (1..LINE + 1, false),
            (0..LINE - 1, false),
            (3 * LINE..5 * LINE, false),
            (usize::MAX - LINE..usize::MAX, false),
        ];
        for (range, is_taken) in rows {
            let lent = PackedBytes::lent(Arc::clone(&memory), range.clone());
            assert_eq!(lent.is_some(), is_taken, "{range:?}");
            if let Some(lent) = lent {
                assert_eq!(*lent, numbered(4 * LINE)[range]);
            }
        }
    }

    #[test]
    fn copy_is_equal_and_each_chunk_is_checked_once() {
        for (lines, chunk, threads) in [(0, 100, 2), (5, 64, 1), (200, 1000, 3), (200, 1 << 20, 2)]
        {
            let source = numbered(lines * LINE);
            let seen: Vec<_> = (0..=source.len() / chunk)
                .map(|_| AtomicBool::new(false))
                .collect();
            let copy = PackedBytes::copied(&mut Pool::new(threads), &source, chunk, |at, bytes| {
                let twice = seen[at].swap(true, Ordering::Relaxed);
                !twice && *bytes == source[at * chunk..][..bytes.len()]
            });
            assert!(copy.is_some_and(|copy| *copy == *source), "{lines} {chunk}");
            let checked = seen.iter().filter(|seen| seen.load(Ordering::Relaxed));
            assert_eq!(checked.count(), source.len().div_ceil(chunk));
        }
    }

    #[test]
    fn copy_with_a_wrong_chunk_is_refused() {
        let source = numbered(100 * LINE);
        for wrong in [0, 3, 6] {
            let copy = PackedBytes::copied(&mut Pool::new(2), &source, 1000, |at, _| at != wrong);
            assert!(copy.is_none(), "chunk {wrong}");
        }
        assert!(PackedBytes::copied(&mut Pool::new(1), &source[1..], 1000, |_, _| true).is_none());
        assert!(PackedBytes::copied(&mut Pool::new(1), &source, 0, |_, _| true).is_none());
    }

    #[test]
    fn writing_changes_no_other_handle() {
        let mut bytes = PackedBytes::own(numbered(2 * LINE));
        bytes.to_mut()[0] = 9;
        let other = bytes.clone();
        bytes.to_mut()[0] = 7;
        assert_eq!((bytes[0], other[0]), (7, 9));
        let memory: LentMemory = Arc::new(Lines(numbered(2 * LINE)));
        let mut lent = PackedBytes::lent(Arc::clone(&memory), 0..2 * LINE).unwrap();
        lent.to_mut()[1] = 99;
        assert_eq!((lent[1], bytes_of(&memory)[1]), (99, 1));
    }
}
