//! `millrace journal inspect` and `verify`: what is shown, what is not, and damaged or hostile directories.
//!
//! Promise (Journal): `millrace journal` only reads, works next to a server, prints no prompt without `--text`, finds
//! damage, and reads hostile files within bounds.

use crate::support::{Folder, millrace, stdout};
use journal::{JournalConfig, JournalDirectory, Record, Tokens, Writer, open_journal};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testing::random::Random;

/// A description of a stream with two choices, and one of an older version with the prompt "hi".
const FULL: &[u8] = include_bytes!("../../../../gateway/src/records/description/tests/full.json");
const OLD: &[u8] = include_bytes!("../../../../gateway/src/records/description/tests/old.json");

const OLD_ID: &str = "00000000000000000000000000000007";
const FULL_ID: &str = "000000000000000000000000000000ff";

fn open(path: &Path) -> Writer<JournalDirectory> {
    let config = JournalConfig::default();
    open_journal(JournalDirectory::new(path), config).unwrap().0
}

fn write_tokens(writer: &mut Writer<JournalDirectory>, key: journal::StreamKey, ids: &[u32]) {
    let tokens = Tokens {
        ids,
        ..Tokens::default()
    };
    writer.append(key, &Record::Tokens(tokens)).unwrap();
    writer.commit(Duration::ZERO);
}

/// A journal with an unfinished stream and one that ended.
fn write_journal(path: &Path) -> Writer<JournalDirectory> {
    let mut writer = open(path);
    let old = writer.open_stream(7, OLD).unwrap();
    writer.commit(Duration::ZERO);
    write_tokens(&mut writer, old, &[1, 2, 3]);
    let full = writer.open_stream(255, FULL).unwrap();
    write_tokens(&mut writer, full, &[4, 5]);
    // Six prompts with two answers each.
    for choice in 0..12 {
        let end = Record::Ended {
            choice,
            end: 3,
            at_unix_us: 1_753_600_001_000_000,
        };
        writer.append(full, &end).unwrap();
    }
    writer.commit(Duration::ZERO);
    writer
}

fn inspect(path: &Path, flags: &[&str]) -> String {
    let directory = path.to_str().unwrap();
    stdout(&millrace(
        &[&["journal", "inspect", directory], flags].concat(),
    ))
}

#[test]
fn journal_in_use_is_shown_without_texts() {
    let folder = Folder::new("journal-inspect");
    // The writer holds the lock, as a running server does.
    let _writer = write_journal(&folder.0);
    let shown = inspect(&folder.0, &[]);
    for id in [OLD_ID, FULL_ID] {
        assert!(shown.contains(id), "{shown}");
    }
    for part in [
        "1 segments",
        "2 streams",
        "small",
        "not started",
        "ended",
        "2025-07-27T",
        "intact",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("\"hi\""), "{shown}");
    assert!(inspect(&folder.0, &["--text"]).contains("\"hi\""));
}

#[test]
fn json_of_a_journal_has_each_stream() {
    let folder = Folder::new("journal-json");
    drop(write_journal(&folder.0));
    let text = inspect(&folder.0, &["--json"]);
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&shown["segments"], &shown["is_sealed"]),
        (&1.into(), &false.into())
    );
    let [old, full] = shown["streams"].as_array().unwrap().as_slice() else {
        panic!("{text}");
    };
    assert_eq!(
        (&old["id"], &old["state"]),
        (&OLD_ID.into(), &"not started".into())
    );
    assert_eq!(old["tokens"], serde_json::json!([3]));
    assert_eq!(old.get("prompts"), None);
    assert_eq!(
        (&full["id"], &full["state"]),
        (&FULL_ID.into(), &"ended".into())
    );
    assert_eq!(full["ends"], Value::from(vec!["length"; 12]));
    assert_eq!(full["ended_at"], "2025-07-27T07:06:41Z");
    assert_eq!(full["identity"]["arithmetic"], "scalar");
    let text = inspect(&folder.0, &["--json", "--text"]);
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert!(
        shown["streams"][0]["prompts"].to_string().contains("hi"),
        "{text}"
    );
}

/// The exit code and both outputs of `millrace journal verify`.
fn verify(path: &Path) -> (Option<i32>, String) {
    let output = millrace(&["journal", "verify", path.to_str().unwrap()]);
    let texts = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&texts).into_owned(),
    )
}

fn first_segment(path: &Path) -> PathBuf {
    let entries = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|ending| ending == "log"))
        .collect();
    segments.sort();
    segments.remove(0)
}

#[test]
fn damage_is_a_line_and_an_exit_code() {
    let folder = Folder::new("journal-verify");
    write_journal(&folder.0).close(Duration::ZERO);
    let (code, shown) = verify(&folder.0);
    assert_eq!(code, Some(0), "{shown}");
    assert!(
        shown.starts_with("intact: ") && shown.contains("2 streams"),
        "{shown}"
    );
    // A later process shows that the damaged frame was synced.
    let mut writer = open(&folder.0);
    writer.open_stream(8, OLD).unwrap();
    writer.close(Duration::ZERO);
    let segment = first_segment(&folder.0);
    let mut bytes = fs::read(&segment).unwrap();
    // The second frame has the tokens of the first stream.
    let magics = bytes.windows(4).enumerate();
    let mut frames = magics.filter(|(_, window)| *window == b"\xFFMR\xFE");
    let place = frames.nth(1).unwrap().0 + 40;
    bytes[place] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let (code, shown) = verify(&folder.0);
    assert_eq!(code, Some(1), "{shown}");
    assert!(
        shown.contains("1 places where synced frames are missing"),
        "{shown}"
    );
    assert!(
        shown.contains(&format!("stream {OLD_ID}: tail in doubt")),
        "{shown}"
    );
}

#[test]
fn copy_without_its_first_segment_is_damaged() {
    let folder = Folder::new("journal-first-segment");
    let mut writer = open(&folder.0);
    let key = writer.open_stream(7, OLD).unwrap();
    write_tokens(&mut writer, key, &[1, 2, 3]);
    drop(writer);
    // The next process continues the stream in a segment of its own.
    let (mut writer, found) =
        open_journal(JournalDirectory::new(&folder.0), JournalConfig::default()).unwrap();
    let end = Record::Ended {
        choice: 0,
        end: 3,
        at_unix_us: 1_753_600_001_000_000,
    };
    writer.append(found.streams[0].key, &end).unwrap();
    writer.close(Duration::ZERO);
    let first = first_segment(&folder.0);
    let (code, shown) = verify(&folder.0);
    assert_eq!(code, Some(0), "{shown}");
    for change in [
        |path: &Path| fs::write(path, "other bytes"),
        |path: &Path| fs::remove_file(path),
    ] {
        change(&first).unwrap();
        let (code, shown) = verify(&folder.0);
        assert_eq!(code, Some(1), "{shown}");
        assert!(
            shown.contains("1 streams whose beginning is missing"),
            "{shown}"
        );
    }
}

#[test]
fn stored_answer_is_shown_without_texts() {
    let folder = Folder::new("journal-stored");
    let mut writer = open(&folder.0);
    let stored = |version: u32| {
        format!(
            r#"{{"kind":"stored_blob","version":{version},"response_id":"resp_1","stream":"{FULL_ID}","owner":1,
            "model":"tiny","ended_unix_us":1753600001000000,"taken_unix_us":1753600001000000,
            "note":{{"kind":"response","created_unix_us":1,"items":[{{"id":"msg_1","json":"secret"}}]}}}}"#
        )
    };
    let key = writer.open_stream(7, stored(1).as_bytes()).unwrap();
    writer
        .append(key, &Record::Kept { outcome: b"{}" })
        .unwrap();
    writer.commit(Duration::ZERO);
    let shown: Value = serde_json::from_str(&inspect(&folder.0, &["--json"])).unwrap();
    let stream = &shown["streams"][0];
    for (name, want) in [
        ("state", "stored"),
        ("model", "tiny"),
        ("response_id", "resp_1"),
        ("ended_at", "2025-07-27T07:06:41Z"),
    ] {
        assert_eq!(stream[name], want, "{shown}");
    }
    assert!(!shown.to_string().contains("secret"), "{shown}");
    let (code, shown) = verify(&folder.0);
    assert_eq!(code, Some(0), "{shown}");
    // A later version is a line, and no reason to touch the record.
    writer.open_stream(8, stored(2).as_bytes()).unwrap();
    writer.commit(Duration::ZERO);
    assert!(inspect(&folder.0, &[]).contains("unreadable"));
}

#[test]
fn description_that_cannot_be_read_is_damage() {
    let folder = Folder::new("journal-description");
    let mut writer = open(&folder.0);
    writer
        .open_stream(7, b"{\"kind\": \"secret prompt")
        .unwrap();
    writer.close(Duration::ZERO);
    let (code, shown) = verify(&folder.0);
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("the description is invalid"), "{shown}");
    let shown = inspect(&folder.0, &[]);
    assert!(
        shown.contains("unreadable") && !shown.contains("secret prompt"),
        "{shown}"
    );
}

#[test]
fn directory_that_is_no_journal_is_one_clear_line() {
    let folder = Folder::new("journal-none");
    let file = folder.0.join("file");
    fs::write(&file, "").unwrap();
    let empty = folder.0.join("empty");
    fs::create_dir(&empty).unwrap();
    let logs = folder.0.join("logs");
    fs::create_dir(&logs).unwrap();
    fs::write(logs.join("server.log"), "millrace listens").unwrap();
    let rows = [
        (folder.0.join("missing"), "the directory cannot be read"),
        (file, "the directory cannot be read"),
        (empty, "the directory has no journal"),
        (logs, "the directory has no journal"),
    ];
    for (path, expected) in rows {
        for command in ["inspect", "verify"] {
            let output = millrace(&["journal", command, path.to_str().unwrap()]);
            let line = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success());
            assert!(
                line.contains(expected) && line.lines().count() == 1,
                "{line}"
            );
        }
    }
}

#[test]
fn hostile_files_are_read_within_bounds() {
    const NAME: &str = "0000000000000001-00000001.log";
    let folder = Folder::new("journal-hostile");
    let mut random = Random(7);
    for case in 0..4 {
        let path = folder.0.join(case.to_string());
        fs::create_dir(&path).unwrap();
        let mut bytes: Vec<u8> = (0..100_000).map(|_| random.next() as u8).collect();
        for place in (0..bytes.len() - 8).step_by(997) {
            // Headers of frames with huge lengths.
            bytes[place..place + 8].copy_from_slice(b"\xFFMR\xFE\xFF\xFF\xFF\x7F");
        }
        fs::write(path.join(NAME), &bytes).unwrap();
        let (code, shown) = verify(&path);
        assert_eq!(
            code,
            Some(0),
            "no frame, so nothing but a torn tail: {shown}"
        );
        assert!(
            shown.contains("intact: 0 frames") && shown.contains("note: "),
            "{shown}"
        );
        assert_eq!(
            fs::read(path.join(NAME)).unwrap(),
            bytes,
            "nothing is changed"
        );
    }
    let linked = folder.0.join("linked");
    fs::create_dir(&linked).unwrap();
    std::os::unix::fs::symlink("/dev/zero", linked.join(NAME)).unwrap();
    let (code, shown) = verify(&linked);
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("not a regular file"), "{shown}");
}
