//! The images of stored answers: files of the journal, kept as long as an answer names them, and read where an item is shown.

use crate::media::{Elapsed, MediaHandles};
use crate::stored::ResponseRecord;
use generate::images::{digest_of_hex, file_digest};
use journal::{BlobReference, BlobStore};
use std::collections::HashMap;
use std::sync::Arc;
use wire::stored_request::StoredImage;

/// The bytes of images, by the text of their digests. Those that are missing or damaged are lost.
#[derive(Clone, Debug, Default)]
pub struct ImageFiles(HashMap<Box<str>, Arc<[u8]>>);

impl ImageFiles {
    /// The bytes of an image; `None`: they are lost.
    pub fn find(&self, image: &StoredImage) -> Option<&[u8]> {
        self.0.get(&image.sha256).map(|bytes| &**bytes)
    }

    /// Reads the images of these answers, on a media thread.
    pub(crate) async fn read(
        records: &[Arc<ResponseRecord>],
        store: Option<&BlobStore>,
        media: &MediaHandles,
    ) -> Self {
        let images = records.iter().flat_map(|record| record.note.images());
        let images: Vec<StoredImage> = images.cloned().collect();
        let Some(store) = store.filter(|_| !images.is_empty()).cloned() else {
            return Self::default();
        };
        let read = move |_: Elapsed<'_>| Ok(Self::read_all(&images, &store));
        let read = media.threads.run((0, u64::MAX), read).await;
        read.unwrap_or_default()
    }

    fn read_all(images: &[StoredImage], store: &BlobStore) -> Self {
        let mut files = HashMap::new();
        for image in images {
            if !files.contains_key(&image.sha256)
                && let Some(bytes) = read_image(image, store)
            {
                files.insert(image.sha256.clone(), bytes);
            }
        }
        Self(files)
    }
}

/// The bytes of one image, compared with its name.
fn read_image(image: &StoredImage, store: &BlobStore) -> Option<Arc<[u8]>> {
    let name = digest_of_hex(&image.sha256)?;
    let bytes = store.read(&store.reference(name)?).ok()?;
    (file_digest(&bytes) == name).then(|| bytes.into())
}

/// References to the files of these images that are there; their drop removes the files.
pub(crate) fn references<'a>(
    images: impl Iterator<Item = &'a StoredImage>,
    store: Option<&BlobStore>,
) -> Vec<BlobReference> {
    let reference = |image: &StoredImage| store?.reference(digest_of_hex(&image.sha256)?);
    images.filter_map(reference).collect()
}
