//! The real directory: modes, lock, errors of the start.
//!
//! Promise (Journal): the lock step of a start reads no records and detects a second process, a newer version and a
//! full disk; a link in place of a file is rejected; a read-only directory is never changed.
//!
//! Promise (Journal): files are 0600 in a directory 0700; a second process, an unwritable directory, a full disk and
//! a newer version are one line each.
//! Also held by `journal/tests/it/versions.rs`.

use crate::driver::small_config;
use journal::{
    JournalDirectory, Record, StartError, Tokens, lock_journal, open_journal, read_journal,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testing::folder::Folder;

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn only_the_owner_reads_the_journal() {
    let folder = Folder::new("journal-modes");
    let path = folder.0.join("state").join("journal");
    let (mut writer, _) = open_journal(JournalDirectory::new(&path), small_config()).unwrap();
    writer.open_stream(1, b"one").unwrap();
    writer.commit(Duration::ZERO);
    assert_eq!(mode_of(&path), 0o700);
    let mut files = 0;
    for entry in fs::read_dir(&path).unwrap() {
        assert_eq!(mode_of(&entry.unwrap().path()), 0o600);
        files += 1;
    }
    assert_eq!(files, 3, "lock, reserve and one segment");
}

#[test]
fn open_directory_of_others_is_closed() {
    let folder = Folder::new("journal-open-directory");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
    open_journal(JournalDirectory::new(&folder.0), small_config()).unwrap();
    assert_eq!(mode_of(&folder.0), 0o700);
}

#[test]
fn directory_with_other_files_is_rejected_and_not_changed() {
    let folder = Folder::new("journal-other-files");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.0.join("letter.txt"), b"dear").unwrap();
    let error = open_journal(JournalDirectory::new(&folder.0), small_config()).unwrap_err();
    let line = error.to_string();
    assert!(
        line.contains("letter.txt") && line.contains("empty directory"),
        "{line}"
    );
    assert!(!line.contains('\n'), "{line}");
    assert_eq!(mode_of(&folder.0), 0o755, "the mode is unchanged");
    assert_eq!(
        fs::read_dir(&folder.0).unwrap().count(),
        1,
        "nothing was added"
    );
}

#[test]
fn second_writer_is_rejected_in_one_line() {
    let folder = Folder::new("journal-lock");
    let directory = JournalDirectory::new(&folder.0);
    let first = open_journal(directory.clone(), small_config()).unwrap();
    let error = open_journal(directory.clone(), small_config()).unwrap_err();
    assert!(matches!(error, StartError::Locked { .. }));
    let line = error.to_string();
    assert!(
        line.contains("another process uses the directory; stop that process"),
        "{line}"
    );
    assert!(!line.contains('\n'));
    drop(first);
    open_journal(directory, small_config()).unwrap();
}

#[test]
fn directory_that_cannot_be_created_is_rejected_in_one_line() {
    let folder = Folder::new("journal-file");
    let file = folder.0.join("file");
    fs::write(&file, "no directory").unwrap();
    let error = open_journal(JournalDirectory::new(file.join("journal")), small_config());
    let error = error.unwrap_err();
    assert!(matches!(error, StartError::Unwritable { .. }));
    let line = error.to_string();
    assert!(
        line.contains("cannot be written") && !line.contains('\n'),
        "{line}"
    );
}

#[test]
fn full_disk_at_the_start_is_rejected_in_one_line() {
    use crate::model_disk::{FaultPlan, ModelDisk};
    let disk = ModelDisk::default();
    disk.set_faults(FaultPlan {
        capacity: Some(1000),
        ..FaultPlan::default()
    });
    let error = open_journal(disk, small_config()).unwrap_err();
    assert!(matches!(error, StartError::Full { .. }));
    let line = error.to_string();
    assert!(
        line.contains("the disk is full; free at least 4120 bytes"),
        "{line}"
    );
}

#[test]
fn stream_survives_in_real_files() {
    let folder = Folder::new("journal-files");
    let directory = JournalDirectory::new(&folder.0);
    let (mut writer, _) = open_journal(directory.clone(), small_config()).unwrap();
    let key = writer.open_stream(9, b"nine").unwrap();
    for first in 0..3000 {
        let tokens = Tokens {
            first,
            ids: &[first * 7],
            ..Tokens::default()
        };
        writer.append(key, &Record::Tokens(tokens)).unwrap();
        writer.commit(Duration::from_millis(u64::from(first)));
    }
    assert!(writer.sizes().segments > 3);
    let boot = writer.boot();
    writer.close(Duration::from_secs(9));
    let (writer, recovered) = open_journal(directory, small_config()).unwrap();
    let ids = &recovered.streams[0].choices[0].ids;
    assert!(ids.iter().copied().eq((0..3000).map(|id| id * 7)));
    assert!(recovered.report.is_sealed);
    assert_eq!(
        (recovered.report.last_boot, writer.boot()),
        (boot, boot + 1)
    );
}

#[test]
fn locked_journal_is_complete_after_recovery() {
    let folder = Folder::new("journal-two-steps");
    let directory = JournalDirectory::new(&folder.0);
    let (mut writer, _) = open_journal(directory.clone(), small_config()).unwrap();
    writer.open_stream(9, b"nine").unwrap();
    writer.close(Duration::ZERO);
    let before = fs::read_dir(&folder.0).unwrap().count();
    let locked = lock_journal(directory.clone(), small_config()).unwrap();
    assert!(locked.segment_bytes() > 24);
    // No segment is begun before the records were read.
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), before);
    let second = lock_journal(directory.clone(), small_config()).unwrap_err();
    assert!(matches!(second, StartError::Locked { .. }));
    let (writer, recovered) = locked.recover().unwrap();
    assert_eq!(recovered.streams[0].id, 9);
    drop(writer);
    drop(lock_journal(directory.clone(), small_config()).unwrap());
    lock_journal(directory, small_config()).expect("a dropped lock is free");
}

#[test]
fn lock_step_detects_a_newer_version_and_a_full_disk() {
    use crate::model_disk::{FaultPlan, ModelDisk};
    let disk = ModelDisk::default();
    disk.set_faults(FaultPlan {
        capacity: Some(1000),
        ..FaultPlan::default()
    });
    let error = lock_journal(disk, small_config()).unwrap_err();
    assert!(matches!(error, StartError::Full { .. }), "{error}");

    let folder = Folder::new("journal-newer");
    let (writer, _) = open_journal(JournalDirectory::new(&folder.0), small_config()).unwrap();
    drop(writer);
    let log = |entry: fs::DirEntry| {
        let path = entry.path();
        path.extension()
            .is_some_and(|ending| ending == "log")
            .then_some(path)
    };
    let path = fs::read_dir(&folder.0)
        .unwrap()
        .find_map(|entry| log(entry.unwrap()))
        .unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 77;
    let crc = crc32fast::hash(&bytes[..20]);
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let error = lock_journal(JournalDirectory::new(&folder.0), small_config()).unwrap_err();
    let line = error.to_string();
    assert!(
        line.contains("has version 77, this program reads version 1; use the newer program"),
        "{line}"
    );
}

#[test]
fn read_only_directory_is_never_changed() {
    let folder = Folder::new("journal-read-only");
    let path = folder.0.join("journal");
    let directory = JournalDirectory::read_only(&path);
    let error = read_journal(&directory, 1 << 20).unwrap_err();
    let line = error.to_string();
    assert!(
        line.contains("the directory cannot be read") && !line.contains('\n'),
        "{line}"
    );
    let error = open_journal(directory.clone(), small_config()).unwrap_err();
    assert!(matches!(error, StartError::Unwritable { .. }), "{error}");
    assert!(!path.exists());
    let (mut writer, _) = open_journal(JournalDirectory::new(&path), small_config()).unwrap();
    writer.open_stream(9, b"nine").unwrap();
    writer.commit(Duration::ZERO);
    let found = read_journal(&directory, 1 << 20).unwrap();
    assert_eq!(
        found.streams[0].id, 9,
        "also while a process holds the lock"
    );
}

/// Volumes with a group, as of Kubernetes with an `fsGroup`, let the group write to all that was there before.
#[test]
fn files_that_a_group_may_write_are_closed_to_it_and_kept() {
    let folder = Folder::new("journal-group");
    let directory = JournalDirectory::new(&folder.0);
    let (mut writer, _) = open_journal(directory.clone(), small_config()).unwrap();
    writer.open_stream(9, b"nine").unwrap();
    writer.close(Duration::ZERO);
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let files = || -> Vec<PathBuf> {
        let entries = fs::read_dir(&folder.0).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    files().iter().for_each(|file| set_mode(file, 0o660));
    set_mode(&folder.0, 0o2770);
    let (writer, recovered) = open_journal(directory.clone(), small_config()).unwrap();
    assert_eq!(recovered.streams[0].id, 9);
    drop(writer);
    assert_eq!(mode_of(&folder.0), 0o700);
    let is_open = |file: &PathBuf| mode_of(file) & 0o022 != 0;
    assert_eq!(files().iter().find(|file| is_open(file)), None);
}

#[test]
fn what_other_users_could_write_is_rejected() {
    let folder = Folder::new("journal-shared");
    let opened = |path: &Path| open_journal(JournalDirectory::new(path), small_config());
    let (writer, _) = opened(&folder.0).unwrap();
    drop(writer);
    let segment = {
        let entries = fs::read_dir(&folder.0).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        let is_segment = |path: &PathBuf| path.extension().is_some_and(|end| end == "log");
        paths.find(is_segment).unwrap()
    };
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(&segment, 0o606);
    let line = opened(&folder.0).unwrap_err().to_string();
    assert!(line.contains("other users may write to the file"), "{line}");
    set_mode(&segment, 0o600);
    set_mode(&folder.0, 0o777);
    let line = opened(&folder.0).unwrap_err().to_string();
    let words = "other users may write to the directory";
    assert!(line.contains(words), "{line}");
    assert_eq!(mode_of(&folder.0), 0o777, "the mode is unchanged");
    set_mode(&folder.0, 0o755);
    opened(&folder.0).unwrap();
    fs::remove_file(folder.0.join("lock")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(folder.0.join("lock"))
        .status();
    assert!(made.unwrap().success());
    let line = opened(&folder.0).unwrap_err().to_string();
    assert!(line.contains("not a regular file"), "{line}");
}

#[test]
fn link_in_place_of_a_file_is_rejected() {
    let folder = Folder::new("journal-links");
    let outside = folder.0.join("outside");
    fs::write(&outside, "not a journal's").unwrap();
    for name in ["lock", "reserve", "0000000000000001-00000001.log"] {
        let path = folder.0.join(name).with_extension("d");
        fs::create_dir(&path).unwrap();
        std::os::unix::fs::symlink(&outside, path.join(name)).unwrap();
        let error = open_journal(JournalDirectory::new(&path), small_config()).unwrap_err();
        let line = error.to_string();
        let is_told = line.contains(name) && line.contains("not a regular file");
        assert!(is_told && !line.contains("readable"), "{name}: {line}");
        assert_eq!(fs::read(&outside).unwrap(), b"not a journal's");
    }
}
