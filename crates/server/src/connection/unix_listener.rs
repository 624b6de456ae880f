//! A Unix socket beside the TCP address.

use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;

/// A listening Unix socket, whose file is removed when dropped.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    /// Dropped before the listener: the next server replaces a file on which nobody listens.
    _file: SocketFile,
    pub(crate) listener: UnixListener,
}

#[derive(Debug)]
struct SocketFile(PathBuf);

impl UnixSocket {
    /// Listens at this path. The file of a server that is gone is replaced. Who may connect is decided by the file's
    /// permissions, which are those of the process's umask.
    ///
    /// # Errors
    /// Another server listens there, another file is there, or the socket cannot be made.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if is_left_over(path)? {
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        Ok(Self {
            _file: SocketFile(path.to_owned()),
            listener,
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A file that is gone already, or that cannot be removed, is replaced by the next server.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whether the path is a socket on which nobody listens.
fn is_left_over(path: &Path) -> io::Result<bool> {
    let is_socket = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type().is_socket(),
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(false),
        Err(why) => return Err(why),
    };
    let taken = |why: &str| Err(io::Error::new(ErrorKind::AddrInUse, why));
    if !is_socket {
        return taken("a file is there that is no socket");
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => taken("a server listens there"),
        Err(why) if why.kind() == ErrorKind::ConnectionRefused => Ok(true),
        Err(why) => Err(why),
    }
}
