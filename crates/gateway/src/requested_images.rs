//! Images of a request, from its opening to the engine: their headers are checked before admission, and the images that are
//! still in the prompt are decoded once the request has its permit. An engine of another process gets the files, and decodes
//! them there. Where the model sees none, another model describes them (`described_images`).

use crate::handles::{Gateway, GenerationHandles};
use crate::media::{
    ByteReservation, Elapsed, ImageShare, PreparedImages, VisionProxy, base64_bytes, full,
};
use crate::models::{ListedModel, ModelLease, ModelRegistry, ModelState, ServedModel};
use crate::remote_images::expect_no_remote;
use cluster::executor::{DecodeImages, GivenImages};
use futures_util::FutureExt;
use futures_util::future::try_join_all;
use generate::error::{ApiError, Problem};
use generate::images::{
    ExaminedImage, ImagePart, ImageRecord, MeasuredImage, MeasuredImages, PreparedImage, Vision,
    examine, expect_few, measure, prepare_unless, put_descriptions,
};
use generate::prompt::{PreparedPrompt, drop_image_turns};
use generate::prompt_limit::Truncation;
use generate::request::{GenerateRequest, Prompt};
use journal::{BlobError, BlobReference, BlobStore};
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::stored_request::{StoredKind, StoredRequest, take_images};

/// Names of models in an error.
const NAMES_MAX: usize = 8;

/// The images of a request, whose headers were read.
pub struct RequestedImages {
    images: ReadImages,
    /// The bytes of the files.
    files: ByteReservation,
    /// The files in the journal; `None`: they are not there.
    blobs: Option<Vec<BlobReference>>,
}

/// How the model gets the images.
enum ReadImages {
    /// As rows of its own tower.
    Sized(SizedImages),
    /// As descriptions by another model.
    ToDescribe(Vec<ImagePart>, Arc<VisionProxy>),
}

impl ReadImages {
    /// Reads the headers of images for this model; `None`: there are no images.
    ///
    /// # Errors
    /// The model takes no images, or an image breaks a bound.
    fn read(parts: Vec<ImagePart>, model: &ServedModel) -> Result<Option<Self>, ImageRefusal> {
        let Some(first) = parts.first() else {
            return Ok(None);
        };
        if let Some(vision) = model.vision() {
            let images = SizedImages::measure(parts, Arc::clone(vision))?;
            return Ok(Some(Self::Sized(images)));
        }
        let Some(proxy) = &model.vision_proxy else {
            return Err(blind(model, first));
        };
        proxy.bounds.check(&parts)?;
        Ok(Some(Self::ToDescribe(parts, Arc::clone(proxy))))
    }

    fn parts(&self) -> &[ImagePart] {
        match self {
            Self::Sized(images) => &images.parts,
            Self::ToDescribe(parts, _) => parts,
        }
    }

    /// Tokens of the prompt that the images take; those of descriptions at most.
    fn tokens(&self) -> usize {
        match self {
            Self::Sized(images) => images.measured.rows(),
            Self::ToDescribe(parts, proxy) => parts.len().saturating_mul(proxy.max_tokens),
        }
    }
}

impl RequestedImages {
    /// Checks the images of a request, as far as their headers show; `None`: the request has none. `fetched`: the share of
    /// those that were fetched.
    ///
    /// # Errors
    /// The model takes no images, an image breaks a bound, or there is no room for the files.
    pub(crate) fn open(
        parts: Vec<ImagePart>,
        fetched: Option<ByteReservation>,
        (lease, gateway): (&ModelLease, &Gateway),
    ) -> Result<Option<Self>, ImageRefusal> {
        let images = ReadImages::read(parts, &lease.serving.model)?;
        let handles = &gateway.generations;
        let files = fetched.unwrap_or_else(|| handles.images.media.pixels.reserve_none());
        let images = images.map(|images| Self::with_files(images, files, handles));
        Ok(images.transpose()?)
    }

    fn with_files(
        images: ReadImages,
        mut files: ByteReservation,
        handles: &GenerationHandles,
    ) -> Result<Self, ApiError> {
        set_bytes(&mut files, bytes_of(images.parts()), handles)?;
        Ok(Self {
            images,
            files,
            blobs: None,
        })
    }

    /// The images of a recovered stream, from the journal's blobs. Read on a media thread.
    ///
    /// # Errors
    /// `stream_lost`: bytes are missing or damaged, or the model takes no images any more.
    pub(crate) async fn recover(
        records: &[ImageRecord],
        blobs: &[BlobReference],
        (model, handles): (&ServedModel, &GenerationHandles),
    ) -> Result<Self, ApiError> {
        let journal = handles.journal.get().and_then(|journal| journal.blobs());
        let store = journal.filter(|_| model.takes_images());
        let store = store.ok_or_else(images_lost)?;
        let (store, records, blobs) = (store.clone(), records.to_vec(), blobs.to_vec());
        let read =
            move |_: Elapsed<'_>| read_blobs(&store, &records, &blobs).ok_or_else(images_lost);
        let parts = handles
            .images
            .media
            .threads
            .run((0, u64::MAX), read)
            .await?;
        let images = match ReadImages::read(parts, model) {
            Ok(images) => images,
            Err(refusal) => return Err(refusal.into_error(&handles.images.models).await),
        };
        let files = handles.images.media.pixels.reserve_none();
        Self::with_files(images.ok_or_else(images_lost)?, files, handles)
    }

    /// The images as a description has them.
    pub(crate) fn to_records(&self) -> Vec<ImageRecord> {
        self.images
            .parts()
            .iter()
            .map(ImagePart::to_record)
            .collect()
    }

    /// Writes the files into the journal, on a media thread. An error is logged.
    pub(crate) async fn write_blobs(&mut self, handles: &GenerationHandles) {
        let journal = handles.journal.get().and_then(|journal| journal.blobs());
        let Some(store) = journal.cloned() else {
            return;
        };
        let parts = self.images.parts().to_vec();
        let write = move |_: Elapsed<'_>| {
            let put = |part: &ImagePart| store.put(part.digest(), &part.bytes);
            Ok(parts.iter().map(put).collect::<Result<Vec<_>, BlobError>>())
        };
        match handles.images.media.threads.run((0, u64::MAX), write).await {
            Ok(Ok(blobs)) => self.blobs = Some(blobs),
            Ok(Err(why)) => tracing::warn!("a stream with images is not durable: {why}"),
            Err(why) => tracing::warn!("a stream with images is not durable: {}", why.message),
        }
    }

    /// Gives the items of a request that is to be stored the images that were fetched, and takes the images out of them, if the files
    /// are in the journal. On a media thread. A stored chat completion, which nothing continues, keeps addresses only.
    ///
    /// # Errors
    /// The media threads have no room: without its image, a response could not be continued.
    pub(crate) async fn take_out_of(
        &self,
        stored: &mut StoredRequest,
        handles: &GenerationHandles,
    ) -> Result<(), ApiError> {
        let mut parts = self.images.parts().to_vec();
        parts.retain(|part| part.url.is_none() || stored.kind == StoredKind::Response);
        let in_files = self.blobs.is_some();
        if !in_files && parts.iter().all(|part| part.url.is_none()) {
            return Ok(());
        }
        let mut items = stored.items.clone();
        let take = move |_: Elapsed<'_>| {
            let images = take_images(&mut items, &parts, in_files);
            Ok((items, images))
        };
        let taken = handles.images.media.threads.run((0, u64::MAX), take);
        (stored.items, stored.images) = taken.await?;
        Ok(())
    }

    /// The files in the journal, which are removed with the last reference; `None`: they are not there.
    pub(crate) fn blobs(&self) -> Option<&[BlobReference]> {
        self.blobs.as_deref()
    }

    /// Their sizes; `None`: another model describes them.
    pub(crate) fn measured(&self) -> Option<&MeasuredImages> {
        match &self.images {
            ReadImages::Sized(images) => Some(&images.measured),
            ReadImages::ToDescribe(..) => None,
        }
    }

    /// The images that another model describes, and how; `None`: the model sees them itself.
    pub(crate) fn to_describe(&self) -> Option<(&[ImagePart], &Arc<VisionProxy>)> {
        match &self.images {
            ReadImages::Sized(_) => None,
            ReadImages::ToDescribe(parts, proxy) => Some((parts, proxy)),
        }
    }

    /// Tokens of the prompt that they take; those of descriptions at most.
    pub(crate) fn tokens(&self) -> usize {
        self.images.tokens()
    }

    /// Bytes of their text in the body.
    pub(crate) fn base64_bytes(&self) -> usize {
        base64_bytes(self.images.parts())
    }

    /// As [`SizedImages::attach`].
    ///
    /// # Errors
    /// An image is broken, or there is no room for the pixels.
    pub(crate) async fn attach(
        self,
        prompts: &mut [PreparedPrompt],
        place: (&ServedModel, &GenerationHandles),
    ) -> Result<ImageShare, ApiError> {
        match &self.images {
            ReadImages::Sized(images) => images.attach(prompts, Arc::new(self.files), place).await,
            // The recorded prompts have rows of a tower that is gone.
            ReadImages::ToDescribe(..) => Err(images_lost()),
        }
    }
}

/// Images of known sizes, for a model with a tower.
pub(crate) struct SizedImages {
    parts: Vec<ImagePart>,
    measured: MeasuredImages,
    vision: Arc<Vision>,
}

impl SizedImages {
    /// Reads the headers of images.
    ///
    /// # Errors
    /// An image breaks a bound.
    pub(crate) fn measure(parts: Vec<ImagePart>, vision: Arc<Vision>) -> Result<Self, ApiError> {
        let measured = measure(&vision, &parts)?;
        Ok(Self {
            parts,
            measured,
            vision,
        })
    }

    /// Their sizes.
    pub(crate) fn measured(&self) -> &MeasuredImages {
        &self.measured
    }

    /// Gives the prompts their images: decoded for the engine of this process, or as files for engines of other processes, after a
    /// look whether they can be decoded. `files` is the share of the files. Dropping the future ends the work. Returns the
    /// share of the bytes, to be kept as long as the engine has the request.
    ///
    /// # Errors
    /// An image is broken, or there is no room for the pixels.
    pub(crate) async fn attach(
        &self,
        prompts: &mut [PreparedPrompt],
        files: ImageShare,
        (model, handles): (&ServedModel, &GenerationHandles),
    ) -> Result<ImageShare, ApiError> {
        let wanted: BTreeSet<usize> = prompts.iter().flat_map(PreparedPrompt::images).collect();
        if model.handle.engine.is_remote() {
            let images = self.on_threads(&wanted, handles, examine_image).await?;
            for prompt in prompts {
                prompt.attach_files(&images, &files)?;
            }
            return Ok(files);
        }
        let (images, pixels) = self.decode(&wanted, handles).await?;
        for prompt in prompts {
            prompt.attach(&images)?;
        }
        Ok(Arc::new(pixels))
    }

    /// Decodes images, by number. Returns them with the share of their pixels.
    async fn decode(
        &self,
        wanted: &BTreeSet<usize>,
        handles: &GenerationHandles,
    ) -> Result<(Vec<Option<PreparedImage>>, ByteReservation), ApiError> {
        let sizes = wanted
            .iter()
            .filter_map(|&number| self.measured.image(number));
        let pixels = reserve(handles, sizes.map(MeasuredImage::view_bytes).sum())?;
        let images = self.on_threads(wanted, handles, prepare_image).await?;
        Ok((images, pixels))
    }

    /// Applies `work` to these images on media threads. Returns the results by number.
    async fn on_threads<T: Send + 'static>(
        &self,
        wanted: &BTreeSet<usize>,
        handles: &GenerationHandles,
        work: ImageWork<T>,
    ) -> Result<Vec<Option<T>>, ApiError> {
        let jobs = wanted.iter().filter_map(|&number| {
            let part = self.parts.get(number)?.clone();
            let measured = self.measured.image(number)?.clone();
            let vision = Arc::clone(&self.vision);
            let room = (
                measured.decode_bytes(),
                handles.limits.now().decode_bytes_max,
            );
            let kept = Arc::clone(&handles.images.media.prepared);
            let work =
                move |elapsed: Elapsed<'_>| work(&kept, (&vision, &part, &measured), elapsed);
            Some(async move {
                let done = handles.images.media.threads.run(room, work).await?;
                Ok::<_, ApiError>((number, done))
            })
        });
        let done = try_join_all(jobs).await?;
        let mut images = Vec::new();
        images.resize_with(self.parts.len(), || None);
        for (number, image) in done {
            images[number] = Some(image);
        }
        Ok(images)
    }
}

/// An image, and what it is for.
type OneImage<'a> = (&'a Vision, &'a ImagePart, &'a MeasuredImage);

/// Work on one image, on a media thread.
type ImageWork<T> = fn(&PreparedImages, OneImage<'_>, Elapsed<'_>) -> Result<T, ApiError>;

/// Decodes and resizes an image, unless that was done before.
fn prepare_image(
    kept: &PreparedImages,
    image: OneImage<'_>,
    elapsed: Elapsed<'_>,
) -> Result<PreparedImage, ApiError> {
    let prepared = prepare_unless(|key| kept.find(key), image, elapsed)?;
    kept.keep(&prepared, image.2.view_bytes());
    Ok(prepared)
}

/// Decodes an image for a look at it, unless that was done before.
fn examine_image(
    kept: &PreparedImages,
    image: OneImage<'_>,
    elapsed: Elapsed<'_>,
) -> Result<ExaminedImage, ApiError> {
    let examined = examine(|key| kept.was_examined(key), image, elapsed)?;
    kept.keep_examined(*examined.key());
    Ok(examined)
}

/// Decodes images of requests of other gateways, which engines of this process compute: on the threads, and within the bounds of
/// the images of this process's own requests.
pub fn decode_for_gateways(handles: &GenerationHandles) -> DecodeImages {
    let handles = handles.clone();
    Arc::new(move |vision, parts| {
        let handles = handles.clone();
        async move {
            let wanted = (0..parts.len()).collect();
            let images = SizedImages::measure(parts, vision)?;
            let _files = reserve(&handles, bytes_of(&images.parts))?;
            let (images, pixels) = images.decode(&wanted, &handles).await?;
            Ok(GivenImages {
                images,
                share: Some(Box::new(pixels)),
            })
        }
        .boxed()
    })
}

/// Drops the oldest turns of a conversation that has more images than the model takes, where the request lets turns be dropped.
pub fn drop_surplus_images(request: &mut GenerateRequest, model: &ServedModel) {
    if let (Truncation::Turns, Some(vision)) = (request.params.truncation, model.vision()) {
        drop_image_turns(&mut request.prompts, &mut request.images, vision.images_max);
    }
}

/// Expects that images may be fetched for this model, and that they are no more than are taken.
///
/// # Errors
/// The model takes no images, or there are too many.
pub(crate) fn expect_fetchable(
    parts: &[ImagePart],
    model: &ServedModel,
) -> Result<(), ImageRefusal> {
    let mut remote = parts.iter().filter(|part| part.url.is_some());
    match (model.vision(), &model.vision_proxy) {
        (Some(vision), _) => Ok(expect_few(parts.iter(), vision.images_max)?),
        (None, Some(proxy)) => Ok(expect_few(remote, proxy.bounds.fetched_max)?),
        (None, None) => remote
            .next()
            .map_or(Ok(()), |first| Err(blind(model, first))),
    }
}

fn bytes_of(parts: &[ImagePart]) -> u64 {
    parts.iter().map(|part| part.bytes.len() as u64).sum()
}

/// Images of a prompt of which only the tokens are counted.
pub struct CountedImages {
    /// Sizes of images that the model sees itself.
    pub measured: MeasuredImages,
    /// Tokens that descriptions of the others take, at most.
    pub described_tokens: usize,
}

/// Counts of images in prompts for this model. Where another model describes them, they leave the prompts: a
/// description is made for an answer only.
///
/// # Errors
/// The model takes no images, or an image breaks a bound, or is on another server.
pub fn count_images(
    parts: Vec<ImagePart>,
    prompts: &mut [Prompt],
    model: &ServedModel,
) -> Result<CountedImages, ImageRefusal> {
    if model.takes_images() {
        let why = "is a URL, and images of other servers are not fetched to count tokens: send a data URL";
        expect_no_remote(&parts, why)?;
    }
    let images = ReadImages::read(parts, model)?;
    let described_tokens = match &images {
        None | Some(ReadImages::Sized(_)) => 0,
        Some(read @ ReadImages::ToDescribe(parts, proxy)) => {
            let texts = (0..parts.len()).map(|index| proxy.described(index, ""));
            put_descriptions(prompts, &texts.collect::<Vec<_>>());
            read.tokens()
        }
    };
    let measured = match images {
        Some(ReadImages::Sized(images)) => images.measured,
        None | Some(ReadImages::ToDescribe(..)) => MeasuredImages::default(),
    };
    Ok(CountedImages {
        measured,
        described_tokens,
    })
}

/// The error of a recovered stream without its images.
fn images_lost() -> ApiError {
    let message = "the images of the stream are missing from the journal, or damaged";
    ApiError::ours("stream_lost", message)
}

/// The images of these records; `None`: a file is missing or damaged.
fn read_blobs(
    store: &BlobStore,
    records: &[ImageRecord],
    blobs: &[BlobReference],
) -> Option<Vec<ImagePart>> {
    let read = |record: &ImageRecord| {
        let digest = record.digest()?;
        let blob = blobs.iter().find(|blob| *blob.name() == digest)?;
        ImagePart::of_record(record, store.read(blob).ok()?.into()).ok()
    };
    records.iter().map(read).collect()
}

/// A share of the bytes of all images.
///
/// # Errors
/// The request alone needs more than there is, or others have it.
fn reserve(handles: &GenerationHandles, bytes: u64) -> Result<ByteReservation, ApiError> {
    let mut share = handles.images.media.pixels.reserve_none();
    set_bytes(&mut share, bytes, handles)?;
    Ok(share)
}

/// Gives a request's share of the bytes of all images this size.
///
/// # Errors
/// As for [`reserve`].
pub(crate) fn set_bytes(
    share: &mut ByteReservation,
    bytes: u64,
    handles: &GenerationHandles,
) -> Result<(), ApiError> {
    let max = handles.limits.now().pixels_bytes_max;
    if bytes > max {
        let message = format!(
            "the images take {} MiB of memory, at most {} MiB (vision.pixels_mib): send fewer or smaller ones",
            bytes.div_ceil(1 << 20),
            max >> 20
        );
        return Err(ApiError::bad_request("images_too_large", message));
    }
    if share.resize(bytes, max) {
        return Ok(());
    }
    let why = "the memory for images of all requests is full (vision.pixels_mib)";
    Err(full(why))
}

/// Why images are refused.
pub enum ImageRefusal {
    /// The model sees none. An image is never dropped without a word.
    Blind(Problem),
    /// An image breaks a bound, or there is another error in the request.
    Other(ApiError),
}

impl From<ApiError> for ImageRefusal {
    fn from(error: ApiError) -> Self {
        Self::Other(error)
    }
}

impl ImageRefusal {
    /// The error for the client, which names models that take images, loaded or not.
    pub async fn into_error(self, models: &ModelRegistry) -> ApiError {
        match self {
            Self::Blind(problem) => blind_error(problem, models.list_models().await),
            Self::Other(error) => error,
        }
    }

    /// As [`Self::into_error`]. May block: for where nothing can be waited for.
    pub(crate) fn into_error_blocking(self, models: &ModelRegistry) -> ApiError {
        match self {
            Self::Blind(problem) => blind_error(problem, models.list_blocking()),
            Self::Other(error) => error,
        }
    }
}

/// The refusal of images by a model that sees none.
fn blind(model: &ServedModel, first: &ImagePart) -> ImageRefusal {
    if model.handle.engine.is_remote() && model.engine_sight.is_none() {
        let why = "upstream servers are sent no images";
        return image_error(Problem::new(&first.path, why)).into();
    }
    // The files here have a tower that no engine has.
    let engines = match model.handle.vision {
        Some(_) => " at the engines of this cluster, none of which has the tower of this gateway",
        None => "",
    };
    let why = format!("model {} reads text only{engines}", model.id);
    ImageRefusal::Blind(Problem::new(&first.path, why))
}

/// The problem, with the names of models that take images, those that are loaded first.
fn blind_error(mut problem: Problem, mut listed: Vec<ListedModel>) -> ApiError {
    listed.retain(ListedModel::takes_images);
    listed.sort_by_key(|model| !matches!(model.state, ModelState::Ready(_)));
    let names = listed.into_iter().map(|model| model.name);
    let names: Vec<String> = names.take(NAMES_MAX).collect();
    problem.constraint += &match names.as_slice() {
        [] => "; no model here sees images (docs/images.md)".to_owned(),
        names => format!("; models with vision here: {}", names.join(", ")),
    };
    image_error(problem)
}

fn image_error(problem: Problem) -> ApiError {
    ApiError {
        code: "unsupported_value",
        ..ApiError::fields(vec![problem])
    }
}
