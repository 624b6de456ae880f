//! Segments on the disk, oldest first, and their names `{boot:016x}-{number:08}.log`.

use std::collections::VecDeque;
use std::fmt;

/// Names and sizes. The newest is the one that is written, if any is.
#[derive(Debug, Default)]
pub(crate) struct SegmentList {
    segments: VecDeque<(SegmentName, u64)>,
    bytes: u64,
    /// Number of the next segment.
    pub(crate) next_number: u64,
}

impl SegmentList {
    pub(crate) fn push(&mut self, name: SegmentName, bytes: u64) {
        self.segments.push_back((name, bytes));
        self.bytes += bytes;
        self.next_number = self.next_number.max(name.number + 1);
    }

    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn grow_newest(&mut self, bytes: u64) {
        if let Some((_, size)) = self.segments.back_mut() {
            *size += bytes;
            self.bytes += bytes;
        }
    }

    pub(crate) fn oldest(&self) -> Option<SegmentName> {
        self.segments.front().map(|(name, _)| *name)
    }

    pub(crate) fn newest(&self) -> Option<SegmentName> {
        self.segments.back().map(|(name, _)| *name)
    }

    pub(crate) fn pop_oldest(&mut self) {
        if let Some((_, bytes)) = self.segments.pop_front() {
            self.bytes -= bytes;
        }
    }
}

/// Identity of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentName {
    /// Place in the journal; grows over boots.
    pub(crate) number: u64,
    /// Number of the process that wrote the segment.
    pub(crate) boot: u64,
}

impl SegmentName {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (boot, number) = name.strip_suffix(".log")?.split_once('-')?;
        let found = Self {
            number: number.parse().ok()?,
            boot: u64::from_str_radix(boot, 16).ok()?,
        };
        (found.to_string() == name).then_some(found)
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:08}.log", self.boot, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_segment_has_one_name() {
        let name = SegmentName {
            number: 7,
            boot: 0x1f,
        };
        assert_eq!(name.to_string(), "000000000000001f-00000007.log");
        assert_eq!(
            SegmentName::parse("000000000000001f-00000007.log"),
            Some(name)
        );
        for other in [
            "1f-7.log",
            "000000000000001f-00000007.tmp",
            "reserve",
            "lock",
            "",
        ] {
            assert_eq!(SegmentName::parse(other), None, "{other}");
        }
    }
}
