//! The rule of files and directories, in each way in which another user could have prepared them.
//!
//! Promise (Journal): files that other users own or could write to, links, pipes and sockets are refused, without
//! waiting and before a byte is changed, in the journal and in both caches; a group's volume is usable.
//! Also held by `journal/tests/it/directory.rs`, `engine/src/disk_cache/run_directory/tests.rs`,
//! `millrace/src/packed_cache/tests.rs`.

#![cfg(unix)]

use private_files::{
    close_to_group, create_directory, create_empty, create_new, open_or_create, open_to_inspect,
    open_to_read, open_to_write, secure_directory,
};
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use testing::folder::Folder;

/// A user who is neither root nor the one of the tests.
const OTHER: u32 = 61_234;

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Whether the tests may give files to other users.
fn is_root(folder: &Folder) -> bool {
    fs::metadata(&folder.0).unwrap().uid() == 0
}

type Open = fn(&Path) -> io::Result<File>;

const OPENINGS: [(&str, Open); 4] = [
    ("read", open_to_read),
    ("write", open_to_write),
    ("or create", open_or_create),
    ("empty", create_empty),
];

/// Every way of opening refuses the file, and leaves the bytes as they are.
#[track_caller]
fn expect_refused(path: &Path, case: &str, words: &str) {
    for (label, open) in OPENINGS {
        let why = open(path).expect_err(case);
        assert_eq!(why.kind(), ErrorKind::InvalidData, "{case}, {label}: {why}");
        assert!(why.to_string().contains(words), "{case}, {label}: {why}");
    }
    assert_eq!(
        create_new(path).unwrap_err().kind(),
        ErrorKind::AlreadyExists,
        "{case}"
    );
}

#[test]
fn file_that_is_not_a_regular_one_is_refused_without_waiting() {
    let folder = Folder::new("private-kinds");
    let at = |name: &str| folder.0.join(name);
    fs::write(at("victim"), "precious").unwrap();
    set_mode(&at("victim"), 0o600);
    symlink(at("victim"), at("link")).unwrap();
    symlink(at("nothing"), at("dangling")).unwrap();
    fs::create_dir(at("directory")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(at("pipe"))
        .status();
    assert!(made.unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    for case in ["link", "dangling", "directory", "pipe", "socket"] {
        expect_refused(&at(case), case, "not a regular file");
        let why = open_to_inspect(&at(case)).unwrap_err();
        assert_eq!(why.kind(), ErrorKind::InvalidData, "{case}");
    }
    assert!(!at("nothing").exists(), "the dangling link was followed");
    assert_eq!(fs::read(at("victim")).unwrap(), b"precious");
}

#[test]
fn file_that_others_may_write_or_own_is_refused() {
    let folder = Folder::new("private-modes");
    let path = folder.0.join("file");
    fs::write(&path, "forged").unwrap();
    for mode in [0o660, 0o602, 0o666, 0o620] {
        set_mode(&path, mode);
        expect_refused(
            &path,
            &format!("{mode:o}"),
            "other users may write to the file",
        );
        open_to_inspect(&path).unwrap();
    }
    set_mode(&path, 0o644);
    open_to_write(&path).expect("others may read");
    if is_root(&folder) {
        chown(&path, Some(OTHER), None).unwrap();
        expect_refused(&path, "of another user", "belongs to the user 61234");
    }
    assert_eq!(fs::read(&path).unwrap(), b"forged");
    chown(&path, Some(fs::metadata(&folder.0).unwrap().uid()), None).unwrap();
    create_empty(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn file_that_must_be_kept_is_closed_to_its_group() {
    let folder = Folder::new("private-group");
    let path = folder.0.join("file");
    let rows = [
        (0o660, 0o640),
        (0o664, 0o644),
        (0o600, 0o600),
        (0o666, 0o646),
    ];
    for (mode, want) in rows {
        fs::write(&path, "kept").unwrap();
        set_mode(&path, mode);
        close_to_group(&path).unwrap();
        assert_eq!(mode_of(&path), want, "{mode:o}");
    }
    assert!(open_to_read(&path).is_err(), "all may write to it still");
    let link = folder.0.join("link");
    set_mode(&path, 0o660);
    symlink(&path, &link).unwrap();
    close_to_group(&link).unwrap();
    assert_eq!(mode_of(&path), 0o660, "the link was followed");
}

#[test]
fn directory_that_others_may_write_is_refused_or_closed() {
    let folder = Folder::new("private-directories");
    let made = |name: &str, mode: u32| -> PathBuf {
        let path = folder.0.join(name);
        create_directory(&path).unwrap();
        assert_eq!(mode_of(&path) & 0o777, 0o700);
        set_mode(&path, mode);
        path
    };
    // The mode before, and the mode after; `None`: refused.
    let rows = [
        (0o700, Some(0o700)),
        (0o755, Some(0o755)),
        (0o770, Some(0o750)),
        (0o2775, Some(0o2755)),
        (0o1770, None),
        (0o777, None),
        (0o1777, None),
        (0o702, None),
    ];
    for (mode, want) in rows {
        let path = made(&format!("{mode:o}"), mode);
        let secured = secure_directory(&path);
        match want {
            Some(_) => secured.unwrap(),
            None => {
                let why = secured.unwrap_err();
                assert_eq!(why.kind(), ErrorKind::InvalidData, "{mode:o}");
                let words = "other users may write to the directory";
                assert!(why.to_string().starts_with(words), "{why}");
            }
        }
        assert_eq!(mode_of(&path), want.unwrap_or(mode), "{mode:o}");
    }
    let file = folder.0.join("file");
    fs::write(&file, "").unwrap();
    assert!(secure_directory(&file).is_err(), "not a directory");
    if is_root(&folder) {
        let path = made("of another user", 0o755);
        chown(&path, Some(OTHER), None).unwrap();
        let why = secure_directory(&path).unwrap_err();
        assert!(
            why.to_string().contains("belongs to the user 61234"),
            "{why}"
        );
    }
}

/// The root of a Kubernetes volume with an `fsGroup` has a group and its write bit: a directory inside is this user's own.
#[test]
fn directory_inside_of_a_groups_volume_is_accepted() {
    let folder = Folder::new("private-volume");
    let volume = folder.0.join("volume");
    create_directory(&volume).unwrap();
    set_mode(&volume, 0o2775);
    let inner = volume.join("cache/packed");
    create_directory(&inner).unwrap();
    secure_directory(&inner).unwrap();
    assert_eq!(mode_of(&volume), 0o2775, "the volume's mode is unchanged");
    assert_eq!(mode_of(&inner) & 0o777, 0o700);
    assert_eq!(mode_of(&volume.join("cache")) & 0o777, 0o700);
    let file = create_new(&inner.join("file")).unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
}
