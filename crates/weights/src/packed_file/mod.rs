//! A file of packed matrices: what a load has packed, for the next load.
//!
//! ```text
//! header     4096 bytes: magic, version, number of sections, key, length of the file,
//!            place, length and CRC-32 of the table, CRC-32 of the header
//! sections   each at a multiple of 4096 bytes: the packed bytes of a matrix or a stack of matrices
//! table      of each section: tensor and part, format, shape, place, and a CRC-32 of each MiB
//! ```
//!
//! All numbers are little-endian. The header is written last, and a file gets its name only when it is complete, which is
//! the caller's part.
//!
//! Nothing of a file is used unchecked: header and table when it is opened, the bytes of a section when it is taken. What does
//! not fit is packed from the model's own file. A reader compares every length with a bound, or with the bytes that
//! there are, before it allocates.
//!
//! ```text
//! table   header and table, and their checks      file       a file that is read
//! sections  what one load reads and keeps         writing    a file that is written
//! ```

mod file;
mod sections;
mod table;
mod writing;

pub use file::{PackedFile, PackedReading};
pub(crate) use sections::SectionShape;
pub use sections::{PackedSection, PackedSections};
pub use table::{CHUNK_BYTES, HEADER_BYTES, PackedFileError, PackedKey};
pub use writing::{packed_file_bytes, write_packed};

/// Raised with each change of how tensors become matrices: conversions of safetensors, the order of rows, the parts of a tensor.
/// (How a matrix is packed is in [`kernels::packing_fingerprint`].) Part of a caller's key.
pub const TENSORS_VERSION: u32 = 1;
