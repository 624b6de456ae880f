//! Images of a gateway's request: their files, as the gateway has sent them, and the decoded images for the engine.
//!
//! A file is compared with its digest each time that a request uses it. One that is missing or another one is a rejection, so that
//! the gateway sends it again; a request never runs without its images.

use super::received_files::ReceivedFiles;
use super::submission::{rejected, rejection_of};
use crate::messages::{Rejection, RunReply};
use futures_util::future::BoxFuture;
use generate::error::ApiError;
use generate::images::{ImagePart, ImageRecord, PreparedImage, Vision};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Time for the images of one request to be decoded, with the wait for a thread.
const DECODE_MAX: Duration = Duration::from_secs(40);

/// A share of the memory for images; the drop returns it.
pub type ImageShare = Box<dyn Send + Sync>;

/// Decoded images of a request, by number.
#[derive(Default)]
pub struct GivenImages {
    /// The images.
    pub images: Vec<Option<PreparedImage>>,
    /// Their share of memory, kept until the request has ended.
    pub share: Option<ImageShare>,
}

/// Decodes images within the bounds of this process.
///
/// # Errors
/// An image is broken or breaks a bound, or there is no room now.
pub type DecodeImages = Arc<
    dyn Fn(Arc<Vision>, Vec<ImagePart>) -> BoxFuture<'static, Result<GivenImages, ApiError>>
        + Send
        + Sync,
>;

/// The files that gateways have sent, and how they are decoded; `None`: this process decodes no images.
#[derive(Clone)]
pub(super) struct ImageDesk {
    pub(super) files: Arc<Mutex<ReceivedFiles>>,
    pub(super) decode: Option<DecodeImages>,
}

impl ImageDesk {
    /// The decoded images of these records.
    ///
    /// # Errors
    /// The answer to the gateway if the request cannot be run here now.
    pub(super) async fn prepare(
        &self,
        records: Vec<ImageRecord>,
        vision: Option<Arc<Vision>>,
        now: Instant,
    ) -> Result<GivenImages, RunReply> {
        let Some((vision, decode)) = vision.zip(self.decode.as_ref()) else {
            let message = "images: this engine has no tower";
            return Err(rejected(Rejection::OtherContent, message));
        };
        let files = Arc::clone(&self.files);
        let read = move || read_files(&files, &records, now);
        let parts = tokio::task::spawn_blocking(read).await;
        let parts = parts.unwrap_or_else(|_| Err(missing("the files cannot be read")))?;
        match timeout(DECODE_MAX, decode(vision, parts)).await {
            Ok(decoded) => decoded.map_err(|why| rejection_of(&why)),
            Err(_) => Err(missing("the images are not decoded in time")),
        }
    }
}

/// The files of these records. Takes time with their bytes.
fn read_files(
    files: &Mutex<ReceivedFiles>,
    records: &[ImageRecord],
    now: Instant,
) -> Result<Vec<ImagePart>, RunReply> {
    let lock = || files.lock().unwrap_or_else(PoisonError::into_inner);
    let read = |record: &ImageRecord| {
        let digest = record.digest();
        let digest = digest.ok_or_else(|| {
            let message = format!("{}: has no digest", record.path);
            rejected(Rejection::Invalid, message)
        })?;
        let file = lock().get(&digest, now);
        let file = file.ok_or_else(|| missing(&format!("{}: did not arrive", record.path)))?;
        ImagePart::of_record(record, file).map_err(|why| {
            lock().remove(&digest);
            missing(&why.to_string())
        })
    };
    records.iter().map(read).collect()
}

/// The answer where another attempt may succeed.
fn missing(why: &str) -> RunReply {
    tracing::warn!("images of a gateway's request: {why}");
    rejected(Rejection::Full, format!("images: {why}"))
}
