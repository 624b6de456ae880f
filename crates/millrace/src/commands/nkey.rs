//! `millrace nkey`: creates an nkey for the login at NATS servers.
//!
//! An nkey is an Ed25519 key pair: NATS servers have the public half, processes the file with the seed
//! (`cluster.nkey_file`).

use crate::failure::Failure;
use nkeys::KeyPair;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a new seed to a file that does not exist yet, readable by the owner only, and prints the public half.
pub(crate) fn create_nkey(path: &Path) -> Result<(), Failure> {
    let pair = KeyPair::new_user();
    let seed = pair.seed().map_err(Failure::bug)?;
    write_seed(path, &seed).map_err(|why| Failure::user(format!("{}: {why}", path.display())))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", pair.public_key())?;
    out.flush()?;
    Ok(())
}

fn write_seed(path: &Path, seed: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    writeln!(file, "{seed}")?;
    file.sync_all()
}
