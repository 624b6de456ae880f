//! The prompt cache on disk: what an engine has written is read by the next one, with equal tokens.
//!
//! Promise (Engine): prompt cache on disk: after `kill -9` and a restart, greedy tokens, logits and `cached_tokens`
//! are those of the prompt cached in memory. A cut or flipped bit in a file is counted, the file is removed and its
//! part computed again. Files of other models, types and versions are removed, bytes stay within `cache.disk_gib` and
//! the oldest are removed first. Salts, keys and adapters share nothing, and a read delays no other request.
//! Also held by `engine/src/disk_cache`, `kernels/src/kv/tests.rs`, `millrace/tests/it/prompt_cache.rs`.

use crate::media::{Part, encoder, prompt_of};
use crate::support::{Asked, Bench, model};
use engine::fake::{FakeConfig, FakeInput, FakeModel};
use engine::{CacheSalt, DiskCacheConfig, DiskCacheError, Engine, EngineConfig, Request, Terms};
use model::Dims;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use testing::folder::Folder;
use testing::wait::wait_until;

/// Tokens of a run: 64 pages of 4.
const RUN: usize = 256;

fn fake() -> FakeConfig {
    FakeConfig {
        dims: Dims {
            context_max: 2048,
            pages: 512,
            rows_max: 64,
            ..model().dims
        },
        ..model()
    }
}

fn prompt(seed: u32, len: usize) -> Vec<u32> {
    (0..len as u32)
        .map(|i| 1 + (i * i + i * seed + seed) % 59)
        .collect()
}

/// An engine with the cache in this folder, and the warnings.
struct Cached {
    bench: Bench,
    warnings: Arc<Mutex<Vec<String>>>,
}

impl Cached {
    fn open(folder: &Folder) -> Self {
        Self::with(folder, "fake", 1 << 30)
    }

    fn with(folder: &Folder, identity: &str, bytes_max: u64) -> Self {
        let model = FakeModel::new(fake()).encoding(encoder(false, false));
        let mut bench = Bench::with(Box::new(model), EngineConfig::default());
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&warnings);
        let config = DiskCacheConfig {
            directory: folder.0.join("runs"),
            bytes_max,
            identity: identity.to_owned(),
            warn: Box::new(move |why| sink.lock().unwrap().push(why.to_owned())),
        };
        bench.engine.cache_on_disk(config).expect("a directory");
        Self { bench, warnings }
    }

    fn request(&self, prompt: &[u32], salt: u128) -> Request {
        Request {
            terms: Terms {
                salt: CacheSalt(salt),
                ..Terms::default()
            },
            ..self.bench.request(prompt, 8)
        }
    }

    /// Runs requests to their ends, in virtual time that stands still while the disk works. Returns the tokens of the
    /// first choices, with the bits of their log-probabilities.
    fn run(&mut self, asked: &mut [Asked]) -> Vec<Vec<(u32, u32)>> {
        wait_until("answers", || {
            self.bench.engine.step(self.bench.now);
            asked
                .iter_mut()
                .all(|asked| asked.answers[0].seen().1.is_some())
        });
        let tokens = |asked: &Asked| {
            let tokens = asked.answers[0].tokens.iter();
            tokens.map(|t| (t.id, t.logprob.to_bits())).collect()
        };
        asked.iter().map(tokens).collect()
    }

    /// The answer to a prompt, and how many of its tokens were cached.
    fn answer(&mut self, prompt: &[u32]) -> (Vec<(u32, u32)>, usize) {
        self.salted_answer(prompt, 0)
    }

    fn salted_answer(&mut self, prompt: &[u32], salt: u128) -> (Vec<(u32, u32)>, usize) {
        let request = self.request(prompt, salt);
        let mut asked = [self.bench.ask(request, 1)];
        let answer = self.run(&mut asked).remove(0);
        self.bench.engine.step(self.bench.now);
        (answer, asked[0].progress.cached_tokens() as usize)
    }

    /// Steps until so many runs are on the disk.
    fn wait_written(&mut self, folder: &Folder, count: usize) {
        let (engine, now) = (&mut self.bench.engine, self.bench.now);
        wait_until("runs on the disk", || {
            engine.step(now);
            runs(folder).len() == count
        });
    }
}

/// A folder in which an engine has written this prompt.
fn written(prompt: &[u32]) -> Folder {
    let folder = Folder::new("disk-cache");
    let mut cached = Cached::open(&folder);
    let first = cached.answer(prompt);
    assert_eq!(cached.bench.handle.stats().disk_bytes(), 0, "used once");
    assert_eq!(first.1, 0);
    let second = cached.answer(prompt);
    assert_eq!(first.0, second.0);
    cached.wait_written(&folder, prompt.len() / RUN);
    folder
}

fn runs(folder: &Folder) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.0.join("runs")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_run = |path: &PathBuf| path.extension().is_some_and(|end| end == "run");
    let mut runs: Vec<_> = paths.filter(is_run).collect();
    // By the number of the run.
    runs.sort_by_key(|path| {
        path.to_str()
            .unwrap()
            .split('-')
            .rev()
            .nth(1)
            .unwrap()
            .to_owned()
    });
    runs
}

/// Gives a file the age of all others that this was done to.
fn make_old(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
}

/// The answer of an engine without a cache on disk.
fn fresh(prompt: &[u32]) -> Vec<(u32, u32)> {
    let mut bench = Bench::new(fake(), EngineConfig::default());
    let answer = bench.answer(bench.request(prompt, 8));
    let tokens = answer.tokens.iter();
    tokens.map(|t| (t.id, t.logprob.to_bits())).collect()
}

#[test]
fn prefix_is_read_after_a_restart_with_equal_tokens() {
    let prompt = prompt(3, 3 * RUN + 50);
    let folder = written(&prompt);
    assert_eq!(runs(&folder).len(), 3);
    let mut cached = Cached::open(&folder);
    let (answer, tokens) = cached.answer(&prompt);
    assert_eq!(answer, fresh(&prompt));
    assert_eq!(tokens, 3 * RUN);
    let stats = cached.bench.handle.stats();
    assert_eq!(stats.disk_hit_tokens(), 3 * RUN as u64);
    assert_eq!(
        stats.prompt_tokens_computed() as usize,
        prompt.len() - 3 * RUN
    );
    assert_eq!(stats.disk_bytes_read(), 3 * (RUN * 12) as u64);
    cached.bench.assert_empty();
    // Now in memory: nothing is read again.
    assert!(cached.answer(&prompt).1 >= 3 * RUN);
    assert_eq!(
        cached.bench.handle.stats().disk_hit_tokens(),
        3 * RUN as u64
    );
}

#[test]
fn other_end_and_other_beginning_find_what_they_share() {
    let folder = written(&prompt(3, 3 * RUN + 50));
    let mut cached = Cached::open(&folder);
    let mut other = prompt(3, 2 * RUN + 10);
    other.extend(prompt(11, RUN));
    let (answer, tokens) = cached.answer(&other);
    assert_eq!((answer, tokens), (fresh(&other), 2 * RUN));
    let mut other = prompt(3, 3 * RUN);
    other[0] += 1;
    let (answer, tokens) = cached.answer(&other);
    assert_eq!((answer, tokens), (fresh(&other), 0));
}

#[test]
fn salts_and_models_share_nothing() {
    let prompt = prompt(3, 2 * RUN + 1);
    let folder = written(&prompt);
    let mut cached = Cached::open(&folder);
    let (answer, tokens) = cached.salted_answer(&prompt, 9);
    assert_eq!((answer, tokens), (fresh(&prompt), 0));
    drop(cached);
    assert_eq!(runs(&folder).len(), 2);
    let mut other = Cached::with(&folder, "another model", 1 << 30);
    assert!(runs(&folder).is_empty(), "foreign files were left");
    assert_eq!(other.answer(&prompt).1, 0);
}

#[test]
fn prompt_with_images_is_kept_up_to_the_first() {
    let parts = |image: u64| {
        let text = prompt(3, RUN + 50);
        let image = FakeInput {
            seed: image,
            rows: 30,
            units: 1,
            fault: None,
        };
        [
            Part::Text(text.clone()),
            Part::Image(image),
            Part::Text(text),
        ]
    };
    let ask = |cached: &mut Cached, image: u64| {
        let (prompt, media) = prompt_of(&parts(image));
        let mut request = cached.request(&prompt, 0);
        request.media = media;
        let mut asked = [cached.bench.ask(request, 1)];
        let answer = cached.run(&mut asked).remove(0);
        cached.bench.engine.step(cached.bench.now);
        (answer, asked[0].progress.cached_tokens() as usize)
    };
    let folder = Folder::new("disk-cache");
    let mut cached = Cached::open(&folder);
    let (first, _) = ask(&mut cached, 1);
    assert!(ask(&mut cached, 1).1 > 2 * RUN, "in memory with the image");
    cached.wait_written(&folder, 1);
    cached.bench.steps(50);
    assert_eq!(runs(&folder).len(), 1, "the text before the image");
    drop(cached);
    // In another process the other image has the number that the first one had.
    let mut cached = Cached::open(&folder);
    let (other, tokens) = ask(&mut cached, 2);
    assert_eq!(tokens, RUN);
    drop(cached);
    let mut cached = Cached::open(&folder);
    assert_eq!(ask(&mut cached, 1), (first.clone(), RUN));
    assert_ne!(other, first);
}

#[test]
fn requests_with_one_prefix_wait_for_one_read() {
    let prompt = prompt(3, 3 * RUN + 50);
    let folder = written(&prompt);
    let mut cached = Cached::open(&folder);
    let requests: Vec<_> = (0..4).map(|_| cached.request(&prompt, 0)).collect();
    let bench = &cached.bench;
    let mut asked: Vec<_> = requests.into_iter().map(|r| bench.ask(r, 1)).collect();
    // Another prompt does not wait.
    let mut other = cached.bench.ask(cached.request(&[5, 6, 7], 0), 1);
    cached.bench.engine.step(cached.bench.now);
    assert!(
        other.answers[0].seen().0 > 0,
        "the other waits for the disk"
    );
    let answers = cached.run(&mut asked);
    assert!(answers.iter().all(|answer| *answer == fresh(&prompt)));
    for asked in &asked {
        assert_eq!(asked.progress.cached_tokens() as usize, 3 * RUN);
    }
    assert_eq!(
        cached.bench.handle.stats().disk_hit_tokens(),
        3 * RUN as u64
    );
}

#[test]
fn damaged_run_is_computed_and_removed() {
    let prompt = prompt(3, 3 * RUN + 50);
    for (damaged, expected) in [(0, 0), (1, RUN), (2, 2 * RUN)] {
        let folder = written(&prompt);
        let path = &runs(&folder)[damaged];
        let mut bytes = fs::read(path).unwrap();
        let at = bytes.len() - 100;
        bytes[at] ^= 4;
        fs::write(path, bytes).unwrap();
        let mut cached = Cached::open(&folder);
        let (answer, tokens) = cached.answer(&prompt);
        assert_eq!(
            (answer, tokens),
            (fresh(&prompt), expected),
            "run {damaged}"
        );
        assert_eq!(cached.bench.handle.stats().disk_damaged(), 1);
        assert_eq!(cached.warnings.lock().unwrap().len(), 1);
        assert_eq!(runs(&folder).len(), 2, "run {damaged} was left");
    }
}

#[test]
fn removed_file_is_computed() {
    let prompt = prompt(3, 2 * RUN + 50);
    let folder = written(&prompt);
    let mut cached = Cached::open(&folder);
    fs::remove_file(&runs(&folder)[0]).unwrap();
    let (answer, tokens) = cached.answer(&prompt);
    assert_eq!((answer, tokens), (fresh(&prompt), 0));
    assert_eq!(cached.bench.handle.stats().disk_damaged(), 0);
}

#[test]
fn bytes_stay_within_the_bound_and_the_oldest_go_first() {
    let folder = Folder::new("disk-cache");
    // A run of the fake model has 12 bytes a slot, and 4 a token up to its end.
    let bytes_max = (2 * (RUN * 16 + 1000)) as u64;
    let mut cached = Cached::with(&folder, "fake", bytes_max);
    for seed in [1, 2, 3] {
        let prompt = prompt(seed, RUN + 1);
        cached.answer(&prompt);
        let before = cached.bench.handle.stats().disk_bytes_written();
        cached.answer(&prompt);
        let (engine, now) = (&mut cached.bench.engine, cached.bench.now);
        wait_until("a written run", || {
            engine.step(now);
            engine.stats().disk_bytes_written() > before
        });
        assert!(cached.bench.handle.stats().disk_bytes() <= bytes_max);
    }
    drop(cached);
    assert_eq!(runs(&folder).len(), 2);
    let mut cached = Cached::with(&folder, "fake", bytes_max);
    assert_eq!(cached.answer(&prompt(3, RUN + 1)).1, RUN);
    assert_eq!(cached.answer(&prompt(1, RUN + 1)).1, 0);
}

#[test]
fn smaller_bound_removes_files_at_the_start() {
    let folder = written(&prompt(3, 3 * RUN + 1));
    runs(&folder).iter().for_each(|path| make_old(path));
    let bound = fs::metadata(&runs(&folder)[0]).unwrap().len();
    let mut cached = Cached::with(&folder, "fake", bound);
    assert_eq!(runs(&folder).len(), 1);
    assert_eq!(cached.answer(&prompt(3, 3 * RUN + 1)).1, RUN);
}

#[test]
fn cancelled_request_ends_its_read() {
    let prompt = prompt(3, 3 * RUN + 50);
    let folder = written(&prompt);
    let mut cached = Cached::open(&folder);
    let mut asked = cached.bench.ask(cached.request(&prompt, 0), 1);
    cached.bench.engine.step(cached.bench.now);
    asked.answers[0].reader = None;
    cached.bench.run();
    cached.bench.assert_empty();
    let (answer, _) = cached.answer(&prompt);
    assert_eq!(answer, fresh(&prompt));
}

#[test]
fn recurrent_model_and_second_engine_are_refused() {
    let config = |folder: &Folder| DiskCacheConfig {
        directory: folder.0.join("runs"),
        bytes_max: 1 << 30,
        identity: "fake".to_owned(),
        warn: Box::new(|_| {}),
    };
    let folder = Folder::new("disk-cache");
    let cached = Cached::open(&folder);
    let now = cached.bench.now;
    let mut second = Bench::new(fake(), EngineConfig::default());
    let error = second.engine.cache_on_disk(config(&folder)).unwrap_err();
    assert!(
        error.to_string().contains("another process uses"),
        "{error}"
    );
    let recurrent = Box::new(FakeModel::recurrent(fake(), 64));
    let mut engine = Engine::new(recurrent, EngineConfig::default(), now).unwrap();
    let error = engine.cache_on_disk(config(&folder)).unwrap_err();
    assert!(matches!(error, DiskCacheError::Unsupported(_)), "{error}");
    let config_off = EngineConfig {
        prefix_cache: false,
        ..EngineConfig::default()
    };
    let mut bench = Bench::new(fake(), config_off);
    let error = bench.engine.cache_on_disk(config(&folder)).unwrap_err();
    assert!(matches!(error, DiskCacheError::Unsupported(_)), "{error}");
}
