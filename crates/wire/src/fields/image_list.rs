//! Images that were found while the fields of a request were read.

use super::Fields;
use generate::images::ImagePart;

/// Images of one request that are decoded from base64: an error for more is due in any case.
const IMAGES_MAX: usize = 1024;

/// The images of a request, in the order in which they were read.
#[derive(Debug, Default)]
pub(super) struct ImageList {
    images: Vec<ImagePart>,
    /// Whether the model reads text only.
    is_text_only: bool,
    /// Whether images on other servers are fetched.
    are_fetched: bool,
}

impl Fields<'_> {
    /// The fields of a request to a model that reads text only: images are named, but not decoded, and those in results of
    /// tools are left out.
    #[must_use]
    pub fn for_text_only(mut self) -> Self {
        self.images.is_text_only = true;
        self
    }

    /// The fields of a request to a server that fetches images from other servers.
    #[must_use]
    pub fn fetching_images(mut self) -> Self {
        self.images.are_fetched = true;
        self
    }

    /// Whether images on other servers are fetched.
    pub(crate) fn fetches_images(&self) -> bool {
        self.images.are_fetched
    }

    /// Whether the model reads text only.
    pub(crate) fn is_text_only(&self) -> bool {
        self.images.is_text_only
    }

    /// Adds an image. Returns its number; `None`: there are too many, and the error is recorded.
    pub(crate) fn add_image(&mut self, image: ImagePart) -> Option<usize> {
        let number = self.images.images.len();
        if number == IMAGES_MAX {
            self.reject(
                image.path,
                format!("is image {}: at most {IMAGES_MAX} are read", number + 1),
            );
            return None;
        }
        self.images.images.push(image);
        Some(number)
    }

    /// Leaves out the images from this number on, under this name.
    pub(crate) fn leave_out_images(&mut self, first: usize, name: &str) {
        for image in self.images.images.split_off(first) {
            self.leave_out(&image.path, name.to_owned());
        }
    }

    /// The images, for the request.
    pub(crate) fn take_images(&mut self) -> Vec<ImagePart> {
        std::mem::take(&mut self.images.images)
    }

    /// Turns images into errors, where only text is read.
    pub(crate) fn reject_images(&mut self, constraint: &str) {
        for image in self.take_images() {
            self.reject(image.path, constraint);
        }
    }
}
