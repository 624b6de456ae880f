//! One GGUF file: magic, version, metadata and tensor infos, all checked.

use super::cursor::{Cursor, bounded};
use super::limits::{ALIGNMENT_DEFAULT, ALIGNMENT_MAX, TENSOR_INFO_BYTES_MIN, TENSORS_MAX};
use super::metadata::Metadata;
use super::tensor::Record;
use super::{GgufError, Source, TensorInfo};

const MAGIC: [u8; 4] = *b"GGUF";

/// A checked file: a complete model, or one part of a split model.
#[derive(Debug)]
pub(super) struct Part {
    source: Source,
    pub(super) version: u32,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<Record>,
    pub(super) alignment: u64,
}

impl Part {
    /// Reads and checks everything except the weights.
    pub(super) fn read(source: Source) -> Result<Self, GgufError> {
        let bytes = source.bytes();
        let mut cursor = Cursor::new(bytes);
        let version = read_version(&mut cursor)?;
        let tensor_count = cursor.count("tensor count", TENSORS_MAX, TENSOR_INFO_BYTES_MIN)?;
        let entry_count = Metadata::read_count(&mut cursor)?;
        let metadata = Metadata::read(&mut cursor, bytes, entry_count)?;
        let alignment = read_alignment(&metadata, bytes)?;
        // The metadata consumed part of the bytes; the count is checked against the rest.
        let offset = cursor.offset();
        let room = cursor.left() / TENSOR_INFO_BYTES_MIN;
        bounded("tensor count before the infos", offset, tensor_count, room)?;
        let mut tensors = Vec::with_capacity(tensor_count as usize);
        for _ in 0..tensor_count {
            tensors.push(Record::read(&mut cursor)?);
        }
        place(&mut tensors, bytes, cursor.offset(), alignment)?;
        Ok(Self {
            source,
            version,
            metadata,
            tensors,
            alignment,
        })
    }

    /// Drops the index of the metadata.
    pub(super) fn forget_metadata(&mut self) {
        self.metadata = Metadata::default();
    }

    /// All bytes of the file.
    pub(super) fn bytes(&self) -> &[u8] {
        self.source.bytes()
    }

    /// Where the bytes are stored.
    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// A tensor by index in the file; `part` is the number of this part.
    pub(super) fn tensor(&self, at: usize, part: usize) -> Option<TensorInfo<'_>> {
        self.tensors[at].info(self.bytes(), part)
    }
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, GgufError> {
    let magic = cursor.array("magic")?;
    if magic != MAGIC {
        return Err(GgufError::NotGguf { magic });
    }
    match cursor.u32("version")? {
        version @ (2 | 3) => Ok(version),
        other if (1..=3).contains(&other.swap_bytes()) => Err(GgufError::BigEndian {
            version: other.swap_bytes(),
        }),
        other => Err(GgufError::Version(other)),
    }
}

fn read_alignment(metadata: &Metadata, bytes: &[u8]) -> Result<u64, GgufError> {
    const FIELD: &str = "general.alignment";
    let Some((value, offset)) = metadata.get(bytes, FIELD) else {
        return Ok(ALIGNMENT_DEFAULT);
    };
    let Some(number) = value.integer() else {
        return Err(GgufError::wrong_type(FIELD, "u32", value.kind()));
    };
    let alignment = u64::try_from(number).unwrap_or(0);
    if !alignment.is_power_of_two() {
        let why = format!("{number} is not a power of two");
        return Err(GgufError::Invalid {
            field: FIELD,
            offset,
            why,
        });
    }
    bounded(FIELD, offset, alignment, ALIGNMENT_MAX)
}

/// Computes each tensor's byte range and checks that the ranges are disjoint.
fn place(
    tensors: &mut [Record],
    bytes: &[u8],
    infos_end: u64,
    alignment: u64,
) -> Result<(), GgufError> {
    let name = |record: &Record| String::from_utf8_lossy(&bytes[record.name.clone()]).into_owned();
    // No overflow: `infos_end` is at most a slice's length, the alignment at most 2^20.
    let data_at = infos_end.next_multiple_of(alignment);
    for record in tensors.iter_mut() {
        record
            .place(data_at, alignment, bytes.len() as u64)
            .map_err(|why| GgufError::Tensor {
                name: name(record),
                offset: record.info_at,
                why,
            })?;
    }
    let mut by_start: Vec<u32> = (0..tensors.len() as u32).collect();
    by_start.sort_by_key(|&at| tensors[at as usize].data.start);
    for pair in by_start.windows(2) {
        let [first, second] = [pair[0] as usize, pair[1] as usize];
        let start = tensors[second].data.start;
        if tensors[first].is_open_ended() {
            tensors[first].data.end = start;
        }
        // A tensor has at least one byte, so equal starts overlap too (including two of unknown size: the
        // first would be empty).
        if tensors[first].data.end > start || tensors[first].data.start == start {
            return Err(GgufError::Overlap {
                first: name(&tensors[first]),
                second: name(&tensors[second]),
                offset: start as u64,
            });
        }
    }
    Ok(())
}
