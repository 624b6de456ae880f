//! The vision proxy of a model that reads text only: which model describes images for it, and how; descriptions that were
//! made before.
//!
//! A model with a tower has no proxy, so a proxy's model never needs another: there is no cycle.

use super::vision_server::VisionServer;
use crate::locks::lock;
use engine::CacheSalt;
use generate::error::{ApiError, Problem};
use generate::images::{ImageBounds, ImagePart, detail_name};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Stands for the user's text in the prompt of the settings.
pub const QUESTION: &str = "{question}";
/// Bytes of a description; what is longer is cut off.
pub const DESCRIPTION_BYTES_MAX: usize = 32 << 10;

/// How images become text for a model that sees none.
#[derive(Clone, Debug)]
pub struct VisionProxy {
    /// Name of the model that describes.
    pub model: String,
    /// The server that has the model; `None`: this one.
    pub server: Option<VisionServer>,
    /// The text that goes with an image, where [`QUESTION`] stands for the user's text.
    pub prompt: String,
    /// Tokens of a description.
    pub max_tokens: usize,
    /// Temperature of descriptions.
    pub temperature: f32,
    /// Time for one description, from the request for the model on.
    pub timeout: Duration,
    /// Images of one request that are described at one time.
    pub concurrency: usize,
    /// Descriptions that are kept.
    pub cache_entries: usize,
    /// Outcome of a request whose image is not described.
    pub on_failure: OnFailure,
    /// Bounds of images.
    pub bounds: ImageBounds,
}

/// Outcome of a request whose image is not described.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The request ends with an error.
    #[default]
    Error,
    /// The prompt has a note in place of the description.
    Note,
}

impl VisionProxy {
    /// Whether the user's text decides about a description.
    pub(crate) fn asks(&self) -> bool {
        self.prompt.contains(QUESTION)
    }

    /// The text that goes with an image about which the user writes this.
    pub fn prompt_about(&self, question: &str) -> String {
        self.prompt.replace(QUESTION, question)
    }

    /// The text in place of an image with this description.
    pub fn described(&self, index: usize, description: &str) -> String {
        let (number, model) = (index + 1, &self.model);
        format!("[Image {number}, described by {model}: {description}]")
    }

    /// The text in place of an image without a description.
    pub fn note(&self, index: usize) -> String {
        let (number, model) = (index + 1, &self.model);
        format!("[Image {number} was not described: the vision model {model} failed]")
    }

    /// Expects that few of these images have to be described now: no more than the bounds allow are without a description.
    ///
    /// # Errors
    /// There are more; the first of these is named.
    pub fn expect_few<'a>(
        &self,
        images: impl Iterator<Item = (&'a ImagePart, DescriptionKey)>,
        cache: &DescriptionCache,
    ) -> Result<(), ApiError> {
        let max = self.bounds.images_max;
        let mut undescribed = images.filter(|(_, key)| cache.find(*key).is_none());
        let Some((first, _)) = undescribed.nth(max) else {
            return Ok(());
        };
        let number = max + 1;
        let why = format!(
            "is image {number} without a description: at most {max} are described for a request (vision.proxy.images_max)"
        );
        Err(ApiError::fields(vec![Problem::new(&first.path, why)]))
    }

    /// Names a description: equal keys mean the same image, seen by the same model with the same prompt, for callers that share
    /// cached prompts. `fingerprint` names the model's content.
    pub fn key_of(
        &self,
        fingerprint: &[u8; 32],
        (part, digest): (&ImagePart, &[u8; 32]),
        prompt: &str,
        salt: CacheSalt,
    ) -> DescriptionKey {
        let mut hasher = blake3::Hasher::new();
        hasher.update(fingerprint).update(digest);
        hasher.update(&salt.0.to_le_bytes());
        hasher.update(&self.max_tokens.to_le_bytes());
        hasher.update(&self.temperature.to_bits().to_le_bytes());
        hasher
            .update(detail_name(part.detail).as_bytes())
            .update(&[0]);
        hasher.update(prompt.as_bytes());
        DescriptionKey(*hasher.finalize().as_bytes())
    }
}

/// A description without the space around it, and no longer than [`DESCRIPTION_BYTES_MAX`]. `is_cut`: the model had more to
/// say.
pub fn bounded(text: &str, is_cut: bool) -> String {
    let text = text.trim();
    let end = text.floor_char_boundary(DESCRIPTION_BYTES_MAX);
    let mark = if is_cut || end < text.len() {
        "…"
    } else {
        ""
    };
    format!("{}{mark}", &text[..end])
}

/// Names a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DescriptionKey([u8; 32]);

/// Descriptions that were made before, the least recently used of which goes first. The bound comes with each new one, since
/// models have proxies of their own.
#[derive(Debug, Default)]
pub struct DescriptionCache(Mutex<CachedDescriptions>);

#[derive(Debug, Default)]
struct CachedDescriptions {
    texts: HashMap<DescriptionKey, (Arc<str>, u64)>,
    /// Counts uses.
    clock: u64,
}

impl DescriptionCache {
    /// The description with this key.
    pub fn find(&self, key: DescriptionKey) -> Option<Arc<str>> {
        let mut cached = lock(&self.0);
        cached.clock += 1;
        let now = cached.clock;
        let (text, used) = cached.texts.get_mut(&key)?;
        *used = now;
        Some(Arc::clone(text))
    }

    /// Keeps a description, with at most `entries_max` in all.
    pub fn keep(&self, key: DescriptionKey, text: Arc<str>, entries_max: usize) {
        let mut cached = lock(&self.0);
        cached.clock += 1;
        let now = cached.clock;
        cached.texts.insert(key, (text, now));
        while cached.texts.len() > entries_max {
            let oldest = cached.texts.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(key, _)| *key) else {
                return;
            };
            cached.texts.remove(&oldest);
        }
    }
}

/// Images of requests to models that read text only, by what became of them.
#[derive(Debug, Default)]
pub struct DescriptionStats {
    pub(crate) described: AtomicU64,
    pub(crate) cached: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// Counts at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DescriptionCounts {
    /// Images that a model described.
    pub described: u64,
    /// Images whose description was known.
    pub cached: u64,
    /// Images without a description.
    pub failed: u64,
}

impl DescriptionStats {
    /// The counts.
    pub fn counts(&self) -> DescriptionCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        DescriptionCounts {
            described: read(&self.described),
            cached: read(&self.cached),
            failed: read(&self.failed),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use generate::images::detail_of_name;

    pub(crate) fn proxy() -> VisionProxy {
        VisionProxy {
            model: "seer".to_owned(),
            server: None,
            prompt: "Describe. {question}".to_owned(),
            max_tokens: 9,
            temperature: 0.0,
            timeout: Duration::from_secs(1),
            concurrency: 1,
            cache_entries: 2,
            on_failure: OnFailure::Error,
            bounds: ImageBounds {
                images_max: 4,
                fetched_max: 16,
                limits: Default::default(),
            },
        }
    }

    fn part(detail: &str) -> ImagePart {
        ImagePart {
            bytes: vec![1].into(),
            detail: detail_of_name(detail).expect("a detail"),
            path: "image".to_owned(),
            url: None,
        }
    }

    #[test]
    fn key_has_all_that_decides_about_a_description() {
        let key = |proxy: &VisionProxy, fingerprint, digest, detail, prompt, salt| {
            proxy.key_of(
                &[fingerprint; 32],
                (&part(detail), &[digest; 32]),
                prompt,
                CacheSalt(salt),
            )
        };
        let (plain, longer) = (
            proxy(),
            VisionProxy {
                max_tokens: 10,
                ..proxy()
            },
        );
        let warmer = VisionProxy {
            temperature: 0.5,
            ..proxy()
        };
        let keys = [
            key(&plain, 1, 1, "auto", "p", 0),
            key(&plain, 2, 1, "auto", "p", 0),
            key(&plain, 1, 2, "auto", "p", 0),
            key(&plain, 1, 1, "low", "p", 0),
            key(&plain, 1, 1, "auto", "q", 0),
            key(&plain, 1, 1, "auto", "p", 1),
            key(&longer, 1, 1, "auto", "p", 0),
            key(&warmer, 1, 1, "auto", "p", 0),
        ];
        for (i, a) in keys.iter().enumerate() {
            assert!(keys[..i].iter().all(|b| a != b), "{i}");
        }
        assert_eq!(keys[0], key(&plain, 1, 1, "auto", "p", 0));
    }

    #[test]
    fn least_recently_used_description_goes_first() {
        let cache = DescriptionCache::default();
        let key = |n: u8| DescriptionKey([n; 32]);
        for n in 0..2 {
            cache.keep(key(n), n.to_string().into(), 2);
        }
        assert_eq!(cache.find(key(0)).as_deref(), Some("0"));
        cache.keep(key(2), "2".into(), 2);
        assert_eq!(cache.find(key(1)), None);
        assert_eq!(cache.find(key(0)).as_deref(), Some("0"));
        cache.keep(key(3), "3".into(), 0);
        assert_eq!(cache.find(key(3)), None, "nothing is kept");
    }

    #[test]
    fn images_with_a_description_do_not_count() {
        let (proxy, cache) = (proxy(), DescriptionCache::default());
        let part = part("auto");
        let images = |count: u8| (0..count).map(|n| (&part, DescriptionKey([n; 32])));
        assert!(proxy.expect_few(images(4), &cache).is_ok());
        let many = proxy.expect_few(images(5), &cache).expect_err("five");
        let why = "image: is image 5 without a description: at most 4 are described for a request (vision.proxy.images_max)";
        assert_eq!(many.message, why);
        cache.keep(DescriptionKey([0; 32]), "a cat".into(), 2);
        assert!(proxy.expect_few(images(5), &cache).is_ok());
        assert!(proxy.expect_few(images(6), &cache).is_err());
    }

    #[test]
    fn texts_of_a_proxy_name_the_image_and_the_model() {
        let proxy = proxy();
        assert!(proxy.asks());
        assert_eq!(proxy.prompt_about("Why?"), "Describe. Why?");
        assert_eq!(
            proxy.described(0, "a cat"),
            "[Image 1, described by seer: a cat]"
        );
        assert_eq!(
            proxy.note(1),
            "[Image 2 was not described: the vision model seer failed]"
        );
    }

    #[test]
    fn description_is_bounded_between_characters() {
        assert_eq!(bounded("  a cat\n", false), "a cat");
        assert_eq!(bounded("a cat and", true), "a cat and…");
        let long = "\u{20ac}".repeat(DESCRIPTION_BYTES_MAX);
        let cut = bounded(&long, false);
        assert_eq!(cut.chars().count(), DESCRIPTION_BYTES_MAX / 3 + 1);
        assert!(cut.ends_with('…'));
    }
}
