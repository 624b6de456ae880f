//! Server-sent events: `data:` lines from arbitrarily split bytes.

/// Longest line in bytes; a longer line cannot be an event of a token stream.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Incremental line reader.
#[derive(Default)]
pub(super) struct SseReader {
    /// Start of an incomplete line.
    partial: Vec<u8>,
}

/// Error: a line longer than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl SseReader {
    /// Calls `each` with the payload of each completed `data:` line.
    pub(super) fn push(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), TooLong> {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            if self.partial.is_empty() {
                payload(line, &mut each);
            } else {
                self.return_idle(line)?;
                payload(&self.partial, &mut each);
                self.partial.clear();
            }
            bytes = rest;
        }
        self.return_idle(bytes)
    }

    fn return_idle(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.partial.len() + bytes.len() > LINE_BYTES_MAX {
            return Err(TooLong);
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }
}

/// In these streams each event is one line.
fn payload(line: &[u8], each: &mut impl FnMut(&[u8])) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if let Some(data) = line.strip_prefix(b"data:") {
        each(data.strip_prefix(b" ").unwrap_or(data));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_bytes_give_the_same_events() {
        let text =
            b": hello\n\ndata: {\"a\":1}\n\nid: 7\ndata:{}\r\n\r\nevent: x\ndata: [DONE]\n\n";
        for size in 1..=text.len() {
            let (mut events, mut seen) = (SseReader::default(), Vec::new());
            for piece in text.chunks(size) {
                events.push(piece, |data| seen.push(data.to_vec())).unwrap();
            }
            assert_eq!(
                seen,
                [&b"{\"a\":1}"[..], b"{}", b"[DONE]"],
                "pieces of {size}"
            );
        }
    }

    #[test]
    fn overlong_line_is_rejected() {
        let mut events = SseReader::default();
        let piece = vec![b'x'; LINE_BYTES_MAX];
        assert_eq!(events.push(&piece, |_| {}), Ok(()));
        assert_eq!(events.push(b"x", |_| {}), Err(TooLong));
    }
}
