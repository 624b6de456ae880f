//! Scripts: what a client sends, line by line.
//!
//! ```text
//! {...            a text message; `$0` to `$9` stand for the ids of opened streams, `@0` to `@9` for their last cursors
//! t f b p o c     a text message, its first fragment, a binary message, ping, pong, close, with the rest of the line
//! m k             a middle and the last fragment
//! w               waits for a message of a stream, for a short time
//! !               the rest of the script as it is, in place of frames
//! ```

/// Lines of one script.
pub const LINES_MAX: usize = 48;

/// A line of a script.
pub enum Line<'a> {
    /// A frame with this first byte, and its payload.
    Frame(u8, &'a [u8]),
    /// A command, in which names are replaced.
    Command(&'a [u8]),
    /// Wait for a message of a stream.
    Wait,
    /// Bytes in place of frames.
    Raw(&'a [u8]),
}

/// The lines of a script.
pub fn lines(script: &[u8]) -> Vec<Line<'_>> {
    let (mut lines, mut rest) = (Vec::new(), script);
    while !rest.is_empty() && lines.len() < LINES_MAX {
        let end = rest.iter().position(|&byte| byte == b'\n');
        let (line, after) = rest.split_at(end.unwrap_or(rest.len()));
        let payload = line.get(1..).unwrap_or_default();
        let frame = |first| Some(Line::Frame(first, payload));
        lines.extend(match line.first() {
            Some(b'{') => Some(Line::Command(line)),
            Some(b't') => frame(0x81),
            Some(b'f') => frame(0x01),
            Some(b'm') => frame(0x00),
            Some(b'k') => frame(0x80),
            Some(b'b') => frame(0x82),
            Some(b'p') => frame(0x89),
            Some(b'o') => frame(0x8a),
            Some(b'c') => frame(0x88),
            Some(b'w') => Some(Line::Wait),
            Some(b'!') => {
                lines.push(Line::Raw(&rest[1..]));
                return lines;
            }
            _ => None,
        });
        rest = after.get(1..).unwrap_or_default();
    }
    lines
}

/// A masked frame of a client (RFC 6455, section 5.2).
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [7, 0, 255, 42];
    let mut frame = vec![first];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ ..=125), _) => frame.push(0x80 | length),
        (_, Ok(length)) => {
            frame.push(0x80 | 126);
            frame.extend(length.to_be_bytes());
        }
        _ => {
            frame.push(0x80 | 127);
            frame.extend((payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend(MASK);
    let masked = payload.iter().zip(MASK.iter().cycle());
    frame.extend(masked.map(|(byte, mask)| byte ^ mask));
    frame
}
