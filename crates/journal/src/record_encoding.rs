//! The encoding of records: `kind u8, handle varint, sequence varint, length varint, body`.

use crate::record::{
    Alternative, Alternatives, CHOICES_MAX, HAS_ALTERNATIVES, HAS_LOGPROBS, Open, RECORD_BYTES_MAX,
    Record, SAMPLING_BYTES_MAX, TOKENS_PER_CHOICE_MAX, TOKENS_PER_RECORD_MAX, Tokens, kind,
};

/// Where a record belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordAddress {
    /// The stream's number in this journal; between machines the caller's choice.
    pub handle: u64,
    /// Number of the record in the stream, from 0 on without a gap.
    pub sequence: u64,
}

/// A record beyond a bound of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part} of a record: {size}, at most {max}")]
pub struct RecordError {
    /// The part of the record.
    pub part: &'static str,
    /// The size of the part.
    pub size: u64,
    /// The bound.
    pub max: u64,
}

/// Appends one record to `out` and returns its bytes. A record beyond a bound leaves `out` unchanged.
///
/// # Errors
/// The part that is too large.
pub fn encode_record(
    out: &mut Vec<u8>,
    address: RecordAddress,
    record: &Record<'_>,
) -> Result<usize, RecordError> {
    check_bounds(record)?;
    let start = out.len();
    out.push(kind_of(record));
    push_varint(out, address.handle);
    push_varint(out, address.sequence);
    let length_at = out.len();
    // Most bodies are shorter than 128 bytes, so that one byte is enough for the length.
    out.push(0);
    push_body(out, record);
    let length = out.len() - length_at - 1;
    if let Err(error) = check_part("body", length, RECORD_BYTES_MAX) {
        out.truncate(start);
        return Err(error);
    }
    write_length(out, length_at, length);
    Ok(out.len() - start)
}

/// Writes a body's length before the body, which moves where one byte is not enough.
fn write_length(out: &mut Vec<u8>, at: usize, length: usize) {
    let more = varint_bytes(length as u64) - 1;
    if more > 0 {
        let end = out.len();
        out.resize(end + more, 0);
        out.copy_within(at + 1..end, at + 1 + more);
    }
    let mut rest = length;
    for byte in &mut out[at..at + more] {
        *byte = rest as u8 | 0x80;
        rest >>= 7;
    }
    out[at + more] = rest as u8;
}

fn kind_of(record: &Record<'_>) -> u8 {
    match record {
        Record::Open(_) => kind::OPEN,
        Record::Started { .. } => kind::STARTED,
        Record::Tokens(_) => kind::TOKENS,
        Record::Steered { .. } => kind::STEERED,
        Record::Paused { .. } => kind::PAUSED,
        Record::Broke { .. } => kind::BROKE,
        Record::Ended { .. } => kind::ENDED,
        Record::Claimed { .. } => kind::CLAIMED,
        Record::Kept { .. } => kind::KEPT,
        Record::Prepared { .. } => kind::PREPARED,
        Record::Forgotten { .. } => kind::FORGOTTEN,
        Record::Gap => kind::GAP,
        Record::Seal => kind::SEAL,
        Record::Unknown { kind, .. } => *kind,
    }
}

fn push_body(out: &mut Vec<u8>, record: &Record<'_>) {
    match *record {
        Record::Open(open) => {
            out.extend_from_slice(&open.id.to_be_bytes());
            push_varint(out, u64::from(open.version));
            push_varint(out, open.replaces);
            out.extend_from_slice(open.body);
        }
        Record::Started {
            cached_tokens,
            at_unix_us,
        } => push_numbers(out, &[cached_tokens, at_unix_us]),
        Record::Tokens(tokens) => push_tokens(out, &tokens),
        Record::Steered { sampling: bytes }
        | Record::Kept { outcome: bytes }
        | Record::Prepared { body: bytes } => {
            out.extend_from_slice(bytes);
        }
        Record::Paused { on } => out.push(u8::from(on)),
        Record::Broke { choice } => push_varint(out, u64::from(choice)),
        Record::Ended {
            choice,
            end,
            at_unix_us,
        } => push_numbers(out, &[u64::from(choice), u64::from(end), at_unix_us]),
        Record::Claimed {
            generation,
            instance,
            attempt,
            why,
            tokens,
        } => {
            let (attempt, why) = (u64::from(attempt), u64::from(why));
            push_numbers(out, &[generation, instance, attempt, why, tokens]);
        }
        Record::Forgotten { why, copy } => {
            push_varint(out, u64::from(why));
            if copy != 0 {
                push_varint(out, copy);
            }
        }
        Record::Gap | Record::Seal => {}
        Record::Unknown { body, .. } => out.extend_from_slice(body),
    }
}

fn push_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        push_varint(out, *number);
    }
}

fn push_tokens(out: &mut Vec<u8>, tokens: &Tokens<'_>) {
    let has_logprobs = !tokens.logprobs.is_empty();
    let has_alternatives = !tokens.alternatives.counts.is_empty();
    out.push(u8::from(has_logprobs) * HAS_LOGPROBS + u8::from(has_alternatives) * HAS_ALTERNATIVES);
    push_varint(out, u64::from(tokens.choice));
    push_varint(out, u64::from(tokens.first));
    push_varint(out, tokens.ids.len() as u64);
    for id in tokens.ids {
        push_varint(out, u64::from(*id));
    }
    for logprob in tokens.logprobs {
        out.extend_from_slice(&logprob.to_le_bytes());
    }
    let mut items = tokens.alternatives.items.iter();
    for count in tokens.alternatives.counts {
        out.push(*count);
        for item in items.by_ref().take(usize::from(*count)) {
            push_varint(out, u64::from(item.id));
            out.extend_from_slice(&item.logprob.to_le_bytes());
        }
    }
}

fn check_bounds(record: &Record<'_>) -> Result<(), RecordError> {
    match record {
        Record::Open(open) => check_part("description", open.body.len(), RECORD_BYTES_MAX - 64),
        Record::Steered { sampling } => {
            check_part("sampling parameters", sampling.len(), SAMPLING_BYTES_MAX)
        }
        Record::Kept { outcome } => check_part("outcome", outcome.len(), RECORD_BYTES_MAX),
        Record::Prepared { body } | Record::Unknown { body, .. } => {
            check_part("body", body.len(), RECORD_BYTES_MAX)
        }
        Record::Broke { choice } | Record::Ended { choice, .. } => check_choice(*choice),
        Record::Tokens(tokens) => check_tokens(tokens),
        _ => Ok(()),
    }
}

fn check_tokens(tokens: &Tokens<'_>) -> Result<(), RecordError> {
    check_choice(tokens.choice)?;
    let count = tokens.ids.len();
    check_part("tokens", count, TOKENS_PER_RECORD_MAX)?;
    let end = tokens.first as usize + count;
    check_part("tokens of a choice", end, TOKENS_PER_CHOICE_MAX as usize)?;
    let per_token = |length: usize| length == 0 || length == count;
    let items: usize = tokens
        .alternatives
        .counts
        .iter()
        .map(|c| usize::from(*c))
        .sum();
    let is_regular = per_token(tokens.logprobs.len())
        && per_token(tokens.alternatives.counts.len())
        && items == tokens.alternatives.items.len();
    if is_regular {
        return Ok(());
    }
    Err(RecordError {
        part: "log-probabilities or alternatives",
        size: (tokens.logprobs.len() + items) as u64,
        max: count as u64,
    })
}

fn check_choice(choice: u32) -> Result<(), RecordError> {
    check_part("choice", choice as usize, CHOICES_MAX as usize - 1)
}

fn check_part(part: &'static str, size: usize, max: usize) -> Result<(), RecordError> {
    let (size, max) = (size as u64, max as u64);
    if size <= max {
        return Ok(());
    }
    Err(RecordError { part, size, max })
}

/// One record with the address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecodedRecord<'a> {
    /// Stream and sequence number.
    pub address: RecordAddress,
    /// The record.
    pub record: Record<'a>,
    /// Bytes of header and body.
    pub bytes: usize,
}

/// The bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not a record of a stream")]
pub struct NotARecord;

/// A record before its body was decoded: all that is needed to skip or to copy the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawRecord<'a> {
    pub(crate) kind: u8,
    pub(crate) address: RecordAddress,
    pub(crate) body: &'a [u8],
    pub(crate) bytes: usize,
}

impl<'a> RawRecord<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = ByteReader(bytes);
        let kind = reader.take_u8()?;
        let handle = reader.take_varint()?;
        let sequence = reader.take_varint()?;
        let length = usize::try_from(reader.take_varint()?).ok()?;
        if length > RECORD_BYTES_MAX {
            return None;
        }
        let body = reader.take_slice(length)?;
        Some(Self {
            kind,
            address: RecordAddress { handle, sequence },
            body,
            bytes: bytes.len() - reader.0.len(),
        })
    }
}

/// Decodes records; the buffers of tokens are used again for each record.
#[derive(Debug, Default)]
pub struct RecordDecoder {
    ids: Vec<u32>,
    logprobs: Vec<f32>,
    counts: Vec<u8>,
    items: Vec<Alternative>,
}

impl RecordDecoder {
    /// The record at the beginning of `bytes`.
    ///
    /// # Errors
    /// The bytes end early, or a value is beyond a bound.
    pub fn decode_record<'d>(
        &'d mut self,
        bytes: &'d [u8],
    ) -> Result<DecodedRecord<'d>, NotARecord> {
        let raw = RawRecord::read(bytes).ok_or(NotARecord)?;
        Ok(DecodedRecord {
            address: raw.address,
            record: self.decode_body(raw).ok_or(NotARecord)?,
            bytes: raw.bytes,
        })
    }

    /// Bytes after the known part of a body are skipped: a newer version may have added them.
    pub(crate) fn decode_body<'d>(&'d mut self, raw: RawRecord<'d>) -> Option<Record<'d>> {
        let mut body = ByteReader(raw.body);
        Some(match raw.kind {
            kind::OPEN => Record::Open(Open {
                id: body.take_u128()?,
                version: body.take_u32()?,
                replaces: body.take_varint()?,
                body: body.0,
            }),
            kind::STARTED => Record::Started {
                cached_tokens: body.take_varint()?,
                at_unix_us: body.take_varint()?,
            },
            kind::TOKENS => Record::Tokens(self.decode_tokens(body)?),
            kind::STEERED => Record::Steered { sampling: body.0 },
            kind::PAUSED => Record::Paused {
                on: body.take_u8()? != 0,
            },
            kind::BROKE => Record::Broke {
                choice: take_choice(&mut body)?,
            },
            kind::ENDED => Record::Ended {
                choice: take_choice(&mut body)?,
                end: body.take_u32()?,
                at_unix_us: body.take_varint()?,
            },
            kind::CLAIMED => Record::Claimed {
                generation: body.take_varint()?,
                instance: body.take_varint()?,
                attempt: body.take_u32()?,
                why: body.take_u32()?,
                tokens: body.take_varint()?,
            },
            kind::PREPARED => Record::Prepared { body: body.0 },
            kind::KEPT => Record::Kept { outcome: body.0 },
            kind::FORGOTTEN => Record::Forgotten {
                why: body.take_u32()?,
                copy: body.take_varint().unwrap_or(0),
            },
            kind::GAP => Record::Gap,
            kind::SEAL => Record::Seal,
            kind => Record::Unknown {
                kind,
                body: raw.body,
            },
        })
    }

    fn decode_tokens<'d>(&'d mut self, mut body: ByteReader<'d>) -> Option<Tokens<'d>> {
        let flags = body.take_u8()?;
        let choice = take_choice(&mut body)?;
        let first = body.take_u32()?;
        let count = body.take_u32()?;
        let is_bounded = count as usize <= TOKENS_PER_RECORD_MAX.min(body.0.len())
            && first.checked_add(count)? <= TOKENS_PER_CHOICE_MAX;
        if !is_bounded {
            return None;
        }
        self.ids.clear();
        for _ in 0..count {
            self.ids.push(body.take_u32()?);
        }
        self.logprobs.clear();
        if flags & HAS_LOGPROBS != 0 {
            for _ in 0..count {
                self.logprobs.push(body.take_f32()?);
            }
        }
        self.decode_alternatives(flags, count, &mut body)?;
        Some(Tokens {
            choice,
            first,
            ids: &self.ids,
            logprobs: &self.logprobs,
            alternatives: Alternatives {
                counts: &self.counts,
                items: &self.items,
            },
        })
    }

    fn decode_alternatives(
        &mut self,
        flags: u8,
        tokens: u32,
        body: &mut ByteReader<'_>,
    ) -> Option<()> {
        self.counts.clear();
        self.items.clear();
        if flags & HAS_ALTERNATIVES == 0 {
            return Some(());
        }
        for _ in 0..tokens {
            let count = body.take_u8()?;
            self.counts.push(count);
            for _ in 0..count {
                let id = body.take_u32()?;
                let logprob = body.take_f32()?;
                self.items.push(Alternative { id, logprob });
            }
        }
        Some(())
    }
}

fn take_choice(body: &mut ByteReader<'_>) -> Option<u32> {
    body.take_u32().filter(|choice| *choice < CHOICES_MAX)
}

/// Appends `value` as LEB128: seven bits a byte, the lowest first.
#[inline]
pub(crate) fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes of `value` as LEB128.
pub(crate) fn varint_bytes(value: u64) -> usize {
    (64 - value.max(1).leading_zeros() as usize).div_ceil(7)
}

/// The unread rest of a record. Every read is checked; `None` means that the bytes do not contain the value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteReader<'a>(pub(crate) &'a [u8]);

impl<'a> ByteReader<'a> {
    #[inline]
    pub(crate) fn take_u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    #[inline]
    pub(crate) fn take_varint(&mut self) -> Option<u64> {
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

    #[inline]
    pub(crate) fn take_u32(&mut self) -> Option<u32> {
        u32::try_from(self.take_varint()?).ok()
    }

    pub(crate) fn take_f32(&mut self) -> Option<f32> {
        let (bits, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(f32::from_le_bytes(*bits))
    }

    pub(crate) fn take_u128(&mut self) -> Option<u128> {
        let (bits, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u128::from_be_bytes(*bits))
    }

    pub(crate) fn take_slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (slice, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varint_is_read_back_and_its_length_is_known() {
        for value in [
            0,
            1,
            127,
            128,
            16_383,
            16_384,
            u64::from(u32::MAX),
            u64::MAX,
        ] {
            let mut out = Vec::new();
            push_varint(&mut out, value);
            assert_eq!(out.len(), varint_bytes(value), "{value}");
            assert_eq!(ByteReader(&out).take_varint(), Some(value));
            assert_eq!(ByteReader(&out[..out.len() - 1]).take_varint(), None);
        }
    }

    #[test]
    fn varint_beyond_64_bits_is_rejected() {
        assert_eq!(ByteReader(&[0xff; 11]).take_varint(), None);
        let mut too_large = [0x80; 10];
        too_large[9] = 2;
        assert_eq!(ByteReader(&too_large).take_varint(), None);
    }
}
