//! Files and directories that no other user can change, and reading and writing at a position.
//!
//! The journal, the prompt cache and the cache of packed weights believe what they read back from the disk: checksums find
//! damage, not forgery. One rule protects all three:
//!
//! - A directory belongs to the user of this process or to root. Every user may write to it: the directory is refused. A
//!   group may write to it: a directory of this user is closed to the group, as volumes with a group (`fsGroup` in
//!   Kubernetes) make all their directories writable for that group; a directory of root, as the root of such a volume, is
//!   refused, and one inside it is not. Directories above are not examined: a user who replaces the directory owns what is
//!   read instead.
//! - A file is a regular one, belongs to the user of this process or to root, and only its owner may write to it. Links are not
//!   followed, and opening a pipe does not wait. What is found is examined after opening, so that nothing can be exchanged
//!   in between, and before the first byte is changed.
//!
//! A refused file is an error of the kind [`std::io::ErrorKind::InvalidData`], which opening a file never has otherwise.
//!
//! Contents may be private, too: new files have mode 0600, new directories 0700. Windows has no modes: there files and
//! directories have the permissions of the directory above, which in a user's profile are the user's own. Nor can a
//! directory be synced there: a rename is durable when the file system has written its own journal.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;
