//! Keys from the environment: `MILLRACE_API_KEYS="name=key,other=key"`.
//!
//! Keys are hashed as soon as they are read. Keys of the environment are the operator's own and have all scopes and no
//! limits; other users' keys are in the key file.

use server::{Key, KeyHash, KeyLimits, Scopes};

/// The variable of many keys.
pub(super) const VARIABLE: &str = "MILLRACE_API_KEYS";
/// The variable of `--api-key`, for servers and clients.
pub(super) const ONE: &str = "MILLRACE_API_KEY";
/// The name of the first key of `--api-key`; later ones are numbered.
const FLAG: &str = "api-key";

/// Minimum characters of a key: hashing is fast here, so a key must not be guessable.
const KEY_CHARS_MIN: usize = 16;

/// Reads the variable. Problems name the position, never the text, which may be a key.
pub(super) fn parse(text: &str) -> Result<Vec<Key>, String> {
    let entries = text.split(',').map(str::trim).enumerate();
    entries
        .filter(|(_, entry)| !entry.is_empty())
        .map(|(i, entry)| key(entry).map_err(|why| format!("{VARIABLE}: entry {}: {why}", i + 1)))
        .collect()
}

/// The keys of `--api-key`.
pub(super) fn of_flag(keys: &[String]) -> Result<Vec<Key>, String> {
    let named = keys.iter().enumerate().map(|(i, key)| match i {
        0 => named(FLAG, key),
        i => named(&format!("{FLAG}-{}", i + 1), key),
    });
    named
        .collect::<Result<_, _>>()
        .map_err(|why| format!("--{FLAG} (or {ONE}): {why}"))
}

fn key(entry: &str) -> Result<Key, String> {
    let (name, key) = entry.split_once('=').ok_or("must be name=key")?;
    named(name, key)
}

fn named(name: &str, key: &str) -> Result<Key, String> {
    let key = key.trim();
    if key.chars().count() < KEY_CHARS_MIN {
        return Err(format!(
            "a key has at least {KEY_CHARS_MIN} characters; try `openssl rand -hex 32`"
        ));
    }
    Ok(Key {
        name: name.trim().to_owned(),
        hash: KeyHash::of(key.as_bytes()),
        scopes: Scopes::all(),
        limits: KeyLimits::default(),
        weight: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_no_problem_shows_one() {
        let keys = parse(" me = 0123456789abcdef=, you=fedcba9876543210 ,").unwrap();
        let of = |text: &str| KeyHash::of(text.as_bytes());
        assert_eq!(
            (keys[0].name.as_str(), keys[0].hash),
            ("me", of("0123456789abcdef="))
        );
        assert_eq!(
            (keys[1].name.as_str(), keys[1].hash),
            ("you", of("fedcba9876543210"))
        );
        assert_eq!(parse("").unwrap(), []);
        for bad in ["sesame", "a=sesame", "me=0123456789abcdef,sesame"] {
            let why = parse(bad).expect_err(bad);
            assert!(!why.contains("sesame") && why.contains("entry"), "{why}");
        }
    }
}
