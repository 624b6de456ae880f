//! `millrace keys`: creates, lists and revokes keys.
//!
//! `millrace nkey`: creates an nkey for the login at NATS servers.
//!
//! An nkey is an Ed25519 key pair: NATS servers have the public half, processes the file with the seed
//! (`cluster.nkey_file`).

use crate::args::{KeysArgs, KeysCommand, NewKeyArgs};
use crate::clock::now_unix_s;
use crate::failure::Failure;
use crate::key_file::{Edit, Entry, KeyFile, Limits};
use nkeys::KeyPair;
use server::{KeyHash, SECRETS_MAX, Scope, WebhookSecret};
use std::fmt::Write as _;
use std::io;
use std::io::Write;
use std::path::Path;

/// Prefix of all created keys, by which scanners find a leaked key.
const PREFIX: &str = "mr_";
/// Random bytes of a key: enough against guessing without a slow hash.
const SECRET_BYTES: usize = 32;

/// Runs the subcommand on the key file.
pub(crate) fn keys(args: &KeysArgs) -> Result<(), Failure> {
    let path = args.file()?;
    match &args.command {
        KeysCommand::New(new) => create_key(&path, new),
        KeysCommand::List => list_keys(&path),
        KeysCommand::WebhookSecret { name, replace } => add_webhook_secret(&path, name, *replace),
        KeysCommand::Revoke { name } => revoke_key(&path, name),
    }
}

/// Creates a key. Standard output gets only the key, for scripts.
fn create_key(path: &Path, new: &NewKeyArgs) -> Result<(), Failure> {
    let key = new_secret()?;
    let mut edit = Edit::begin(path).map_err(Failure::User)?;
    edit.file.keys.push(key_entry(new, &key)?);
    edit.commit().map_err(Failure::User)?;
    let name = &new.name;
    print_secret(&key, name, "key")?;
    print_note(&format!(
        "{name} was added to {}; the key is shown only now. A running server accepts it after the next SIGHUP.",
        path.display()
    ))
}

/// Creates a webhook secret. Standard output gets only the secret.
fn add_webhook_secret(path: &Path, name: &str, replace: bool) -> Result<(), Failure> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(Failure::user)?;
    let secret = WebhookSecret::to_text(&bytes);
    let mut edit = Edit::begin(path).map_err(Failure::User)?;
    let keys = &mut edit.file.keys;
    let Some(entry) = keys.iter_mut().find(|entry| entry.name == name) else {
        return Err(no_key(path, name));
    };
    entry.webhook_secrets.insert(0, secret.clone());
    entry
        .webhook_secrets
        .truncate(if replace { 1 } else { SECRETS_MAX });
    let signing = entry.webhook_secrets.len();
    edit.commit().map_err(Failure::User)?;
    print_secret(&secret, name, "webhook secret")?;
    print_note(&format!(
        "{name} signs events with {signing} webhook secret(s); a running server does after the next SIGHUP."
    ))
}

fn no_key(path: &Path, name: &str) -> Failure {
    let shown = path.display();
    Failure::user(format!("{shown}: there is no key {name:?}"))
}

fn list_keys(path: &Path) -> Result<(), Failure> {
    let file = KeyFile::read(path).map_err(Failure::User)?;
    let mut out = std::io::stdout().lock();
    for entry in &file.keys {
        let limits = shown_limits(&entry.limits);
        writeln!(
            out,
            "{:<24} {:<24} weight {:<4} {limits}  {}",
            entry.name,
            entry.scopes.join(","),
            entry.weight,
            entry.created
        )?;
    }
    let shown = path.display();
    file.check()
        .map_err(|why| Failure::user(format!("{shown}: no server accepts this file: {why}")))
}

fn revoke_key(path: &Path, name: &str) -> Result<(), Failure> {
    let mut edit = Edit::begin(path).map_err(Failure::User)?;
    let before = edit.file.keys.len();
    edit.file.keys.retain(|entry| entry.name != name);
    if edit.file.keys.len() == before {
        return Err(no_key(path, name));
    }
    edit.commit().map_err(Failure::User)?;
    print_note(&format!(
        "{name} is revoked. A running server rejects it after the next SIGHUP."
    ))
}

fn key_entry(new: &NewKeyArgs, key: &str) -> Result<Entry, Failure> {
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
        webhook_secrets: Vec::new(),
        created: created.to_string(),
    })
}

/// A fresh key, from the operating system's randomness.
fn new_secret() -> Result<String, Failure> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(Failure::user)?;
    let mut key = PREFIX.to_owned();
    for byte in bytes {
        write!(key, "{byte:02x}").map_err(Failure::bug)?;
    }
    Ok(key)
}

fn shown_limits(limits: &Limits) -> String {
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

/// Prints a text that is shown only once. Where that fails the file has it already.
fn print_secret(secret: &str, name: &str, kind: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let printed = writeln!(out, "{secret}").and_then(|()| out.flush());
    printed.map_err(|why| {
        Failure::user(format!(
            "the {kind} of {name} was stored, and could not be shown ({why}): `millrace keys revoke {name}`, or make another one"
        ))
    })
}

/// Prints a line for people on standard error.
fn print_note(words: &str) -> Result<(), Failure> {
    writeln!(std::io::stderr().lock(), "{words}")?;
    Ok(())
}

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
