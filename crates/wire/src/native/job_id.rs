//! What a caller may call a job.

use stream::StreamId;

/// Bytes of a job id.
pub const JOB_ID_BYTES_MAX: usize = 64;
/// What it must be.
pub const JOB_ID_WORDS: &str =
    "must be 1 to 64 letters, digits, '.', '_' or '-', and not 32 lowercase hexadecimal digits";

/// A name a caller gave to a job. What looks like a stream's id is none: a job without a name goes by
/// its stream's, and nobody may take that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobId(Box<str>);

impl JobId {
    /// Takes a good name.
    pub fn parse(text: &str) -> Option<Self> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let good = (1..=JOB_ID_BYTES_MAX).contains(&text.len())
            && text.bytes().all(is_good)
            // A path segment that is only dots means another path.
            && text.bytes().any(|byte| byte != b'.')
            && text.parse::<StreamId>().is_err();
        good.then(|| Self(text.into()))
    }

    /// As it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_fit_in_a_path() {
        let (longest, stream_id) = ("a".repeat(JOB_ID_BYTES_MAX), "ab".repeat(16));
        for good in ["a", "job-1", "A.b_c-9", &longest, &stream_id.to_uppercase()] {
            assert_eq!(JobId::parse(good).as_ref().map(JobId::as_str), Some(good));
        }
        let too_long = "a".repeat(JOB_ID_BYTES_MAX + 1);
        let bad = [
            "", ".", "..", "a b", "a/b", "é", "a\n", "%41", &too_long, &stream_id,
        ];
        for bad in bad {
            assert_eq!(JobId::parse(bad), None, "{bad:?}");
        }
    }
}
