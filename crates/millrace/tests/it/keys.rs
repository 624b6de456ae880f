//! Keys as an operator makes, uses and revokes them.

use crate::support::{Folder, Serving, command, millrace, stdout};
use std::fs::File;
use testing::wait::wait_until;

const ASK: &str = r#"{"prompt":"A","max_tokens":2}"#;

fn status(serving: &Serving, fields: &str) -> String {
    let reply = serving.post_with(fields, "/v1/completions", ASK);
    reply.split(' ').nth(1).unwrap().to_owned()
}

fn bearer(key: &str) -> String {
    format!("authorization: Bearer {key}\r\n")
}

#[test]
fn key_is_created_used_and_revoked_and_never_logged() {
    let folder = Folder::new("keys");
    let file = folder.0.join("keys.yaml").display().to_string();
    let keys = |args: &[&str]| millrace(&[&["keys", "--file", &file], args].concat());
    let made = keys(&[
        "new",
        "alice",
        "--requests-per-min",
        "1000",
        "--scope",
        "inference",
    ]);
    let key = stdout(&made).trim().to_owned();
    assert_eq!((key.len(), &key[..3]), (3 + 64, "mr_"));
    let held = stdout(&keys(&["new", "bob"])).trim().to_owned();
    assert_ne!(key, held);

    let log = folder.0.join("log");
    let args = [
        "serve",
        "--bind",
        "127.0.0.1:0",
        "--keys",
        &file,
        "--log",
        "trace",
    ];
    let from_environment = "0123456789abcdef0123";
    let vars = [("MILLRACE_API_KEYS", "ops=0123456789abcdef0123")];
    let serving = Serving::start_with(&args, &vars, File::create(&log).unwrap());
    for known in [&key, &held, from_environment] {
        assert_eq!(status(&serving, &bearer(known)), "200");
        assert_eq!(status(&serving, &format!("x-api-key: {known}\r\n")), "200");
    }
    let stranger = "mr_stranger_with_a_long_key";
    assert_eq!(status(&serving, &bearer(stranger)), "401");
    assert_eq!(status(&serving, ""), "401");

    stdout(&keys(&["revoke", "alice"]));
    assert_eq!(
        status(&serving, &bearer(&key)),
        "200",
        "nobody told the server"
    );
    serving.signal("HUP");
    wait_until("alice is out", || status(&serving, &bearer(&key)) == "401");
    assert_eq!(status(&serving, &bearer(&held)), "200");

    std::fs::write(&file, "keys: [broken").unwrap();
    serving.signal("HUP");
    let logged = || std::fs::read_to_string(&log).unwrap();
    wait_until("it complains", || logged().contains("not reloaded"));
    assert_eq!(status(&serving, &bearer(&held)), "200");
    assert!(serving.terminate().success());
    let logged = logged();
    assert!(logged.contains("submitted"), "much was logged: {logged}");
    for secret in [&key, &held, from_environment, stranger] {
        assert!(!logged.contains(&secret[3..]), "{secret} in the log");
    }
}

#[test]
fn key_list_shows_no_secrets() {
    let folder = Folder::new("list");
    let file = folder.0.join("keys.yaml").display().to_string();
    let keys = |args: &[&str]| millrace(&[&["keys", "--file", &file], args].concat());
    let limits = [
        "--tokens-per-min",
        "500",
        "--concurrent-streams",
        "3",
        "--weight",
        "7",
    ];
    let scopes = ["--scope", "admin", "--scope", "metrics"];
    let key = stdout(&keys(&[&["new", "alice"], &limits[..], &scopes].concat()));
    let list = stdout(&keys(&["list"]));
    let shown = [
        "alice",
        "admin,metrics",
        "3 streams",
        "500 tokens/min",
        "weight 7",
        "202",
    ];
    for shown in shown {
        assert!(list.contains(shown), "{shown}: {list}");
    }
    let kept = std::fs::read_to_string(&file).unwrap();
    let hash = kept
        .lines()
        .find_map(|line| line.split_once("hash:"))
        .unwrap()
        .1
        .trim();
    assert!(!kept.contains(key.trim()) && !list.contains(key.trim()) && !list.contains(hash));
}

#[test]
fn invalid_key_commands_are_named() {
    let folder = Folder::new("cannot");
    let file = folder.0.join("keys.yaml").display().to_string();
    let nowhere = folder.0.join("none/keys.yaml").display().to_string();
    stdout(&millrace(&["keys", "--file", &file, "new", "alice"]));
    let refused = folder.0.join("refused.yaml").display().to_string();
    let entry = format!(
        "{{name: a, hash: {}, scopes: [inference], weight: 1001}}",
        "a".repeat(64)
    );
    std::fs::write(&refused, format!("keys: [{entry}]\n")).unwrap();
    let served = millrace(&["serve", "--port", "0", "--journal", "", "--keys", &refused]);
    let why = String::from_utf8_lossy(&served.stderr).into_owned();
    assert!(why.contains("refused.yaml: key \"a\": a weight"), "{why}");
    let listed = millrace(&["keys", "--file", &refused, "list"]);
    let why = String::from_utf8_lossy(&listed.stderr).into_owned();
    assert_eq!(listed.status.code(), Some(1), "{why}");
    assert!(
        why.contains("refused.yaml: no server accepts this file"),
        "{why}"
    );
    let rows: [(&str, &[&str], &str); 8] = [
        ("twice", &["--file", &file, "new", "alice"], "twice"),
        ("odd name", &["--file", &file, "new", "a b"], "letters"),
        (
            "heavy",
            &["--file", &file, "new", "b", "--weight", "0"],
            "weight",
        ),
        (
            "no scope",
            &["--file", &file, "new", "b", "--scope", "root"],
            "inference",
        ),
        ("unknown", &["--file", &file, "revoke", "carol"], "carol"),
        (
            "no folder",
            &["--file", &nowhere, "new", "alice"],
            "none/keys.yaml",
        ),
        ("no list", &["--file", &nowhere, "list"], "none/keys.yaml"),
        ("no file", &["list"], "--file"),
    ];
    for (label, args, named) in rows {
        let output = millrace(&[&["keys"], args].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{label}"
        );
        assert!(
            said.contains(named) && !said.contains("panicked"),
            "{label}: {said}"
        );
    }
    let served = millrace(&["serve", "--bind", "127.0.0.1:0", "--keys", &nowhere]);
    assert!(!served.status.success(), "no key file, no server");
}

#[test]
fn nkey_is_written_once_and_for_the_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("nkey");
    let file = folder.0.join("seed");
    let made = millrace(&["nkey", &file.display().to_string()]);
    let public = stdout(&made).trim().to_owned();
    let seed = std::fs::read_to_string(&file).unwrap();
    let pair = nkeys::KeyPair::from_seed(seed.trim()).unwrap();
    assert_eq!(pair.public_key(), public);
    assert!(public.starts_with('U') && seed.starts_with("SU"));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let again = millrace(&["nkey", &file.display().to_string()]);
    assert!(!again.status.success(), "a seed is not replaced");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), seed);
}

#[test]
fn key_that_could_not_be_shown_is_named() {
    let folder = Folder::new("keys-full");
    let file = folder.0.join("keys.yaml").display().to_string();
    let full = std::fs::File::options().write(true).open("/dev/full");
    let output = command(&["keys", "new", "alice", "--file", &file])
        .stdout(full.unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("millrace keys revoke alice"), "{said}");
}
