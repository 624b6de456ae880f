//! A packed file that is written.

use super::table::{
    ALIGNMENT, FIELDS_BYTES, NAME_BYTES_MAX, PackedHeader, SECTIONS_MAX, SectionEntry,
    TABLE_BYTES_MAX, encode_entry,
};
use super::{CHUNK_BYTES, HEADER_BYTES, PackedKey, PackedSection};
use std::io::{self, Seek, SeekFrom, Write};

/// Bytes of a file of these sections, its table counted a little too large.
pub fn packed_file_bytes(sections: &[PackedSection]) -> u64 {
    let bytes = |section: &PackedSection| {
        let len = section.bytes.len();
        len.next_multiple_of(ALIGNMENT) + NAME_BYTES_MAX + len.div_ceil(CHUNK_BYTES) * 4
    };
    (HEADER_BYTES + sections.iter().map(bytes).sum::<usize>()) as u64
}

/// Writes a file of sections from the position 0 on, and returns its length. The header is written last; syncing the file and
/// giving it its name is the caller's part.
///
/// # Errors
/// Those of `out`; more sections, or longer names, than a reader takes.
pub fn write_packed(
    out: &mut (impl Write + Seek),
    key: &PackedKey,
    sections: &[PackedSection],
) -> io::Result<u64> {
    let too_long = |section: &PackedSection| section.shape.tensor.len() > NAME_BYTES_MAX;
    if sections.len() > SECTIONS_MAX || sections.iter().any(too_long) {
        return Err(too_large("too many tensors, or names that are too long"));
    }
    out.write_all(&[0; HEADER_BYTES])?;
    let (mut at, mut table) = (HEADER_BYTES, Vec::new());
    for section in sections {
        let bytes: &[u8] = &section.bytes;
        let mut sums = Vec::with_capacity(bytes.len().div_ceil(CHUNK_BYTES));
        for chunk in bytes.chunks(CHUNK_BYTES) {
            sums.push(crc32fast::hash(chunk));
            out.write_all(chunk)?;
        }
        let end = at + bytes.len();
        encode_entry(
            &mut table,
            &SectionEntry {
                shape: section.shape.clone(),
                range: at..end,
                sums,
            },
        );
        at = end.next_multiple_of(ALIGNMENT);
        out.write_all(&[0; ALIGNMENT][..at - end])?;
    }
    if table.len() > TABLE_BYTES_MAX {
        return Err(too_large("a table that is too long"));
    }
    out.write_all(&table)?;
    let header = PackedHeader {
        sections: sections.len() as u32,
        key: *key,
        file_bytes: (at + table.len()) as u64,
        table_at: at as u64,
        table_bytes: table.len() as u64,
        table_sum: crc32fast::hash(&table),
    };
    out.seek(SeekFrom::Start(0))?;
    let fields: [u8; FIELDS_BYTES] = header.encode();
    out.write_all(&fields)?;
    out.flush()?;
    Ok(header.file_bytes)
}

fn too_large(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
