//! Loads beside the cache: what is served from it, what is not, and what is left on the disk.

use super::directory::{CacheDirectory, FileKey};
use super::writer::{Written, write_file, write_part};
use super::{CachedLoad, PackedCache};
use crate::clock::now_unix_s;
use cpu::{LoadOptions, Model};
use kernels::{Isa, KvKind, Pool};
use model::{Batch, Forward, Want};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, UNIX_EPOCH};
use synth::SynthSpec;
use testing::folder::Folder;
use weights::packed_file::{HEADER_BYTES, PackedReading, PackedSection};
use weights::{ModelFiles, PackedSections};

/// A model's file and a cache.
struct World {
    folder: Folder,
    cache: PackedCache,
}

impl World {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let cache = PackedCache {
            directory: CacheDirectory {
                path: folder.0.join("packed"),
                bytes_max: 1 << 30,
            },
            reading: Some(PackedReading::Copy),
            model_bytes_min: 0,
        };
        let world = Self { folder, cache };
        world.write_model(1);
        world
    }

    fn model(&self) -> PathBuf {
        self.folder.0.join("a.gguf")
    }

    /// Writes the model of random weights of this seed.
    fn write_model(&self, seed: u64) {
        let mut spec = SynthSpec::preset("tiny-llama").unwrap();
        spec.seed = seed;
        fs::write(self.model(), spec.to_bytes().unwrap()).unwrap();
    }

    fn files(&self) -> ModelFiles {
        weights::gguf::Gguf::open(self.model()).unwrap().into()
    }

    fn key(&self) -> FileKey {
        FileKey::of(&self.files(), Isa::detect(), false, later()).unwrap()
    }

    /// A load at a time long after the model was written; waits for the cached file.
    fn load(&self) -> Loaded {
        let files = self.files();
        let mut cached = self.cache.begin(&files, (Isa::detect(), false), later());
        let logits = logits(files, Isa::detect(), &mut cached.sections);
        Loaded::of(cached, logits)
    }

    /// Files of the cache without the locks.
    fn cached(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.cache.path()).map_or(Vec::new(), |entries| {
            entries.map(|entry| entry.unwrap().path()).collect()
        });
        let is_lock = |path: &Path| path.extension().is_some_and(|ending| ending == "lock");
        let mut paths: Vec<PathBuf> = entries;
        paths.retain(|path| !is_lock(path));
        paths.sort();
        paths
    }

    fn sections(&self) -> Vec<PackedSection> {
        let mut sections = PackedSections::new(None, true);
        logits(self.files(), Isa::detect(), &mut sections);
        sections.into_kept()
    }
}

#[derive(Debug, PartialEq)]
struct Loaded {
    is_from_cache: bool,
    is_written: bool,
    logits: Vec<f32>,
}

impl Loaded {
    fn of(cached: CachedLoad, logits: Vec<f32>) -> Self {
        let is_from_cache = cached.is_from_cache();
        let writer = cached.end();
        Self {
            is_from_cache,
            is_written: writer.is_some(),
            logits,
        }
    }

    #[track_caller]
    fn expect(&self, is_from_cache: bool, is_written: bool) {
        assert_eq!(
            (self.is_from_cache, self.is_written),
            (is_from_cache, is_written)
        );
    }
}

/// A time at which files that were just written count as settled.
fn later() -> i64 {
    now_unix_s() + 3600
}

fn logits(files: ModelFiles, isa: Isa, sections: &mut PackedSections) -> Vec<f32> {
    let options = LoadOptions {
        context_max: Some(64),
        page_tokens: 16,
        pages: 8,
        kv: KvKind::F16,
        states: 1,
        rows_max: 16,
        logit_rows_max: 16,
        mtp: false,
    };
    let parts = (isa, Pool::new(2));
    let mut model = Model::load_with(files, parts, &options, sections, &mut |_| {}).unwrap();
    let mut batch = Batch::default();
    batch.push(&[3, 1, 4, 1, 5, 9], 0, &[0], Want::All);
    model.forward(&batch).unwrap().to_vec()
}

#[test]
fn second_load_is_from_the_cache_with_equal_logits() {
    for reading in [PackedReading::Copy, PackedReading::Map] {
        let mut world = World::new("packed-second");
        world.cache.reading = Some(reading);
        let first = world.load();
        first.expect(false, true);
        assert_eq!(world.cached().len(), 1);
        let second = world.load();
        second.expect(true, false);
        assert_eq!(first.logits, second.logits, "{reading:?}");
        assert_eq!(world.cache.files_of(&world.files()), world.cached());
        // The same content by another name: the key has no path.
        fs::create_dir(world.folder.0.join("other")).unwrap();
        let linked = world.folder.0.join("other/b.gguf");
        std::os::unix::fs::symlink(world.model(), &linked).unwrap();
        let files: ModelFiles = weights::gguf::Gguf::open(&linked).unwrap().into();
        assert_eq!(world.cache.files_of(&files), world.cached());
        world.cache.remove(&files);
        assert!(world.cached().is_empty());
    }
}

#[test]
fn all_instruction_sets_of_one_layout_share_a_file() {
    let world = World::new("packed-isa");
    world.load();
    for isa in Isa::available().filter(|isa| isa.is_batch_invariant()) {
        let files = world.files();
        let mut cached = world.cache.begin(&files, (isa, false), later());
        let logits = logits(files, isa, &mut cached.sections);
        assert!(cached.is_from_cache(), "{isa}");
        let plain = self::logits(world.files(), isa, &mut PackedSections::none());
        assert!(logits == plain, "{isa}: other logits");
    }
}

#[test]
fn file_with_another_key_is_not_served() {
    let world = World::new("packed-key");
    let first = world.load();
    let key = world.key();
    // Such as that of another layout, which would have another name, too.
    let other = FileKey {
        key: weights::packed_file::PackedKey([1; 32]),
        ..key.clone()
    };
    let directory = &world.cache.directory;
    let sections = world.sections();
    let stop = AtomicBool::new(false);
    write_file(directory, &other, (&sections, true), &stop).unwrap();
    let second = world.load();
    second.expect(false, true);
    assert_eq!(second.logits, first.logits);
    world.load().expect(true, false);
    let mtp = FileKey::of(&world.files(), Isa::detect(), true, later()).unwrap();
    assert_ne!(mtp.name, key.name);
}

#[test]
fn changed_model_is_never_served_from_the_cache() {
    let world = World::new("packed-changed");
    let first = world.load();
    world.write_model(2);
    let second = world.load();
    second.expect(false, true);
    assert_ne!(first.logits, second.logits);
    // One byte in place, between two samples or not, with the old length and time of the last write.
    let modified = fs::metadata(world.model()).unwrap().modified().unwrap();
    let mut bytes = fs::read(world.model()).unwrap();
    let at = bytes.len() - 3;
    bytes[at] ^= 0x01;
    fs::write(world.model(), &bytes).unwrap();
    let file = fs::File::options().write(true).open(world.model()).unwrap();
    file.set_modified(modified).unwrap();
    drop(file);
    world.load().expect(false, true);
}

#[test]
fn model_that_was_just_written_is_not_cached() {
    let world = World::new("packed-young");
    let files = world.files();
    let cached = world
        .cache
        .begin(&files, (Isa::detect(), false), now_unix_s());
    assert!(cached.end().is_none());
    assert!(world.cached().is_empty());
}

/// A change of a file's bytes.
type Damage = fn(&mut Vec<u8>);

#[test]
fn damaged_file_is_replaced() {
    let world = World::new("packed-damaged");
    let first = world.load();
    let path = world.cached().remove(0);
    let whole = fs::read(&path).unwrap();
    let cases: [(&str, Damage); 7] = [
        ("header", |bytes| bytes[20] ^= 1),
        ("version", |bytes| bytes[8] ^= 1),
        ("section", |bytes| bytes[HEADER_BYTES + 5] ^= 1),
        ("table", |bytes| *bytes.last_mut().unwrap() ^= 1),
        ("cut", |bytes| bytes.truncate(bytes.len() - 1)),
        ("empty", Vec::clear),
        ("other content", |bytes| bytes.fill(b'x')),
    ];
    for (label, damage) in cases {
        let mut bytes = whole.clone();
        damage(&mut bytes);
        fs::write(&path, bytes).unwrap();
        let again = world.load();
        assert_eq!(
            (again.is_from_cache, again.is_written),
            (false, true),
            "{label}"
        );
        assert_eq!(again.logits, first.logits, "{label}");
        assert_eq!(world.cached(), std::slice::from_ref(&path), "{label}");
        assert!(fs::read(&path).unwrap() == whole, "{label}");
    }
}

#[test]
fn file_is_one_of_the_names_of_a_directory_or_nothing() {
    let world = World::new("packed-directory");
    // A directory in the file's place cannot be opened, nor replaced: packed, and served.
    fs::create_dir_all(world.cache.directory.file(&world.key().name)).unwrap();
    let first = world.load();
    assert!(!first.is_from_cache);
    assert_eq!(
        first.logits,
        logits(world.files(), Isa::detect(), &mut PackedSections::none())
    );
}

#[test]
fn file_that_others_could_write_is_packed_again() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    let world = World::new("packed-forged");
    let first = world.load();
    first.expect(false, true);
    let path = world.cached().remove(0);
    let lock = path.with_extension("lock");
    let outside = world.folder.0.join("outside");
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let make_pipe = |path: &Path| {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
    };
    let is_root = fs::metadata(&path).unwrap().uid() == 0;
    // Whether the model is cached afterwards: not where the lock is no regular file.
    let cases: [(&str, bool, &dyn Fn()); 7] = [
        ("written by the group", true, &|| set_mode(&path, 0o660)),
        ("written by all", true, &|| set_mode(&path, 0o606)),
        ("of another user", true, &|| {
            if is_root {
                chown(&path, Some(61_234), None).unwrap();
            } else {
                set_mode(&path, 0o622);
            }
        }),
        ("a link", true, &|| {
            fs::rename(&path, &outside).unwrap();
            symlink(&outside, &path).unwrap();
        }),
        ("a pipe", true, &|| {
            fs::remove_file(&path).unwrap();
            make_pipe(&path);
        }),
        ("a pipe as lock", false, &|| {
            fs::remove_file(&path).unwrap();
            fs::remove_file(&lock).unwrap();
            make_pipe(&lock);
        }),
        ("a link as lock", false, &|| {
            fs::remove_file(&lock).unwrap();
            symlink(world.folder.0.join("nothing"), &lock).unwrap();
        }),
    ];
    for (case, is_cached, forge) in cases {
        forge();
        let again = world.load();
        assert!(!again.is_from_cache, "{case}");
        assert_eq!(again.logits, first.logits, "{case}");
        assert_eq!(path.exists(), is_cached, "{case}");
    }
    assert!(!world.folder.0.join("nothing").exists());
    fs::remove_file(&lock).unwrap();
    world.load().expect(false, true);
    world.load().expect(true, false);
}

#[test]
fn lock_that_a_volume_opened_to_its_group_is_closed_again() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new("packed-group");
    world.load().expect(false, true);
    let lock = world.cached().remove(0).with_extension("lock");
    let opened = fs::Permissions::from_mode(0o660);
    for path in [&world.cached().remove(0), &lock] {
        fs::set_permissions(path, opened.clone()).unwrap();
    }
    world.load().expect(false, true);
    world.load().expect(true, false);
    let mode = fs::metadata(&lock).unwrap().permissions().mode();
    assert_eq!(mode & 0o022, 0, "{mode:o}");
}

#[test]
fn directory_that_others_could_write_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new("packed-shared");
    world.load().expect(false, true);
    let set_mode = |mode| {
        fs::set_permissions(world.cache.path(), fs::Permissions::from_mode(mode)).unwrap();
    };
    for mode in [0o777, 0o1777, 0o707] {
        set_mode(mode);
        world.load().expect(false, false);
    }
    // As volumes with a group make it.
    set_mode(0o2770);
    world.load().expect(true, false);
    let mode = fs::metadata(world.cache.path())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o750);
}

#[test]
fn full_disk_leaves_no_file() {
    let world = World::new("packed-full");
    let (key, sections) = (world.key(), world.sections());
    world.cache.directory.create().unwrap();
    let stop = AtomicBool::new(false);
    for room in [0, 100, 5000, 20_000] {
        let part = world.cache.directory.part(&key.name);
        let why = write_part(&part, &key, &sections, (room, &stop)).unwrap_err();
        assert_eq!(why.kind(), std::io::ErrorKind::StorageFull);
        fs::remove_file(part).unwrap();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(write_file(&world.cache.directory, &key, (&sections, false), &stop).is_err());
    assert!(world.cached().is_empty());
}

#[test]
fn directory_that_cannot_be_created_does_not_prevent_a_load() {
    let mut world = World::new("packed-readonly");
    fs::write(world.folder.0.join("file"), "").unwrap();
    world.cache.directory.path = world.folder.0.join("file/packed");
    let first = world.load();
    first.expect(false, true);
    world.load().expect(false, true);
}

#[test]
fn files_that_were_not_used_for_the_longest_time_are_evicted() {
    let mut world = World::new("packed-evicted");
    let mut names = Vec::new();
    for seed in 1..=3 {
        world.write_model(seed);
        world.load();
        let name = world.cache.directory.file(&world.key().name);
        let file = fs::File::open(&name).unwrap();
        let used = UNIX_EPOCH + Duration::from_secs(1_000_000_000 + seed);
        file.set_modified(used).unwrap();
        names.push(name);
    }
    let each = fs::metadata(&names[0]).unwrap().len();
    // The first was used again: the second is the oldest.
    world.cache.directory.touch(&names[0], 2_000_000_000);
    world.cache.directory.bytes_max = 3 * each + each / 2;
    world.write_model(4);
    world.load().expect(false, true);
    let newest = world.cache.directory.file(&world.key().name);
    let mut expected = vec![names[0].clone(), names[2].clone(), newest];
    expected.sort();
    assert_eq!(world.cached(), expected);
    // A model that is larger than the bound is packed, and evicts nothing.
    world.cache.directory.bytes_max = each / 2;
    world.write_model(5);
    world.load().expect(false, false);
    assert_eq!(world.cached(), expected);
}

#[test]
fn leftovers_are_removed_and_live_partial_files_stay() {
    let world = World::new("packed-leftover");
    let directory = &world.cache.directory;
    directory.create().unwrap();
    let (dead, live) = (directory.part("aa-bb"), directory.part("cc-dd"));
    fs::write(&dead, "half").unwrap();
    fs::write(&live, "half").unwrap();
    let lock = directory.lock("cc-dd").unwrap();
    assert!(lock.is_some());
    world.load().expect(false, true);
    assert!(!dead.exists() && live.exists());
    drop(lock);
    world.load().expect(true, false);
    assert!(!live.exists());
    let locks = fs::read_dir(world.cache.path()).unwrap();
    // That of the one complete file, and no other.
    assert_eq!(locks.count(), 2);
}

#[test]
fn one_of_two_writers_writes() {
    let world = World::new("packed-two");
    let (key, sections) = (world.key(), world.sections());
    let directory = &world.cache.directory;
    directory.create().unwrap();
    let stop = AtomicBool::new(false);
    let lock = directory.lock(&key.name).unwrap();
    let write = || write_file(directory, &key, (&sections, false), &stop).unwrap();
    assert_eq!(write(), Written::ByOther);
    drop(lock);
    assert!(matches!(write(), Written::File(_)));
    assert_eq!(write(), Written::ByOther);
}

#[test]
fn loads_at_one_moment_leave_one_file_that_serves() {
    let world = World::new("packed-threads");
    let loads = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| world.load())).collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap());
        ended.collect::<Vec<_>>()
    });
    assert!(
        loads
            .windows(2)
            .all(|pair| pair[0].logits == pair[1].logits)
    );
    assert_eq!(world.cached().len(), 1);
    world.load().expect(true, false);
}

#[test]
fn small_models_and_switched_off_caches_write_nothing() {
    let mut world = World::new("packed-off");
    world.cache.model_bytes_min = 1 << 30;
    world.load().expect(false, false);
    world.cache.model_bytes_min = 0;
    world.cache.reading = None;
    world.load().expect(false, false);
    assert!(!world.cache.path().exists());
    let files: ModelFiles = crate::model_files::ModelSource::built_in()
        .open(None)
        .unwrap();
    assert!(FileKey::of(&files, Isa::detect(), false, later()).is_none());
}
