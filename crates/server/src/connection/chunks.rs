//! A streamed response as chunks on a socket (RFC 9112, section 7.1).
//!
//! One frame is written at a time: the next frame is encoded after the kernel took the previous one, so that
//! backpressure of a slow reader is noticed early. Chunk length, frame and chunk end are written from where they are,
//! without a copy.

use super::buffered_stream::BufferedStream;
use crate::response::stream_body::StreamBody;
use bytes::{Buf, Bytes};
use gateway::streams::EndReceipt;
use http_body::Body;
use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of the next request that are read while a response is sent; the rest stays in the kernel.
const AHEAD_BYTES_MAX: usize = 256;
/// Bytes of the longest chunk length: 16 hexadecimal digits, CR and LF.
const LENGTH_BYTES_MAX: usize = 18;
const END: &[u8] = b"\r\n";
const LAST_END: &[u8] = b"\r\n0\r\n\r\n";
const LAST: &[u8] = b"0\r\n\r\n";

/// Sends the whole stream.
///
/// # Errors
/// The client disconnected, or the socket failed.
pub(super) async fn send_stream(
    buffered: &mut BufferedStream,
    body: Box<StreamBody>,
) -> io::Result<()> {
    let mut sender = Sender {
        buffered,
        body,
        chunk: Chunk::default(),
        is_last: false,
        receipt: None,
    };
    poll_fn(|cx| sender.poll(cx)).await
}

struct Sender<'a> {
    buffered: &'a mut BufferedStream,
    body: Box<StreamBody>,
    /// The part of the chunk that the socket has not taken.
    chunk: Chunk,
    /// Whether this is the last chunk.
    is_last: bool,
    /// Of a stream whose end is in the chunk.
    receipt: Option<EndReceipt>,
}

impl Sender<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.read_ahead(cx)?;
        loop {
            while self.chunk.has_rest() {
                let written = self.chunk.write(self.buffered, cx);
                match ready!(written)? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    n => self.chunk.advance(n),
                }
            }
            ready!(self.buffered.poll_send(cx))?;
            if self.is_last && self.body.is_cut() {
                // Without a last chunk the client knows that the response has no end.
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            if self.is_last {
                if let Some(receipt) = self.receipt.take() {
                    receipt.confirm();
                }
                return Poll::Ready(Ok(()));
            }
            let frame = ready!(Pin::new(self.body.as_mut()).poll_frame(cx));
            let bytes = frame.and_then(|frame| match frame {
                Ok(frame) => frame.into_data().ok(),
                Err(never) => match never {},
            });
            self.is_last = bytes.is_none() || self.body.is_end_stream();
            self.receipt = self.body.take_end_receipt();
            let ends = self.is_last && !self.body.is_cut();
            self.chunk = Chunk::new(bytes.unwrap_or_default(), ends);
        }
    }

    /// Notices a disconnected client. Bytes that arrive meanwhile belong to the next request.
    fn read_ahead(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.buffered.is_ahead() {
            return Ok(());
        }
        let mut room = [0; AHEAD_BYTES_MAX];
        let mut into = ReadBuf::new(&mut room);
        match Pin::new(&mut *self.buffered).poll_read(cx, &mut into) {
            Poll::Pending => Ok(()),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) if into.filled().is_empty() => {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Poll::Ready(Ok(())) => {
                self.buffered.put_back(into.filled());
                Ok(())
            }
        }
    }
}

/// `<length in hex> CRLF <data> CRLF`, the unsent part. A chunk without data would end the body.
#[derive(Default)]
struct Chunk {
    length: [u8; LENGTH_BYTES_MAX],
    /// The unsent part of `length`.
    from: usize,
    upto: usize,
    data: Bytes,
    end: &'static [u8],
}

impl Chunk {
    fn new(data: Bytes, is_last: bool) -> Self {
        let mut chunk = Self {
            end: match (data.is_empty(), is_last) {
                (true, true) => LAST,
                (true, false) => b"",
                (false, true) => LAST_END,
                (false, false) => END,
            },
            ..Self::default()
        };
        if !data.is_empty() {
            let mut room = chunk.length.as_mut_slice();
            // The longest length fits.
            let _ = write!(room, "{:x}\r\n", data.len());
            chunk.upto = LENGTH_BYTES_MAX - room.len();
        }
        chunk.data = data;
        chunk
    }

    fn has_rest(&self) -> bool {
        // `end` is sent last.
        !self.end.is_empty()
    }

    fn write(
        &self,
        buffered: &mut BufferedStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let parts = [&self.length[self.from..self.upto], &self.data, self.end];
        Pin::new(buffered).poll_write_vectored(cx, &parts.map(IoSlice::new))
    }

    fn advance(&mut self, n: usize) {
        let of_length = n.min(self.upto - self.from);
        self.from += of_length;
        let of_data = (n - of_length).min(self.data.len());
        self.data.advance(of_data);
        if self.data.is_empty() {
            // Releases the memory for the next frame.
            self.data = Bytes::new();
        }
        self.end = &self.end[n - of_length - of_data..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes received by a socket that takes `step` bytes at a time.
    fn sent(data: &'static [u8], is_last: bool, step: usize) -> Vec<u8> {
        let mut chunk = Chunk::new(Bytes::from_static(data), is_last);
        let mut out = Vec::new();
        while chunk.has_rest() {
            let parts = [
                &chunk.length[chunk.from..chunk.upto],
                &chunk.data,
                chunk.end,
            ];
            let all = parts.concat();
            let n = step.min(all.len());
            out.extend_from_slice(&all[..n]);
            chunk.advance(n);
        }
        out
    }

    #[test]
    fn chunk_bytes_are_independent_of_write_sizes() {
        let rows: [(&'static [u8], bool, &[u8]); 5] = [
            (b"data: x\n\n", false, b"9\r\ndata: x\n\n\r\n"),
            (b"data: x\n\n", true, b"9\r\ndata: x\n\n\r\n0\r\n\r\n"),
            (b"0123456789abcdef0", false, b"11\r\n0123456789abcdef0\r\n"),
            (b"", true, b"0\r\n\r\n"),
            (b"", false, b""),
        ];
        for (data, is_last, want) in rows {
            for step in 1..=want.len().max(1) {
                assert_eq!(sent(data, is_last, step), want, "{data:?} by {step}");
            }
        }
    }
}
