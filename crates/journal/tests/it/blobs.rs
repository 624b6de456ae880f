//! Blobs: what is on the disk at each point of their lives.
//!
//! Promise (Journal): a blob is on the disk before a record can name it, has mode 0600, lives exactly as long as its
//! references, and what a killed process left half written is removed at the next start.

use journal::{BLOBS_NAME, BlobError, BlobName, BlobReference, BlobStore};
use proptest::prelude::*;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use testing::folder::Folder;

const BYTES_MAX: u64 = 1 << 20;

fn name(number: u8) -> BlobName {
    std::array::from_fn(|index| if index == 0 { number } else { 0xAB })
}

fn content(number: u8) -> Vec<u8> {
    vec![number; 100 + usize::from(number)]
}

fn files(journal: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(journal.join(BLOBS_NAME)).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn blob_is_there_until_its_last_reference() {
    let folder = Folder::new("blobs-references");
    let store = BlobStore::open(&folder.0, BYTES_MAX).unwrap();
    let first = store.put(name(1), &content(1)).unwrap();
    let second = store.put(name(1), &content(1)).unwrap();
    let third = second.clone();
    assert_eq!(store.len(), 1);
    assert_eq!(store.bytes(), 101);
    let [file] = &files(&folder.0)[..] else {
        panic!("one file")
    };
    assert_eq!(
        fs::metadata(file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    drop(first);
    drop(second);
    assert_eq!(store.read(&third).unwrap(), content(1));
    drop(third);
    assert!(files(&folder.0).is_empty() && store.is_empty());
    assert_eq!(store.bytes(), 0);
    assert!(store.reference(name(1)).is_none());
}

#[test]
fn next_start_keeps_what_is_referenced_and_removes_the_rest() {
    let folder = Folder::new("blobs-start");
    let killed = BlobStore::open(&folder.0, BYTES_MAX).unwrap();
    // A killed process drops nothing.
    for number in 1..=2 {
        std::mem::forget(killed.put(name(number), &content(number)).unwrap());
    }
    // One that shuts down drops its streams, which the next process continues.
    let left = killed.put(name(3), &content(3)).unwrap();
    killed.leave_to_next();
    drop(left);
    let blobs = folder.0.join(BLOBS_NAME);
    let half_written = blobs.join(format!("{}.7.tmp", "00".repeat(32)));
    fs::write(&half_written, b"half").unwrap();
    fs::write(blobs.join("notes.txt"), b"no blob").unwrap();

    let store = BlobStore::open(&folder.0, BYTES_MAX).unwrap();
    assert!(!half_written.exists());
    assert_eq!(store.len(), 3);
    let kept = store.reference(name(2)).unwrap();
    store.remove_unreferenced();
    assert_eq!(store.len(), 1);
    assert_eq!(store.read(&kept).unwrap(), content(2));
    assert_eq!(
        files(&folder.0).len(),
        2,
        "the blob, and the file that is none"
    );
}

#[test]
fn full_store_names_its_bound_and_keeps_what_it_has() {
    let folder = Folder::new("blobs-full");
    let store = BlobStore::open(&folder.0, 250).unwrap();
    let first = store.put(name(1), &content(1)).unwrap();
    let _second = store.put(name(2), &content(2)).unwrap();
    let error = store.put(name(3), &content(3)).unwrap_err();
    assert!(matches!(
        error,
        BlobError::Full {
            bytes: 203,
            needed: 103,
            bytes_max: 250
        }
    ));
    assert!(error.to_string().contains("203 of 250"), "{error}");
    assert_eq!(store.len(), 2);
    drop(first);
    assert!(store.put(name(3), &content(3)).is_ok());
}

#[test]
fn cut_blob_is_written_again_and_a_longer_one_is_an_error() {
    let folder = Folder::new("blobs-damaged");
    let killed = BlobStore::open(&folder.0, BYTES_MAX).unwrap();
    std::mem::forget(killed.put(name(1), &content(1)).unwrap());
    let [file] = &files(&folder.0)[..] else {
        panic!("one file")
    };
    fs::write(file, b"cut").unwrap();
    let store = BlobStore::open(&folder.0, BYTES_MAX).unwrap();
    let reference = store.put(name(1), &content(1)).unwrap();
    assert_eq!(store.read(&reference).unwrap(), content(1));
    assert_eq!(store.bytes(), 101);
    fs::write(file, [1; 102]).unwrap();
    let error = store.read(&reference).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    fs::remove_file(file).unwrap();
    assert!(store.read(&reference).is_err());
}

#[test]
fn failed_write_leaves_no_blob() {
    let folder = Folder::new("blobs-unwritable");
    let store = BlobStore::open(&folder.0, BYTES_MAX).unwrap();
    fs::remove_dir(folder.0.join(BLOBS_NAME)).unwrap();
    assert!(matches!(
        store.put(name(1), &content(1)),
        Err(BlobError::Io(_))
    ));
    assert!(store.is_empty() && store.bytes() == 0);
}

#[test]
fn threads_that_share_a_blob_never_lose_it() {
    let folder = Folder::new("blobs-threads");
    let store = BlobStore::open(&folder.0, BYTES_MAX).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let reference = store.put(name(9), &content(9)).unwrap();
                    assert_eq!(store.read(&reference).unwrap(), content(9));
                }
            });
        }
    });
    assert!(store.is_empty() && files(&folder.0).is_empty());
}

#[derive(Clone, Debug)]
enum Operation {
    Put(u8),
    Clone(usize),
    Drop(usize),
    Restart,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        4 => (0_u8..4).prop_map(Operation::Put),
        2 => (0_usize..8).prop_map(Operation::Clone),
        4 => (0_usize..8).prop_map(Operation::Drop),
        1 => Just(Operation::Restart),
    ];
    prop::collection::vec(operation, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn files_are_those_of_a_naive_count(operations in operations()) {
        let folder = Folder::new("blobs-random");
        let mut store = BlobStore::open(&folder.0, BYTES_MAX).unwrap();
        let mut held: Vec<BlobReference> = Vec::new();
        for operation in operations {
            match operation {
                Operation::Put(number) => held.push(store.put(name(number), &content(number)).unwrap()),
                Operation::Clone(index) => held.extend(held.get(index).cloned()),
                Operation::Drop(index) if index < held.len() => drop(held.swap_remove(index)),
                Operation::Drop(_) => {}
                Operation::Restart => {
                    let names: Vec<BlobName> = held.iter().map(|reference| *reference.name()).collect();
                    held.drain(..).for_each(std::mem::forget);
                    store = BlobStore::open(&folder.0, BYTES_MAX).unwrap();
                    held = names.iter().map(|name| store.reference(*name).unwrap()).collect();
                    store.remove_unreferenced();
                }
            }
            let mut count: HashMap<BlobName, usize> = HashMap::new();
            held.iter().for_each(|reference| *count.entry(*reference.name()).or_default() += 1);
            prop_assert_eq!(files(&folder.0).len(), count.len());
            prop_assert_eq!(store.len(), count.len());
            let bytes: u64 = count.keys().map(|name| 100 + u64::from(name[0])).sum();
            prop_assert_eq!(store.bytes(), bytes);
        }
    }
}
