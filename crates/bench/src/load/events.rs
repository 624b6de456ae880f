//! Server-sent events: `data:` lines out of bytes that arrive in any pieces.

/// Bytes of one line at most: a longer one is no token stream.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Lines as they come.
#[derive(Default)]
pub(super) struct Events {
    /// The beginning of a line whose end has not come.
    partial: Vec<u8>,
}

/// A line longer than any token stream has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Events {
    /// Calls `each` with the payload of every `data:` line that `bytes` complete.
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
                self.keep(line)?;
                payload(&self.partial, &mut each);
                self.partial.clear();
            }
            bytes = rest;
        }
        self.keep(bytes)
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.partial.len() + bytes.len() > LINE_BYTES_MAX {
            return Err(TooLong);
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }
}

/// Every event of these streams is one line, so that a line is an event.
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
    fn pieces_change_nothing() {
        let text =
            b": hello\n\ndata: {\"a\":1}\n\nid: 7\ndata:{}\r\n\r\nevent: x\ndata: [DONE]\n\n";
        for size in 1..=text.len() {
            let (mut events, mut seen) = (Events::default(), Vec::new());
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
    fn a_line_without_end_is_refused() {
        let mut events = Events::default();
        let piece = vec![b'x'; LINE_BYTES_MAX];
        assert_eq!(events.push(&piece, |_| {}), Ok(()));
        assert_eq!(events.push(b"x", |_| {}), Err(TooLong));
    }
}
