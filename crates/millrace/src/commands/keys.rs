//! `millrace keys`: making, listing and revoking keys.

use crate::args::{KeysArgs, KeysCommand, NewKeyArgs};
use crate::clock::now_unix_s;
use crate::failure::Failure;
use crate::key_file::{Edit, Entry, KeyFile, Limits};
use server::{KeyHash, Scope};
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

/// What a key of ours begins with, so that one that leaked can be searched for.
const PREFIX: &str = "mr_";
/// Random bytes of a key: so many that nobody needs to slow down guessing.
const SECRET_BYTES: usize = 32;

/// Does what is asked with the key file.
pub(crate) fn keys(args: &KeysArgs) -> Result<(), Failure> {
    let path = args.file()?;
    match &args.command {
        KeysCommand::New(new) => make(&path, new),
        KeysCommand::List => list(&path),
        KeysCommand::Revoke { name } => revoke(&path, name),
    }
}

/// Only the key goes to standard output; a script can take it from there.
fn make(path: &Path, new: &NewKeyArgs) -> Result<(), Failure> {
    let key = secret()?;
    let mut edit = Edit::begin(path).map_err(Failure::User)?;
    edit.file.keys.push(entry(new, &key)?);
    edit.commit().map_err(Failure::User)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{key}")?;
    out.flush()?;
    let name = &new.name;
    tell(&format!(
        "{name} was added to {}; the key is shown only now. A running server accepts it after the next SIGHUP.",
        path.display()
    ))
}

fn list(path: &Path) -> Result<(), Failure> {
    let file = KeyFile::read(path).map_err(Failure::User)?;
    let mut out = std::io::stdout().lock();
    for entry in &file.keys {
        let limits = limits(&entry.limits);
        writeln!(
            out,
            "{:<24} {:<24} weight {:<4} {limits}  {}",
            entry.name,
            entry.scopes.join(","),
            entry.weight,
            entry.created
        )?;
    }
    Ok(())
}

fn revoke(path: &Path, name: &str) -> Result<(), Failure> {
    let mut edit = Edit::begin(path).map_err(Failure::User)?;
    let before = edit.file.keys.len();
    edit.file.keys.retain(|entry| entry.name != name);
    if edit.file.keys.len() == before {
        let shown = path.display();
        return Err(Failure::user(format!("{shown}: there is no key {name:?}")));
    }
    edit.commit().map_err(Failure::User)?;
    tell(&format!(
        "{name} is revoked. A running server rejects it after the next SIGHUP."
    ))
}

fn entry(new: &NewKeyArgs, key: &str) -> Result<Entry, Failure> {
    let created = jiff::Timestamp::from_second(now_unix_s()).map_err(Failure::bug)?;
    let scopes = match new.scope.as_slice() {
        [] => vec![Scope::Inference.name().to_owned()],
        scopes => scopes.to_vec(),
    };
    Ok(Entry {
        name: new.name.clone(),
        hash: KeyHash::of(key.as_bytes()).to_hex(),
        scopes,
        limits: Limits {
            concurrent_streams: new.concurrent_streams,
            requests_per_min: new.requests_per_min,
            tokens_per_min: new.tokens_per_min,
        },
        weight: new.weight,
        created: created.to_string(),
    })
}

/// A fresh key, from the operating system's randomness.
fn secret() -> Result<String, Failure> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(Failure::user)?;
    let mut key = PREFIX.to_owned();
    for byte in bytes {
        write!(key, "{byte:02x}").map_err(Failure::bug)?;
    }
    Ok(key)
}

fn limits(limits: &Limits) -> String {
    let shown: Vec<_> = [
        ("streams", limits.concurrent_streams),
        ("requests/min", limits.requests_per_min),
        ("tokens/min", limits.tokens_per_min),
    ]
    .into_iter()
    .filter_map(|(what, limit)| Some(format!("{} {what}", limit?)))
    .collect();
    match shown.as_slice() {
        [] => "no limits".to_owned(),
        shown => shown.join(", "),
    }
}

/// Words for people, beside standard output.
fn tell(words: &str) -> Result<(), Failure> {
    writeln!(std::io::stderr().lock(), "{words}")?;
    Ok(())
}
