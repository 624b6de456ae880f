//! The real directory: modes, lock, errors of the start.

use crate::driver::small_config;
use journal::{JournalDirectory, Record, StartError, Tokens, open_journal};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use testing::folder::Folder;

fn mode_of(path: &std::path::Path) -> u32 {
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
