//! Bytes of a response to the data of its events.

use crate::config::EVENT_BYTES_MAX;

/// Cuts server-sent events out of bytes. Only `data` is kept.
#[derive(Debug, Default)]
pub(crate) struct EventLines {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
}

/// An event is longer than [`EVENT_BYTES_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl EventLines {
    /// Appends the data of the events that these bytes complete to `into`.
    pub(crate) fn push(&mut self, bytes: &[u8], into: &mut Vec<Vec<u8>>) -> Result<(), TooLong> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + self.data.len() + part.len() > EVENT_BYTES_MAX {
                return Err(TooLong);
            }
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.take_line(into);
            }
        }
        Ok(())
    }

    fn take_line(&mut self, into: &mut Vec<Vec<u8>>) {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                into.push(std::mem::take(&mut self.data));
            }
        } else if let Some(data) = line.strip_prefix(b"data:") {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            let data = data.strip_prefix(b" ").unwrap_or(data);
            self.data.extend_from_slice(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(parts: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut lines, mut into) = (EventLines::default(), Vec::new());
        for part in parts {
            lines.push(part, &mut into).unwrap();
        }
        into
    }

    #[test]
    fn comments_and_other_fields_are_left_out() {
        let bytes = b": ping\n\nevent: x\r\ndata: {\"a\":1}\r\n\r\ndata:b\ndata: c\n\ndata: cut";
        assert_eq!(events(&[bytes]), [b"{\"a\":1}".to_vec(), b"b\nc".to_vec()]);
    }

    #[test]
    fn line_without_an_end_is_an_error() {
        let (mut lines, mut into) = (EventLines::default(), Vec::new());
        let piece = vec![b'x'; 1 << 16];
        let pushes = (0..32).map(|_| lines.push(&piece, &mut into));
        assert!(pushes.last().unwrap().is_err());
    }

    proptest! {
        #[test]
        fn events_do_not_depend_on_how_bytes_are_cut(cuts in prop::collection::vec(0..60usize, 0..8)) {
            let bytes = b"data: one\n\n: c\n\ndata: two\r\ndata: three\r\n\r\ndata: [DONE]\n\n";
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let parts: Vec<_> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(events(&parts), events(&[bytes]));
        }
    }
}
