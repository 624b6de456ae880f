//! JSON of bounded length as the body of a record.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::ser::Formatter;
use std::{fmt, io};
use wire::fields::bounds::VALUES_MAX;

/// Nesting that is decoded in any case: values of clients are parsed by themselves, each to serde_json's limit of 127.
const SAFE_DEPTH: usize = 100;

/// Lists, objects and members of a body: parsed ones take up to about 100 times the bytes of their text. A request has
/// at most [`VALUES_MAX`], of which a description has up to three copies (tools, their schemas, the grammar of calls).
const PARTS_MAX: usize = 4 * VALUES_MAX;

/// Why the body of a record cannot be encoded or decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescriptionError {
    /// The body is longer than this many bytes.
    TooLong(usize),
    /// The message names the field.
    Invalid(String),
}

impl fmt::Display for DescriptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(most) => write!(f, "longer than {most} bytes"),
            Self::Invalid(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for DescriptionError {}

/// JSON of at most `bytes_max` bytes, which can be decoded as a `T`. The work is bounded by `bytes_max`, whatever the
/// length of the value is.
pub(crate) fn to_json<T: DeserializeOwned>(
    value: &impl Serialize,
    bytes_max: usize,
) -> Result<Vec<u8>, DescriptionError> {
    let mut writer = BoundedWriter {
        bytes: Vec::new(),
        bytes_max,
    };
    let mut nesting = Nesting::default();
    let mut serializer = serde_json::Serializer::with_formatter(&mut writer, &mut nesting);
    match value.serialize(&mut serializer) {
        Ok(()) => {}
        Err(error) if error.is_io() => return Err(DescriptionError::TooLong(bytes_max)),
        Err(error) => return Err(DescriptionError::Invalid(error.to_string())),
    }
    require_parts(nesting.parts)?;
    if nesting.deepest > SAFE_DEPTH {
        from_json::<T>(&writer.bytes, bytes_max)?;
    }
    Ok(writer.bytes)
}

/// The value of a JSON text of at most `bytes_max` bytes. An error names the field.
pub(crate) fn from_json<T: DeserializeOwned>(
    bytes: &[u8],
    bytes_max: usize,
) -> Result<T, DescriptionError> {
    if bytes.len() > bytes_max {
        return Err(DescriptionError::TooLong(bytes_max));
    }
    require_parts(part_count(bytes))?;
    serde_json::from_slice(bytes).map_err(|error| {
        // Paths cost time, so that they are computed for errors only.
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let named = serde_path_to_error::deserialize::<_, T>(&mut json).err();
        let why = named.map_or_else(|| error.to_string(), |named| named.to_string());
        DescriptionError::Invalid(why)
    })
}

fn require_parts(parts: usize) -> Result<(), DescriptionError> {
    if parts > PARTS_MAX {
        let why = format!("has more than {PARTS_MAX} lists, objects and members");
        return Err(DescriptionError::Invalid(why));
    }
    Ok(())
}

/// Number of lists, objects and members in a JSON text.
fn part_count(json: &[u8]) -> usize {
    let (mut parts, mut in_string, mut is_escaped) = (0, false, false);
    for byte in json {
        if in_string {
            in_string = is_escaped || *byte != b'"';
            is_escaped = *byte == b'\\' && !is_escaped;
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' | b':' => parts += 1,
            _ => {}
        }
    }
    parts
}

/// Measures how deep lists and objects are nested, and counts lists, objects and members.
#[derive(Default)]
struct Nesting {
    depth: usize,
    deepest: usize,
    parts: usize,
}

impl Nesting {
    fn open(&mut self) {
        self.depth += 1;
        self.parts += 1;
        self.deepest = self.deepest.max(self.depth);
    }
}

impl Formatter for &mut Nesting {
    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open();
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        writer.write_all(b"]")
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open();
        writer.write_all(b"{")
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.parts += 1;
        writer.write_all(b":")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        writer.write_all(b"}")
    }
}

struct BoundedWriter {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl io::Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > self.bytes_max - self.bytes.len() {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
