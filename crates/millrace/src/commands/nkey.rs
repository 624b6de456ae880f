//! `millrace nkey`: creates an nkey for the login at NATS servers.
//!
//! An nkey is an Ed25519 key pair: NATS servers have the public half, processes the file with the seed
//! (`cluster.nkey_file`).

use crate::failure::Failure;
use nkeys::KeyPair;
use std::io::{self, Write};
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
    let mut file = private_files::create_new(path)?;
    writeln!(file, "{seed}")?;
    file.sync_all()
}
