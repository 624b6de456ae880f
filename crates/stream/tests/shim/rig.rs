//! What the scenarios of both model checkers share.

use crate::end::End;
use crate::pool::{PoolLimits, PoolStats, SegmentPool};
use crate::reader::{Read, Reader};

pub(crate) fn pool(segments_max: usize) -> SegmentPool<u32> {
    SegmentPool::new(PoolLimits { segments_max })
}

/// Follows the log to its end, sleeping where there is nothing new.
pub(crate) fn follow(mut reader: Reader<u32>) -> (Vec<u32>, End) {
    let mut items = Vec::new();
    let mut buf = [0; 2];
    loop {
        match reader.read_blocking(&mut buf) {
            Read::Items(count) => items.extend_from_slice(&buf[..count]),
            Read::Ended(end) => return (items, end),
            Read::Empty => unreachable!("a blocking read found nothing"),
        }
    }
}

pub(crate) fn assert_nothing_held(stats: PoolStats) {
    assert_eq!((stats.reserved, stats.in_use), (0, 0), "{stats:?}");
}
