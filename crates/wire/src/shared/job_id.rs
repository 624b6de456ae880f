//! Job ids chosen by callers.

use stream::StreamId;

/// Limit of a job id in bytes.
pub const JOB_ID_BYTES_MAX: usize = 64;
/// Error message for an invalid job id.
pub const JOB_ID_MESSAGE: &str =
    "must be 1 to 64 letters, digits, '.', '_' or '-', and not 32 lowercase hexadecimal digits";

/// A job id chosen by a caller. Text in the syntax of a stream id is invalid: a job without a chosen id has its
/// stream's id, which no other job may take.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobId(Box<str>);

impl JobId {
    /// Parses a job id; `None` for invalid text.
    pub fn parse(text: &str) -> Option<Self> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let good = (1..=JOB_ID_BYTES_MAX).contains(&text.len())
            && text.bytes().all(is_good)
            // A path segment of dots only is resolved to another path.
            && text.bytes().any(|byte| byte != b'.')
            && text.parse::<StreamId>().is_err();
        good.then(|| Self(text.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_id_is_bounded_and_fits_in_a_path() {
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
