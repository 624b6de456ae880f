//! Files of systems with owners and modes.

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
const MODE_BITS: u32 = 0o7777;
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;
/// In such a directory, users share files on purpose.
const STICKY: u32 = 0o1000;

/// Creates a directory for this user alone, and those above it that are missing. One that is there stays as it is.
///
/// # Errors
/// As of the operating system.
pub fn create_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Checks the rule for a directory, and closes a directory of this user to its group.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`]: other users may write to the directory. Others as of the operating system.
pub fn secure_directory(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let flags = OFlags::DIRECTORY | OFlags::NONBLOCK;
    options.read(true).custom_flags(flags.bits() as i32);
    let directory = options.open(path)?;
    let metadata = directory.metadata()?;
    check_owner(&metadata)?;
    let mode = metadata.mode() & MODE_BITS;
    if mode & (ALL_WRITE | GROUP_WRITES) == 0 {
        return Ok(());
    }
    let is_own = metadata.uid() == own_user();
    if mode & (ALL_WRITE | STICKY) == 0 && is_own {
        directory.set_permissions(Permissions::from_mode(mode & !GROUP_WRITES))
    } else {
        Err(refused(
            "other users may write to the directory; name one inside it, which is created with mode 0700, \
             or remove what others have put there and chmod go-w"
                .into(),
        ))
    }
}

/// Closes a directory of this user to all others.
///
/// # Errors
/// As of the operating system.
pub fn make_private(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(DIRECTORY_MODE))
}

/// Closes a file of this user to its group, for files that must be kept: a volume with a group makes all files writable for
/// the group. Other files stay as they are; one that is gone is no error.
///
/// # Errors
/// As of the operating system.
pub fn close_to_group(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.is_file() || found.mode() & GROUP_WRITES == 0 || found.uid() != own_user() {
        return Ok(());
    }
    let file = options().read(true).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != own_user() {
        return Ok(());
    }
    let mode = metadata.mode() & MODE_BITS & !GROUP_WRITES;
    file.set_permissions(Permissions::from_mode(mode))
}

/// Waits until created, renamed and removed files of a directory are on the disk.
///
/// # Errors
/// As of the operating system.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Opens a file for reading.
///
/// # Errors
/// The rule refuses the file, or as of the operating system.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    checked(options().read(true).open(path))
}

/// Opens a regular file of any user for reading: to show what is in it.
///
/// # Errors
/// The file is not a regular one, or as of the operating system.
pub fn open_to_inspect(path: &Path) -> io::Result<File> {
    regular(options().read(true).open(path)).map(|(file, _)| file)
}

/// Opens a file for reading and writing.
///
/// # Errors
/// The rule refuses the file, or as of the operating system.
pub fn open_to_write(path: &Path) -> io::Result<File> {
    checked(options().read(true).write(true).open(path))
}

/// Opens a file for reading and writing; creates it if none is there.
///
/// # Errors
/// The rule refuses the file, or as of the operating system.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = options();
    options.read(true).write(true).create(true).truncate(false);
    checked(options.open(path))
}

/// Creates an empty file for reading and writing; a file of that name is emptied.
///
/// # Errors
/// The rule refuses the file that is there, or as of the operating system.
pub fn create_empty(path: &Path) -> io::Result<File> {
    let file = open_or_create(path)?;
    // Not by the flag O_TRUNC, which would empty the file before it is examined.
    file.set_len(0)?;
    Ok(file)
}

/// Creates a file for reading and writing.
///
/// # Errors
/// A file of that name is there, or as of the operating system.
pub fn create_new(path: &Path) -> io::Result<File> {
    checked(options().read(true).write(true).create_new(true).open(path))
}

/// Reads at a position; fewer bytes than the buffer holds are possible, none means the end.
///
/// # Errors
/// As of the operating system.
pub fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buffer, offset)
}

/// Writes at a position; fewer bytes than given are possible.
///
/// # Errors
/// As of the operating system.
pub fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    file.write_at(bytes, offset)
}

/// Options that follow no link and wait for no other end of a pipe. The flag has no effect on regular files.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    options.mode(FILE_MODE).custom_flags(flags.bits() as i32);
    options
}

fn checked(opened: io::Result<File>) -> io::Result<File> {
    let (file, metadata) = regular(opened)?;
    check_owner(&metadata)?;
    match metadata.mode() & (GROUP_WRITES | ALL_WRITE) {
        0 => Ok(file),
        _ => Err(refused("other users may write to the file".into())),
    }
}

fn regular(opened: io::Result<File>) -> io::Result<(File, Metadata)> {
    let opened = opened.and_then(|file| file.metadata().map(|metadata| (file, metadata)));
    let is_other = match &opened {
        Ok((_, metadata)) => !metadata.is_file(),
        // Of a link, a directory, and a socket.
        Err(why) => {
            let others = [Errno::LOOP, Errno::ISDIR, Errno::NXIO];
            let is_of = |other: Errno| why.raw_os_error() == Some(other.raw_os_error());
            others.into_iter().any(is_of)
        }
    };
    if is_other {
        Err(refused("not a regular file".into()))
    } else {
        opened
    }
}

fn check_owner(metadata: &Metadata) -> io::Result<()> {
    let owner = metadata.uid();
    if owner == 0 || owner == own_user() {
        Ok(())
    } else {
        Err(refused(format!("belongs to the user {owner}")))
    }
}

fn own_user() -> u32 {
    geteuid().as_raw()
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
