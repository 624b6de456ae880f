//! Names of segments: `{boot:016x}-{number:08}.log`.

use std::fmt;

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
