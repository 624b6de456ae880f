//! Header and table of a packed file.

use super::SectionShape;
use crate::gguf::TensorKind;
use std::ops::Range;

/// Bytes before the first section: a page.
pub const HEADER_BYTES: usize = 4096;
/// Bytes of a section that have one checksum.
pub const CHUNK_BYTES: usize = 1 << 20;
/// Sections begin at multiples of this, a page of memory.
pub(super) const ALIGNMENT: usize = 4096;
/// Packed bytes are whole cache lines.
const LINE: usize = 64;
/// Most sections: a tensor is a section for each of its parts.
pub(super) const SECTIONS_MAX: usize = 1 << 18;
/// Most bytes of the table.
pub(super) const TABLE_BYTES_MAX: usize = 64 << 20;
/// Most bytes of a tensor's name.
pub(super) const NAME_BYTES_MAX: usize = 1024;

const MAGIC: [u8; 8] = *b"MRPACKED";
/// The format of this module. Another one is no error to repair: the file is packed again.
const VERSION: u32 = 1;
/// Bytes of the header's fields, the checksum included; zeros follow.
pub(super) const FIELDS_BYTES: usize = 80;
/// Bytes of a table entry without name and checksums.
const ENTRY_BYTES: usize = 2 + 4 + 4 + 5 * 8;

/// Identity of what was packed: the caller's digest of the model's content, and of all that decides the packed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedKey(pub [u8; 32]);

/// A packed file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackedFileError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(String),
    /// The file does not begin as one.
    #[error("is no file of packed weights")]
    NotPacked,
    /// Another version of the format.
    #[error("has version {0}, this program {VERSION}")]
    Version(u32),
    /// The file is shorter or longer than its header says.
    #[error("has {found} bytes, must have {wanted}")]
    Length {
        /// Bytes that the header says.
        wanted: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// The packed bytes of another model, or for other settings.
    #[error("was packed for another model or other settings")]
    OtherKey,
    /// A part of the file is not as it was written.
    #[error("is damaged: {0}")]
    Damaged(&'static str),
}

/// A section in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SectionEntry {
    pub(super) shape: SectionShape,
    /// The packed bytes in the file.
    pub(super) range: Range<usize>,
    /// CRC-32 of each [`CHUNK_BYTES`].
    pub(super) sums: Vec<u32>,
}

/// The fields of a header.
pub(super) struct PackedHeader {
    pub(super) sections: u32,
    pub(super) key: PackedKey,
    pub(super) file_bytes: u64,
    pub(super) table_at: u64,
    pub(super) table_bytes: u64,
    pub(super) table_sum: u32,
}

impl PackedHeader {
    /// The fields with their checksum.
    pub(super) fn encode(&self) -> [u8; FIELDS_BYTES] {
        let mut fields = Vec::with_capacity(FIELDS_BYTES);
        fields.extend_from_slice(&MAGIC);
        fields.extend_from_slice(&VERSION.to_le_bytes());
        fields.extend_from_slice(&self.sections.to_le_bytes());
        fields.extend_from_slice(&self.key.0);
        for number in [self.file_bytes, self.table_at, self.table_bytes] {
            fields.extend_from_slice(&number.to_le_bytes());
        }
        fields.extend_from_slice(&self.table_sum.to_le_bytes());
        fields.extend_from_slice(&crc32fast::hash(&fields).to_le_bytes());
        let mut bytes = [0; FIELDS_BYTES];
        bytes.copy_from_slice(&fields);
        bytes
    }

    /// Reads and checks the header of a file with this content.
    fn read(file: &[u8], key: &PackedKey) -> Result<Self, PackedFileError> {
        let mut cursor = TableCursor(file.get(..HEADER_BYTES).ok_or(PackedFileError::NotPacked)?);
        let all = cursor.0;
        if cursor.take(MAGIC.len())? != MAGIC {
            return Err(PackedFileError::NotPacked);
        }
        let version = cursor.u32()?;
        if version != VERSION {
            return Err(PackedFileError::Version(version));
        }
        let sections = cursor.u32()?;
        let mut found = [0; 32];
        found.copy_from_slice(cursor.take(32)?);
        let [file_bytes, table_at, table_bytes] = [cursor.u64()?, cursor.u64()?, cursor.u64()?];
        let table_sum = cursor.u32()?;
        let (fields, rest) = all.split_at(FIELDS_BYTES);
        let sum = crc32fast::hash(&fields[..FIELDS_BYTES - 4]);
        if cursor.u32()? != sum || rest.iter().any(|byte| *byte != 0) {
            return Err(PackedFileError::Damaged("the header"));
        }
        if PackedKey(found) != *key {
            return Err(PackedFileError::OtherKey);
        }
        if file_bytes != file.len() as u64 {
            return Err(PackedFileError::Length {
                wanted: file_bytes,
                found: file.len() as u64,
            });
        }
        Ok(Self {
            sections,
            key: *key,
            file_bytes,
            table_at,
            table_bytes,
            table_sum,
        })
    }

    /// The bytes of the table, and the end of the sections.
    fn table<'a>(&self, file: &'a [u8]) -> Result<(&'a [u8], usize), PackedFileError> {
        const PLACE: PackedFileError = PackedFileError::Damaged("the place of the table");
        let number = |number: u64| usize::try_from(number).map_err(|_| PLACE);
        let (at, bytes) = (number(self.table_at)?, number(self.table_bytes)?);
        let end = at.checked_add(bytes).ok_or(PLACE)?;
        if at < HEADER_BYTES || end != file.len() || bytes > TABLE_BYTES_MAX {
            return Err(PLACE);
        }
        let table = file.get(at..end).ok_or(PLACE)?;
        if crc32fast::hash(table) == self.table_sum {
            Ok((table, at))
        } else {
            Err(PackedFileError::Damaged("the table"))
        }
    }
}

/// Reads and checks header and table: all sections, by tensor and part.
pub(super) fn read_table(
    file: &[u8],
    key: &PackedKey,
) -> Result<Vec<SectionEntry>, PackedFileError> {
    let header = PackedHeader::read(file, key)?;
    let (table, sections_end) = header.table(file)?;
    let count = header.sections as usize;
    if count > SECTIONS_MAX || count > table.len() / ENTRY_BYTES {
        return Err(PackedFileError::Damaged("the number of sections"));
    }
    let mut cursor = TableCursor(table);
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        entries.push(cursor.entry(sections_end)?);
    }
    if !cursor.0.is_empty() {
        return Err(PackedFileError::Damaged("bytes after the table"));
    }
    entries.sort_by(|a, b| a.shape.place().cmp(&b.shape.place()));
    let is_twice = |pair: &[SectionEntry]| pair[0].shape.place() == pair[1].shape.place();
    if entries.windows(2).any(is_twice) {
        Err(PackedFileError::Damaged("a section that is there twice"))
    } else {
        Ok(entries)
    }
}

/// Appends a section to the table.
pub(super) fn encode_entry(table: &mut Vec<u8>, entry: &SectionEntry) {
    let (shape, range) = (&entry.shape, &entry.range);
    table.extend_from_slice(&(shape.tensor.len() as u16).to_le_bytes());
    table.extend_from_slice(shape.tensor.as_bytes());
    table.extend_from_slice(&shape.part.to_le_bytes());
    table.extend_from_slice(&TensorKind::from(shape.format).id().to_le_bytes());
    let numbers = [
        shape.count,
        shape.rows,
        shape.cols,
        range.start,
        range.len(),
    ];
    for number in numbers {
        table.extend_from_slice(&(number as u64).to_le_bytes());
    }
    for sum in &entry.sums {
        table.extend_from_slice(&sum.to_le_bytes());
    }
}

/// Bytes of a header or table that are not read yet.
struct TableCursor<'a>(&'a [u8]);

impl<'a> TableCursor<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], PackedFileError> {
        let end = PackedFileError::Damaged("an entry beyond the end");
        let (taken, rest) = self.0.split_at_checked(count).ok_or(end)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PackedFileError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, PackedFileError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, PackedFileError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn usize(&mut self) -> Result<usize, PackedFileError> {
        let number = usize::try_from(self.u64()?);
        number.map_err(|_| PackedFileError::Damaged("a number"))
    }

    fn entry(&mut self, sections_end: usize) -> Result<SectionEntry, PackedFileError> {
        let name_bytes = usize::from(u16::from_le_bytes(self.array()?));
        if name_bytes > NAME_BYTES_MAX {
            return Err(PackedFileError::Damaged("the length of a name"));
        }
        let tensor = std::str::from_utf8(self.take(name_bytes)?);
        let tensor = tensor.map_err(|_| PackedFileError::Damaged("a name"))?;
        let part = self.u32()?;
        let format = TensorKind::from_id(self.u32()?).format();
        let format = format.ok_or(PackedFileError::Damaged("a format"))?;
        let [count, rows, cols] = [self.usize()?, self.usize()?, self.usize()?];
        let [start, bytes] = [self.usize()?, self.usize()?];
        let end = start.checked_add(bytes).filter(|end| *end <= sections_end);
        let is_placed = start >= HEADER_BYTES && start.is_multiple_of(ALIGNMENT);
        let end = end.filter(|_| is_placed && bytes.is_multiple_of(LINE));
        let end = end.ok_or(PackedFileError::Damaged("the place of a section"))?;
        // No overflow: not more chunks than bytes in the file.
        let sums = self.take(bytes.div_ceil(CHUNK_BYTES) * size_of::<u32>())?;
        Ok(SectionEntry {
            shape: SectionShape {
                tensor: tensor.to_owned(),
                part,
                format,
                count,
                rows,
                cols,
            },
            range: start..end,
            sums: sums
                .chunks_exact(size_of::<u32>())
                .map(|sum| u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]))
                .collect(),
        })
    }
}
