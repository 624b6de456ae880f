//! Records to bytes: `kind u8, handle varint, sequence varint, length varint, body`.

use crate::bytes::{push_varint, varint_bytes};
use crate::limits::{
    CHOICES_MAX, RECORD_BYTES_MAX, SAMPLING_BYTES_MAX, TOKENS_PER_CHOICE_MAX, TOKENS_PER_RECORD_MAX,
};
use crate::record::{Record, Tokens};
use crate::record_kind as kind;
use std::fmt;

/// Where a record belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordAddress {
    /// The stream's number in this journal; between machines the caller's choice.
    pub handle: u64,
    /// Number of the record in the stream, from 0 on without a gap.
    pub sequence: u64,
}

/// A record beyond a bound of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// The part of the record.
    pub part: &'static str,
    /// The size of the part.
    pub size: u64,
    /// The bound.
    pub max: u64,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, size, max } = self;
        write!(f, "{part} of a record: {size}, at most {max}")
    }
}

impl std::error::Error for RecordError {}

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
    out.push(
        u8::from(has_logprobs) * kind::HAS_LOGPROBS
            + u8::from(has_alternatives) * kind::HAS_ALTERNATIVES,
    );
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
