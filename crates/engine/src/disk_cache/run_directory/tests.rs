use super::*;
use crate::disk_cache::runs::{HEAD_BYTES, RunPrefix};
use crate::prefix_index::PrefixRoot;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use testing::folder::Folder;

const SHAPE: RunShape = RunShape {
    page_tokens: 2,
    page_bytes: 8,
    pages: 2,
};

fn identity(text: &str) -> RunKey {
    RunKey::identity(text, SHAPE)
}

fn open(folder: &Folder, text: &str) -> (RunDirectory, Vec<FoundRun>) {
    RunDirectory::open(folder.0.join("runs"), identity(text), SHAPE).expect("a directory")
}

/// Runs of a prompt.
fn places(text: &str, tokens: &[u32]) -> Vec<RunPlace> {
    let root = PrefixRoot::default();
    let prefix = Arc::new(RunPrefix::new((identity(text), SHAPE), root, tokens));
    (0..prefix.keys().len())
        .map(|run| RunPlace {
            prefix: Arc::clone(&prefix),
            run,
        })
        .collect()
}

const TOKENS: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
const PAGES: [u8; 16] = [7; 16];

/// The files of runs, whole or not.
fn files(folder: &Folder) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.0.join("runs")).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut runs: Vec<_> = paths.filter(|path| !path.ends_with(LOCK_NAME)).collect();
    runs.sort();
    runs
}

fn read(directory: &RunDirectory, place: &RunPlace) -> Result<[u8; 16], RunReadError> {
    let mut pages = [0; 16];
    directory.read(place, &mut pages).map(|()| pages)
}

#[test]
fn written_runs_are_found_and_read_by_the_next_process() {
    let folder = Folder::new("runs");
    let runs = places("a", &TOKENS);
    {
        let (directory, found) = open(&folder, "a");
        assert!(found.is_empty());
        for (place, byte) in runs.iter().zip(1..) {
            directory.write(place, &[byte; 16]).expect("written");
        }
    }
    for path in files(&folder) {
        let file = private_files::open_to_write(&path).expect("a file");
        file.set_modified(UNIX_EPOCH).expect("a time");
    }
    let (directory, found) = open(&folder, "a");
    // Of one hour: the end of the prefix is the oldest.
    assert_eq!(found.iter().map(|f| f.run).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(found[0].key, runs[1].key());
    assert_eq!(found[0].bytes, SHAPE.file_bytes(1));
    assert_eq!(read(&directory, &runs[0]).expect("read"), [1; 16]);
    assert_eq!(read(&directory, &runs[1]).expect("read"), [2; 16]);
    directory.remove(runs[0].key(), 0);
    let gone = read(&directory, &runs[0]);
    assert!(matches!(gone, Err(RunReadError::Missing)), "{gone:?}");
}

#[test]
fn files_are_private_and_the_directory_is_used_once() {
    let folder = Folder::new("runs");
    let (directory, _) = open(&folder, "a");
    directory
        .write(&places("a", &TOKENS)[0], &PAGES)
        .expect("written");
    let mode = |path: &PathBuf| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(&folder.0.join("runs")), 0o700);
    let runs = files(&folder);
    assert_eq!(runs.len(), 1);
    assert_eq!(mode(&runs[0]), 0o600);
    let second = RunDirectory::open(folder.0.join("runs"), identity("a"), SHAPE);
    let error = second.err().expect("locked");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    drop(directory);
    let reopened = |mode| {
        let shared = fs::Permissions::from_mode(mode);
        fs::set_permissions(folder.0.join("runs"), shared).expect("a mode");
        RunDirectory::open(folder.0.join("runs"), identity("a"), SHAPE)
    };
    assert!(reopened(0o777).is_err(), "all may write to the directory");
    // As volumes with a group make it.
    let (_directory, found) = reopened(0o2770).expect("closed to the group");
    assert_eq!((mode(&folder.0.join("runs")), found.len()), (0o750, 1));
}

#[test]
fn file_that_others_could_write_is_damage() {
    let folder = Folder::new("runs");
    let place = &places("a", &TOKENS)[0];
    let (directory, _) = open(&folder, "a");
    let path = directory.path_of(place.key(), 0, RUN_SUFFIX);
    for mode in [0o660, 0o606] {
        directory.write(place, &PAGES).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        let read = read(&directory, place);
        assert!(matches!(read, Err(RunReadError::Damaged)), "{mode:o}");
        assert!(!path.exists(), "{mode:o}: the file was left");
    }
    let outside = folder.0.join("outside");
    fs::write(&outside, b"x").expect("written");
    std::os::unix::fs::symlink(&outside, &path).expect("a link");
    assert!(matches!(
        read(&directory, place),
        Err(RunReadError::Damaged)
    ));
    assert_eq!(fs::read(&outside).expect("a file"), b"x");
}

#[test]
fn each_flipped_bit_and_each_cut_is_damage() {
    let folder = Folder::new("runs");
    let place = &places("a", &TOKENS)[0];
    let (directory, _) = open(&folder, "a");
    directory.write(place, &PAGES).expect("written");
    let path = files(&folder).remove(0);
    let whole = fs::read(&path).expect("a file");
    assert_eq!(whole.len() as u64, SHAPE.file_bytes(0));
    let cut = (0..whole.len()).map(|len| whole[..len].to_vec());
    let flipped = (0..whole.len()).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        bytes
    });
    for bytes in cut.chain(flipped) {
        fs::write(&path, &bytes).expect("written");
        let damaged = read(&directory, place);
        assert!(matches!(damaged, Err(RunReadError::Damaged)), "{bytes:?}");
        assert!(files(&folder).is_empty(), "the file was left");
    }
    fs::write(&path, &whole).expect("written");
    assert_eq!(read(&directory, place).expect("read"), PAGES);
}

#[test]
fn file_of_other_tokens_under_the_name_is_damage() {
    let folder = Folder::new("runs");
    let place = &places("a", &TOKENS)[0];
    let (directory, _) = open(&folder, "a");
    let other = &places("a", &[9, 2, 3, 4])[0];
    directory.write(other, &PAGES).expect("written");
    let path = directory.path_of(place.key(), 0, RUN_SUFFIX);
    fs::rename(&files(&folder)[0], path).expect("renamed");
    assert!(matches!(
        read(&directory, place),
        Err(RunReadError::Damaged)
    ));
}

#[test]
fn foreign_truncated_and_partial_files_are_removed_at_the_start() {
    let folder = Folder::new("runs");
    let run = &places("a", &TOKENS)[0];
    {
        let (directory, _) = open(&folder, "other model");
        let foreign = &places("other model", &TOKENS)[0];
        directory.write(foreign, &PAGES).expect("written");
        let partial = directory.path_of(foreign.key(), 0, PARTIAL_SUFFIX);
        fs::write(partial, b"x").expect("written");
        fs::write(directory.path.join("notes.txt"), b"x").expect("written");
        fs::write(directory.path.join("a-b-c.run"), b"x").expect("written");
    }
    let (directory, found) = open(&folder, "a");
    assert!(found.is_empty());
    let names = |folder: &Folder| -> Vec<String> {
        let name = |path: &PathBuf| path.file_name()?.to_str().map(str::to_owned);
        files(folder).iter().filter_map(name).collect()
    };
    assert_eq!(names(&folder), ["a-b-c.run", "notes.txt"]);
    directory.write(run, &PAGES).expect("written");
    drop(directory);
    let path = files(&folder).remove(0);
    let cut = fs::read(&path).expect("a file")[..HEAD_BYTES].to_vec();
    fs::write(&path, cut).expect("written");
    assert!(open(&folder, "a").1.is_empty());
    assert_eq!(names(&folder), ["a-b-c.run", "notes.txt"]);
}

#[test]
fn failed_write_leaves_nothing() {
    let folder = Folder::new("runs");
    let (directory, _) = open(&folder, "a");
    let place = &places("a", &TOKENS)[0];
    // A directory with an entry under the final name: the rename fails.
    let path = directory.path_of(place.key(), 0, RUN_SUFFIX);
    fs::create_dir(&path).expect("a directory");
    fs::write(path.join("entry"), b"x").expect("written");
    assert!(directory.write(place, &PAGES).is_err());
    assert_eq!(files(&folder), [path]);
    assert!(matches!(
        read(&directory, place),
        Err(RunReadError::Damaged)
    ));
}
