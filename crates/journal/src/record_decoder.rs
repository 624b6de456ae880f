//! Bytes to records. Nothing is allocated for a length before the length was compared with the bytes that are there.

use crate::bytes::ByteReader;
use crate::limits::{CHOICES_MAX, RECORD_BYTES_MAX, TOKENS_PER_CHOICE_MAX, TOKENS_PER_RECORD_MAX};
use crate::record::{Alternative, Alternatives, Open, Record, Tokens};
use crate::record_encoder::RecordAddress;
use crate::record_kind as kind;
use std::fmt;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotARecord;

impl fmt::Display for NotARecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the bytes are not a record of a stream")
    }
}

impl std::error::Error for NotARecord {}

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
        if flags & kind::HAS_LOGPROBS != 0 {
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
        if flags & kind::HAS_ALTERNATIVES == 0 {
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
