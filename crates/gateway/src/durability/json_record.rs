//! JSON of bounded length as the body of a record.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::io;

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

/// JSON of at most `bytes_max` bytes. The work is bounded by `bytes_max`, whatever the length of the value is.
pub(super) fn to_json(
    value: &impl Serialize,
    bytes_max: usize,
) -> Result<Vec<u8>, DescriptionError> {
    let mut writer = BoundedWriter {
        bytes: Vec::new(),
        bytes_max,
    };
    match serde_json::to_writer(&mut writer, value) {
        Ok(()) => Ok(writer.bytes),
        Err(error) if error.is_io() => Err(DescriptionError::TooLong(bytes_max)),
        Err(error) => Err(DescriptionError::Invalid(error.to_string())),
    }
}

/// The value of a JSON text of at most `bytes_max` bytes. An error names the field.
pub(super) fn from_json<T: DeserializeOwned>(
    bytes: &[u8],
    bytes_max: usize,
) -> Result<T, DescriptionError> {
    if bytes.len() > bytes_max {
        return Err(DescriptionError::TooLong(bytes_max));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        // Paths cost time, so that they are computed for errors only.
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let named = serde_path_to_error::deserialize::<_, T>(&mut json).err();
        let why = named.map_or_else(|| error.to_string(), |named| named.to_string());
        DescriptionError::Invalid(why)
    })
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
