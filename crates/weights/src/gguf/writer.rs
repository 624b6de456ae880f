//! Writer of GGUF files, version 3, which does not buffer weights.

use super::limits::{ALIGNMENT_DEFAULT, DIMS_MAX};
use super::{TensorKind, Value, ValueKind};
use std::collections::HashSet;
use std::io::{self, Write};

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// An error of the sink.
    #[error("cannot write: {0}")]
    Io(#[from] io::Error),
    /// A duplicate key.
    #[error("key `{0}` was put twice")]
    DuplicateKey(String),
    /// Two tensors have the same name.
    #[error("tensor `{0}` was put twice")]
    DuplicateTensor(String),
    /// A tensor's shape does not fit its kind.
    #[error("tensor `{tensor}`: {why}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// The reason.
        why: String,
    },
    /// A tensor was filled with more or fewer bytes than shape and kind require.
    #[error("tensor `{tensor}` needs {wanted} bytes, was given {given}")]
    Bytes {
        /// The tensor.
        tensor: String,
        /// Required bytes.
        wanted: u64,
        /// Bytes written when the error was detected.
        given: u64,
    },
}

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorPlan {
    /// Name of the tensor.
    pub name: String,
    /// Shape, row length first.
    pub dims: Vec<u64>,
    /// Storage format.
    pub kind: TensorKind,
}

impl TensorPlan {
    /// Number of bytes.
    ///
    /// # Errors
    /// [`WriteError::Shape`].
    pub fn bytes(&self) -> Result<u64, WriteError> {
        let wrong = |why: String| WriteError::Shape {
            tensor: self.name.clone(),
            why,
        };
        if self.dims.is_empty() || self.dims.len() > DIMS_MAX as usize || self.dims.contains(&0) {
            return Err(wrong(format!("shape {:?} is none", self.dims)));
        }
        let (weights, bytes) = self
            .kind
            .block()
            .ok_or_else(|| wrong(format!("{} has no known size", self.kind)))?;
        if !self.dims[0].is_multiple_of(weights) {
            let why = format!("rows of {} are no whole {} blocks", self.dims[0], self.kind);
            return Err(wrong(why));
        }
        self.dims
            .iter()
            .try_fold(1_u64, |product, &dim| product.checked_mul(dim))
            .and_then(|total| (total / weights).checked_mul(bytes))
            .ok_or_else(|| wrong(format!("shape {:?} is too large", self.dims)))
    }
}

/// A file under construction: metadata and tensor infos are buffered, tensor data is requested while writing.
#[derive(Debug, Default)]
pub struct GgufWriter {
    entries: Vec<u8>,
    keys: Vec<String>,
    tensors: Vec<TensorPlan>,
}

/// Metadata.
impl GgufWriter {
    /// An empty file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a number.
    pub fn u32(&mut self, key: &str, value: u32) -> &mut Self {
        self.value(key, Value::U32(value))
    }

    /// Adds a number.
    pub fn f32(&mut self, key: &str, value: f32) -> &mut Self {
        self.value(key, Value::F32(value))
    }

    /// Adds a truth value.
    pub fn bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.value(key, Value::Bool(value))
    }

    /// Adds a string.
    pub fn str(&mut self, key: &str, value: &str) -> &mut Self {
        self.entry(key, ValueKind::String);
        put_string(&mut self.entries, value.as_bytes());
        self
    }

    /// Adds an array of strings, which need not be UTF-8.
    pub fn strings<S: AsRef<[u8]>>(&mut self, key: &str, values: &[S]) -> &mut Self {
        self.array(key, ValueKind::String, values.len());
        for value in values {
            put_string(&mut self.entries, value.as_ref());
        }
        self
    }

    /// Adds an array of numbers.
    pub fn i32s(&mut self, key: &str, values: &[i32]) -> &mut Self {
        self.array(key, ValueKind::I32, values.len());
        self.entries
            .extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self
    }

    /// Adds an array of numbers.
    pub fn f32s(&mut self, key: &str, values: &[f32]) -> &mut Self {
        self.array(key, ValueKind::F32, values.len());
        self.entries
            .extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self
    }

    /// Adds an array of truth values.
    pub fn bools(&mut self, key: &str, values: &[bool]) -> &mut Self {
        self.array(key, ValueKind::Bool, values.len());
        self.entries
            .extend(values.iter().map(|value| u8::from(*value)));
        self
    }

    /// Adds a value of any type, such as one read from another file.
    pub fn value(&mut self, key: &str, value: Value<'_>) -> &mut Self {
        self.entry(key, value.kind());
        let out = &mut self.entries;
        match value {
            Value::U8(v) => out.extend(v.to_le_bytes()),
            Value::I8(v) => out.extend(v.to_le_bytes()),
            Value::U16(v) => out.extend(v.to_le_bytes()),
            Value::I16(v) => out.extend(v.to_le_bytes()),
            Value::U32(v) => out.extend(v.to_le_bytes()),
            Value::I32(v) => out.extend(v.to_le_bytes()),
            Value::F32(v) => out.extend(v.to_le_bytes()),
            Value::Bool(v) => out.push(v.into()),
            Value::String(v) => put_string(out, v.as_bytes()),
            Value::Array(v) => {
                out.extend((v.kind() as u32).to_le_bytes());
                out.extend((v.len() as u64).to_le_bytes());
                out.extend(v.encoded());
            }
            Value::U64(v) => out.extend(v.to_le_bytes()),
            Value::I64(v) => out.extend(v.to_le_bytes()),
            Value::F64(v) => out.extend(v.to_le_bytes()),
        }
        self
    }

    fn entry(&mut self, key: &str, kind: ValueKind) {
        self.keys.push(key.to_owned());
        put_string(&mut self.entries, key.as_bytes());
        self.entries.extend((kind as u32).to_le_bytes());
    }

    fn array(&mut self, key: &str, kind: ValueKind, len: usize) {
        self.entry(key, ValueKind::Array);
        self.entries.extend((kind as u32).to_le_bytes());
        self.entries.extend((len as u64).to_le_bytes());
    }
}

/// Tensors.
impl GgufWriter {
    /// Declares a tensor; data is written in the order of declaration.
    pub fn tensor(&mut self, plan: TensorPlan) -> &mut Self {
        self.tensors.push(plan);
        self
    }

    /// Tensors declared so far.
    pub fn tensors(&self) -> &[TensorPlan] {
        &self.tensors
    }

    /// Writes the file. `fill` is called once for each tensor, in order, and writes the tensor's data;
    /// nothing else is buffered. Returns the number of bytes written.
    ///
    /// # Errors
    /// See [`WriteError`]; invalid keys and shapes are detected before anything is written.
    pub fn write<W: Write>(
        &self,
        out: &mut W,
        mut fill: impl FnMut(&TensorPlan, &mut dyn Write) -> io::Result<()>,
    ) -> Result<u64, WriteError> {
        let header = self.header()?;
        out.write_all(&header)?;
        let mut at = header.len() as u64;
        for plan in &self.tensors {
            let wanted = plan.bytes()?;
            let mut sink = Exactly {
                out: &mut *out,
                wanted,
                given: 0,
            };
            let filled = fill(plan, &mut sink);
            let given = sink.given;
            if given != wanted {
                // Excess bytes end the filling with an error of the sink.
                let tensor = plan.name.clone();
                return match filled {
                    Err(error) if given < wanted => Err(error.into()),
                    _ => Err(WriteError::Bytes {
                        tensor,
                        wanted,
                        given,
                    }),
                };
            }
            filled?;
            at += given;
            at += pad(out, at)?;
        }
        Ok(at)
    }

    /// Everything before the data section, padded.
    fn header(&self) -> Result<Vec<u8>, WriteError> {
        if let Some(key) = duplicate(self.keys.iter()) {
            return Err(WriteError::DuplicateKey(key.clone()));
        }
        if let Some(name) = duplicate(self.tensors.iter().map(|plan| &plan.name)) {
            return Err(WriteError::DuplicateTensor(name.clone()));
        }
        let mut header = b"GGUF".to_vec();
        header.extend(3_u32.to_le_bytes());
        header.extend((self.tensors.len() as u64).to_le_bytes());
        header.extend((self.keys.len() as u64).to_le_bytes());
        header.extend(&self.entries);
        let mut offset = 0_u64;
        for plan in &self.tensors {
            put_string(&mut header, plan.name.as_bytes());
            header.extend((plan.dims.len() as u32).to_le_bytes());
            header.extend(plan.dims.iter().flat_map(|dim| dim.to_le_bytes()));
            header.extend(plan.kind.id().to_le_bytes());
            header.extend(offset.to_le_bytes());
            offset = offset
                .checked_add(plan.bytes()?)
                .and_then(|end| end.checked_next_multiple_of(ALIGNMENT_DEFAULT))
                .ok_or_else(|| WriteError::Shape {
                    tensor: plan.name.clone(),
                    why: "the file would be larger than 2^64 bytes".to_owned(),
                })?;
        }
        let at = header.len() as u64;
        pad(&mut header, at)?;
        Ok(header)
    }
}

fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text);
}

fn duplicate<'a>(mut names: impl Iterator<Item = &'a String>) -> Option<&'a String> {
    let mut seen = HashSet::new();
    names.find(|name| !seen.insert(*name))
}

/// Writes zeros up to the alignment; returns their number.
fn pad(out: &mut impl Write, at: u64) -> io::Result<u64> {
    const ZEROS: [u8; ALIGNMENT_DEFAULT as usize] = [0; ALIGNMENT_DEFAULT as usize];
    let len = at.next_multiple_of(ALIGNMENT_DEFAULT) - at;
    out.write_all(&ZEROS[..len as usize])?;
    Ok(len)
}

/// A writer that counts bytes and rejects more than declared.
struct Exactly<W> {
    out: W,
    wanted: u64,
    given: u64,
}

impl<W: Write> Write for Exactly<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.wanted - self.given.min(self.wanted) {
            self.given += bytes.len() as u64;
            return Err(io::Error::other("more data than the tensor's shape needs"));
        }
        let written = self.out.write(bytes)?;
        self.given += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
