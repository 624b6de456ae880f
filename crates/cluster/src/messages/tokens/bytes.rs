//! Values in messages of tokens: LEB128 varints, little-endian floats, runs, and a reader whose every read is checked.

use super::{RunKey, TokenRun};
use engine::Phase;

/// Appends `value` as LEB128: seven bits a byte, the lowest first.
pub(super) fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn push_f32(out: &mut Vec<u8>, value: f32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// The unread rest of a message. `None` means that the bytes do not contain the value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take_u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn take_u64(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take_u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn take_u32(&mut self) -> Option<u32> {
        u32::try_from(self.take_u64()?).ok()
    }

    /// A number of values of at least `least` bytes each, at most `max` and no more than the rest can contain.
    pub(super) fn take_count(&mut self, max: usize, least: usize) -> Option<usize> {
        let count = usize::try_from(self.take_u64()?).ok()?;
        (count <= max && count <= self.0.len() / least).then_some(count)
    }

    pub(super) fn take_f32(&mut self) -> Option<f32> {
        let (bits, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(f32::from_le_bytes(*bits))
    }
}

/// Appends a run.
pub(super) fn push_run(out: &mut Vec<u8>, run: &TokenRun<'_>) {
    let RunKey {
        handle,
        attempt,
        choice,
        first,
    } = run.key;
    push_varint(out, handle);
    let rest = [attempt, choice, first];
    rest.iter()
        .for_each(|&value| push_varint(out, value.into()));
    let top_n = run.top.len() / run.tokens.len();
    // A NaN that the engine did not compute has these bits.
    let has_logprobs = run
        .tokens
        .iter()
        .any(|token| token.logprob.to_bits() != f32::NAN.to_bits());
    out.extend([u8::from(has_logprobs), top_n as u8]);
    push_varint(out, run.tokens.len() as u64);
    for (i, token) in run.tokens.iter().enumerate() {
        push_varint(out, token.id.into());
        if has_logprobs {
            push_f32(out, token.logprob);
        }
        for alternative in &run.top[i * top_n..][..top_n] {
            push_varint(out, alternative.id.into());
            push_f32(out, alternative.logprob);
        }
    }
}

/// The phase with this number.
pub(super) fn phase_from(number: u8) -> Option<Phase> {
    let phases = [
        Phase::Queued,
        Phase::Prefilling,
        Phase::Running,
        Phase::Parked,
        Phase::Ended,
        Phase::Paused,
    ];
    phases.into_iter().find(|&phase| phase as u8 == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_back_and_no_prefix_contains_them() {
        let mut out = Vec::new();
        push_varint(&mut out, u64::MAX);
        push_varint(&mut out, 128);
        push_f32(&mut out, -1.5);
        let read = |bytes: &[u8]| {
            let mut reader = Reader(bytes);
            Some((reader.take_u64()?, reader.take_u32()?, reader.take_f32()?))
        };
        assert_eq!(read(&out), Some((u64::MAX, 128, -1.5)));
        for cut in 0..out.len() {
            assert_eq!(read(&out[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn numbers_above_the_bound_or_the_rest_are_rejected() {
        assert_eq!(Reader(&[3, 1, 1, 1]).take_count(2, 1), None);
        assert_eq!(Reader(&[3, 1, 1]).take_count(9, 1), None);
        assert_eq!(Reader(&[3, 1, 1, 1]).take_count(9, 2), None);
        assert_eq!(Reader(&[0xff; 11]).take_u64(), None);
        let mut huge = Vec::new();
        push_varint(&mut huge, u64::MAX);
        assert_eq!(Reader(&huge).take_count(usize::MAX, 1), None);
        assert_eq!(Reader(&huge).take_u32(), None);
    }
}
