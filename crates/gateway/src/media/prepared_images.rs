//! Images that were decoded and resized before. A conversation sends its images again with each turn, and a photo of 12
//! megapixels takes up to 300 ms: longer than what else there is to do before the first token of a short question.

use crate::locks::lock;
use generate::images::PreparedImage;
use std::collections::HashMap;
use std::sync::Mutex;

/// Bytes of pictures that are kept for later requests; a request's own are in the budget of pixels.
pub const PREPARED_BYTES_MAX: u64 = 64 << 20;

/// Images that engines of other processes decode, or models of other servers describe, and of which only the keys are kept.
const EXAMINED_MAX: u64 = 4096;

/// Images by their keys, the least recently used of which goes first.
#[derive(Debug, Default)]
pub struct PreparedImages {
    prepared: Mutex<KeptImages<PreparedImage>>,
    /// Images that can be decoded.
    examined: Mutex<KeptImages<()>>,
}

#[derive(Debug)]
struct KeptImages<T> {
    images: HashMap<[u8; 32], KeptImage<T>>,
    bytes: u64,
    /// Counts uses.
    clock: u64,
    hits: u64,
}

#[derive(Debug)]
struct KeptImage<T> {
    image: T,
    bytes: u64,
    used: u64,
}

impl PreparedImages {
    /// Images that were found.
    pub fn hits(&self) -> u64 {
        lock(&self.prepared).hits + lock(&self.examined).hits
    }

    /// The image with this key.
    pub(crate) fn find(&self, key: &[u8; 32]) -> Option<PreparedImage> {
        lock(&self.prepared).find(key)
    }

    /// Keeps an image, whose pictures have so many bytes; one that is larger than the bound is not kept.
    pub(crate) fn keep(&self, image: &PreparedImage, bytes: u64) {
        lock(&self.prepared).keep(*image.key(), image.clone(), bytes);
    }

    /// Whether the image with this key was decoded for a look at it.
    pub(crate) fn was_examined(&self, key: &[u8; 32]) -> bool {
        lock(&self.examined).find(key).is_some()
    }

    /// Keeps the key of an image that can be decoded.
    pub(crate) fn keep_examined(&self, key: [u8; 32]) {
        let share = PREPARED_BYTES_MAX / EXAMINED_MAX;
        lock(&self.examined).keep(key, (), share);
    }
}

impl<T> Default for KeptImages<T> {
    fn default() -> Self {
        Self {
            images: HashMap::new(),
            bytes: 0,
            clock: 0,
            hits: 0,
        }
    }
}

impl<T: Clone> KeptImages<T> {
    fn find(&mut self, key: &[u8; 32]) -> Option<T> {
        self.clock += 1;
        let found = self.images.get_mut(key)?;
        (found.used, self.hits) = (self.clock, self.hits + 1);
        Some(found.image.clone())
    }

    fn keep(&mut self, key: [u8; 32], image: T, bytes: u64) {
        if bytes > PREPARED_BYTES_MAX {
            return;
        }
        self.clock += 1;
        let used = self.clock;
        let new = KeptImage { image, bytes, used };
        let replaced = self.images.insert(key, new);
        self.bytes += bytes;
        self.bytes -= replaced.map_or(0, |image| image.bytes);
        while self.bytes > PREPARED_BYTES_MAX {
            let oldest = self.images.iter().min_by_key(|(_, image)| image.used);
            let Some(oldest) = oldest.map(|(key, _)| *key) else {
                return;
            };
            let dropped = self.images.remove(&oldest);
            self.bytes -= dropped.map_or(0, |image| image.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_image_goes_first() {
        let mut kept = KeptImages::default();
        let half = PREPARED_BYTES_MAX / 2;
        for number in 0..2 {
            kept.keep([number; 32], number, half);
        }
        kept.keep([0; 32], 0, half);
        assert_eq!(kept.find(&[1; 32]), Some(1), "replaced, not added");
        assert_eq!(kept.find(&[0; 32]), Some(0));
        kept.keep([2; 32], 2, 1);
        let there = |kept: &KeptImages<u8>| {
            let has = |number| kept.images.contains_key(&[number; 32]);
            (0..5).filter(|&number| has(number)).collect::<Vec<_>>()
        };
        assert_eq!(there(&kept), [0, 2]);
        kept.keep([3; 32], 3, PREPARED_BYTES_MAX + 1);
        assert_eq!(there(&kept), [0, 2], "too large for all of it");
        kept.keep([4; 32], 4, PREPARED_BYTES_MAX);
        assert_eq!((there(&kept), kept.bytes), (vec![4], PREPARED_BYTES_MAX));
    }
}
