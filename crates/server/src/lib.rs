//! Sockets and wire formats.
