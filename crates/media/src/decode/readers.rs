//! Readers over a file in memory: numbers of a header, and input of decoders that ends when the time of a decode is over.
//!
//! Decoders take their input through these, so that none has to be trusted to stop by itself.

use crate::limits::Deadline;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use zune_core::bytestream::{ZByteIoError, ZByteReaderTrait, ZSeekFrom};

/// Numbers of either byte order in the bytes of a header. A read past the end is `None`.
pub(crate) trait HeaderBytes {
    /// `count` bytes from `at`.
    fn part(&self, at: usize, count: usize) -> Option<&[u8]>;

    fn u8(&self, at: usize) -> Option<u8>;
    fn u16_be(&self, at: usize) -> Option<u16>;
    fn u16_le(&self, at: usize) -> Option<u16>;
    fn u24_le(&self, at: usize) -> Option<u32>;
    fn u32_be(&self, at: usize) -> Option<u32>;
    fn u32_le(&self, at: usize) -> Option<u32>;
}

impl HeaderBytes for [u8] {
    fn part(&self, at: usize, count: usize) -> Option<&[u8]> {
        self.get(at..at.checked_add(count)?)
    }

    fn u8(&self, at: usize) -> Option<u8> {
        self.get(at).copied()
    }

    fn u16_be(&self, at: usize) -> Option<u16> {
        Some(u16::from_be_bytes(*self.get(at..)?.first_chunk()?))
    }

    fn u16_le(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(*self.get(at..)?.first_chunk()?))
    }

    fn u24_le(&self, at: usize) -> Option<u32> {
        let &[low, middle, high] = self.get(at..)?.first_chunk()?;
        Some(u32::from_le_bytes([low, middle, high, 0]))
    }

    fn u32_be(&self, at: usize) -> Option<u32> {
        Some(u32::from_be_bytes(*self.get(at..)?.first_chunk()?))
    }

    fn u32_le(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.get(at..)?.first_chunk()?))
    }
}

/// Bytes that are handed out between two looks at the clock.
const PIECE_BYTES: usize = 4096;

/// A buffered reader of a file in memory, in pieces.
pub(crate) struct Watched<'a> {
    bytes: &'a [u8],
    at: usize,
    deadline: &'a Deadline<'a>,
}

impl<'a> Watched<'a> {
    pub(crate) fn new(bytes: &'a [u8], deadline: &'a Deadline<'a>) -> Self {
        Self {
            bytes,
            at: 0,
            deadline,
        }
    }
}

impl Read for Watched<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let piece = self.fill_buf()?;
        let count = piece.len().min(to.len());
        to[..count].copy_from_slice(&piece[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Watched<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.deadline.is_over() {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        Ok(&rest[..rest.len().min(PIECE_BYTES)])
    }

    fn consume(&mut self, count: usize) {
        self.at = self.at.saturating_add(count).min(self.bytes.len());
    }
}

impl Seek for Watched<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, offset) = match to {
            SeekFrom::Start(at) => (0, i64::try_from(at).unwrap_or(i64::MAX)),
            SeekFrom::End(offset) => (self.bytes.len(), offset),
            SeekFrom::Current(offset) => (self.at, offset),
        };
        let at = (base as i64)
            .checked_add(offset)
            .and_then(|at| usize::try_from(at).ok());
        self.at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at as u64)
    }
}

/// Reads between two looks at the clock. Each one takes one to four bytes.
const READS: u32 = 1024;

/// The reader of the JPEG decoder, which asks for four bytes at a time.
pub(crate) struct WatchedScan<'a> {
    bytes: &'a [u8],
    at: usize,
    reads_left: u32,
    deadline: &'a Deadline<'a>,
}

impl<'a> WatchedScan<'a> {
    pub(crate) fn new(bytes: &'a [u8], deadline: &'a Deadline<'a>) -> Self {
        Self {
            bytes,
            at: 0,
            reads_left: READS,
            deadline,
        }
    }

    /// Counts a read. When the time is over, the rest of the file is gone.
    fn count_read(&mut self) {
        self.reads_left -= 1;
        if self.reads_left == 0 {
            self.reads_left = READS;
            if self.deadline.is_over() {
                self.bytes = &self.bytes[..self.at.min(self.bytes.len())];
            }
        }
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }
}

impl ZByteReaderTrait for WatchedScan<'_> {
    #[inline]
    fn read_byte_no_error(&mut self) -> u8 {
        self.count_read();
        match self.bytes.get(self.at) {
            Some(&byte) => {
                self.at += 1;
                byte
            }
            None => 0,
        }
    }

    #[inline]
    fn read_exact_bytes(&mut self, to: &mut [u8]) -> Result<(), ZByteIoError> {
        self.count_read();
        let end = self.at.saturating_add(to.len());
        let Some(from) = self.bytes.get(self.at..end) else {
            return Err(ZByteIoError::NotEnoughBytes(self.rest().len(), to.len()));
        };
        to.copy_from_slice(from);
        self.at = end;
        Ok(())
    }

    fn read_bytes(&mut self, to: &mut [u8]) -> Result<usize, ZByteIoError> {
        let count = self.peek_bytes(to)?;
        self.at += count;
        Ok(count)
    }

    fn peek_bytes(&mut self, to: &mut [u8]) -> Result<usize, ZByteIoError> {
        self.count_read();
        let rest = self.rest();
        let count = rest.len().min(to.len());
        to[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn peek_exact_bytes(&mut self, to: &mut [u8]) -> Result<(), ZByteIoError> {
        let count = self.peek_bytes(to)?;
        if count < to.len() {
            return Err(ZByteIoError::NotEnoughBytes(count, to.len()));
        }
        Ok(())
    }

    fn z_seek(&mut self, from: ZSeekFrom) -> Result<u64, ZByteIoError> {
        let (base, offset) = match from {
            ZSeekFrom::Start(at) => (0, i64::try_from(at).unwrap_or(i64::MAX)),
            ZSeekFrom::End(offset) => (self.bytes.len(), offset),
            ZSeekFrom::Current(offset) => (self.at, offset),
        };
        let at = (base as i64)
            .checked_add(offset)
            .and_then(|at| usize::try_from(at).ok());
        self.at = at.ok_or(ZByteIoError::SeekError("before the start"))?;
        Ok(self.at as u64)
    }

    #[inline]
    fn is_eof(&mut self) -> Result<bool, ZByteIoError> {
        Ok(self.at >= self.bytes.len())
    }

    fn z_position(&mut self) -> Result<u64, ZByteIoError> {
        Ok(self.at as u64)
    }

    fn read_remaining(&mut self, sink: &mut Vec<u8>) -> Result<usize, ZByteIoError> {
        let rest = self.rest();
        sink.extend_from_slice(rest);
        let count = rest.len();
        self.at += count;
        Ok(count)
    }
}
