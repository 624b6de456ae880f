//! A Unix socket beside the TCP address. On Windows there is none: the types are those of TCP, and no socket is opened.

use std::io;
use std::path::{Path, PathBuf};
#[cfg(not(unix))]
use tokio::net::TcpListener as UnixListener;
#[cfg(not(unix))]
pub(crate) use tokio::net::TcpStream as UnixStream;
#[cfg(unix)]
use tokio::net::UnixListener;
#[cfg(unix)]
pub(crate) use tokio::net::UnixStream;

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
    /// permissions: this mode, or what the process's umask leaves.
    ///
    /// # Errors
    /// Another server listens there, another file is there, or the socket cannot be made.
    #[cfg(unix)]
    pub(crate) fn open(path: &Path, mode: Option<u32>) -> io::Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        if is_left_over(path)? {
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        // From here on the drop removes the file.
        let file = SocketFile(path.to_owned());
        if let Some(mode) = mode {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        }
        Ok(Self {
            _file: file,
            listener,
        })
    }

    /// Opens nothing.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(unix))]
    pub(crate) fn open(_: &Path, _: Option<u32>) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A file that is gone already, or that cannot be removed, is replaced by the next server.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whether the path is a socket on which nobody listens.
#[cfg(unix)]
fn is_left_over(path: &Path) -> io::Result<bool> {
    use io::ErrorKind;
    use std::os::unix::fs::FileTypeExt;
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
