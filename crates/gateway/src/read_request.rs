//! A request whose fields were parsed: its images may still be on other servers, and nothing was counted or taken.

use crate::handles::Gateway;
use crate::job_names::NameClaim;
use crate::keys::{Caller, KeyPermit};
use crate::media::ByteReservation;
use crate::models::ModelLease;
use crate::open::{ParsedRequest, Resumable, StreamRequest};
use crate::remote_images::RemoteImages;
use crate::requested_images::{
    ImageRefusal, RequestedImages, drop_surplus_images, expect_fetchable,
};
use crate::stored::HistoryImages;
use crate::webhooks::WebhookPlace;
use generate::error::ApiError;
use generate::images::ImagePart;
use generate::request::StreamOptions;
use wire::derived_model::RequestedModel;
use wire::fields::Fields;
use wire::protocol::Protocol;
use wire::request_body::RequestBody;
use wire::request_parser::ParsedBody;
use wire::shared::job_outcome::JobId;
use wire::stored_request::History;

/// A request whose fields were parsed, and whose images may still be on other servers.
pub(crate) struct ReadRequest {
    request: StreamRequest,
    lease: ModelLease,
    body: ParsedBody,
    /// The right of the key to open the stream, taken before images were fetched.
    key: Option<KeyPermit>,
    /// The share of the fetched images.
    fetched: Option<ByteReservation>,
}

impl ReadRequest {
    /// Parses the fields of the body. Without a lease, the model must be ready. `images`: those of the stored answers that the
    /// request continues.
    ///
    /// # Errors
    /// All invalid fields at once.
    pub(crate) fn new(
        request: StreamRequest,
        gateway: &Gateway,
        lease: Option<ModelLease>,
        images: &HistoryImages,
    ) -> Result<Self, ApiError> {
        let mut fields = request.body.fields();
        let model = fields.string("model");
        let lease = match lease {
            Some(lease) => lease,
            None => gateway.models.hold_now(model.as_deref())?,
        };
        let mut body = parse_body(
            request.protocol,
            fields,
            &lease,
            gateway,
            (&request.caller, images),
        )?;
        if let Some(long_body) = &request.long_body {
            long_body.expect_images(&body.request.images)?;
        }
        drop_surplus_images(&mut body.request, &lease.serving.model);
        Ok(Self {
            request,
            lease,
            body,
            key: None,
            fetched: None,
        })
    }

    /// The images, which may be on other servers.
    pub(crate) fn images(&self) -> &[ImagePart] {
        &self.body.request.images
    }

    /// Fetches the images that are on other servers. Before that, their number is checked, and the request counts as an open
    /// stream of its key: a client could else have any number of them fetched at one time.
    ///
    /// # Errors
    /// There are too many images, a limit of the key is exceeded, or as for [`RemoteImages::fetch_all`].
    pub(crate) async fn fetch_images(
        &mut self,
        remote: &RemoteImages,
        gateway: &Gateway,
    ) -> Result<(), ImageRefusal> {
        let choices = self.body.request.choices();
        let images = &mut self.body.request.images;
        if images.iter().all(|image| image.url.is_none()) {
            return Ok(());
        }
        expect_fetchable(images, &self.lease.serving.model)?;
        let permit = self.request.caller.open_streams_permit(choices);
        self.key = Some(permit.map_err(ApiError::from)?);
        let fetched = remote.fetch_all(images, &gateway.generations).await?;
        self.fetched = Some(fetched);
        Ok(())
    }

    /// Checks the images, and takes the name of a job and the place of a webhook's event.
    ///
    /// # Errors
    /// The model takes no images, an image breaks a bound, or a name or a place is taken.
    pub(crate) fn parsed(
        self,
        gateway: &Gateway,
    ) -> Result<(ParsedRequest, Option<NameClaim<'_>>), ImageRefusal> {
        let Self {
            mut request,
            lease,
            body,
            key,
            fetched,
        } = self;
        let ParsedBody {
            request: mut ask,
            job_id,
            stored_request,
        } = body;
        let model_bytes = lease.made.as_ref().map(|derived| derived.text_bytes());
        let images = std::mem::take(&mut ask.images);
        let images = RequestedImages::open(images, fetched, (&lease, gateway))?;
        let options = &mut ask.stream_options;
        options.stream |= request.streamed;
        let claim = job_id
            .clone()
            .map(|id| claim_job_name(gateway, &request.caller, id))
            .transpose()?;
        let is_resumable = request.delivery.is_resumable(options);
        request.delivery.resumable = Some(Resumable::from_choice(is_resumable));
        let webhook_place = take_webhook_place(gateway, &request.caller, options, is_resumable)?;
        let parsed = ParsedRequest {
            body_bytes: text_bytes(&request.body, images.as_ref()) + model_bytes.unwrap_or(0),
            images,
            request,
            lease,
            ask,
            response_id: job_id.map(|id| id.as_str().to_owned()),
            program: None,
            stored_request,
            webhook_place,
            key,
        };
        Ok((parsed, claim))
    }
}

/// Bytes of a body without its images.
fn text_bytes(body: &RequestBody, images: Option<&RequestedImages>) -> usize {
    let image_bytes = images.map_or(0, RequestedImages::base64_bytes);
    body.text().len().saturating_sub(image_bytes)
}

/// Checks the webhook of a request, and takes the place of its event.
fn take_webhook_place(
    gateway: &Gateway,
    caller: &Caller,
    options: &mut StreamOptions,
    resumable: bool,
) -> Result<Option<WebhookPlace>, ApiError> {
    let Some(url) = options.webhook.take() else {
        return Ok(None);
    };
    if !resumable {
        let why = "webhook: needs a stream that continues without its client: set background, submit the \
                   job at /v1/jobs, or send X-Stream-Resumable: 1";
        return Err(ApiError::field("webhook", "invalid_webhook", why));
    }
    let (url, place) = gateway.outbox.accept(&url, caller)?;
    options.webhook = Some(url);
    Ok(Some(place))
}

fn parse_body(
    protocol: Protocol,
    fields: Fields<'_>,
    lease: &ModelLease,
    gateway: &Gateway,
    (caller, images): (&Caller, &HistoryImages),
) -> Result<ParsedBody, ApiError> {
    let served = &lease.serving.model;
    let model = RequestedModel {
        takes_images: served.takes_images(),
        fetches_images: gateway.generations.images.remote.get().is_some(),
        id: &served.id,
        derived: lease.made.as_deref(),
        sampling: gateway
            .generations
            .limits
            .now()
            .sampling_defaults(lease.recommended_sampling()),
        stops: served.handle.template.stops(),
        capabilities: served.handle.capabilities,
        adapters: &served.handle.adapters,
        vocab_size: served.handle.tokenizer.vocab_size(),
    };
    let history = |id: &str| {
        let history = gateway.responses.history(id, caller, images)?;
        Ok(Box::new(history) as Box<dyn History>)
    };
    protocol.parse(fields, model, &history)
}

fn claim_job_name<'a>(
    gateway: &'a Gateway,
    caller: &Caller,
    id: JobId,
) -> Result<NameClaim<'a>, ApiError> {
    let registry = gateway.generations.streams.registry();
    let is_known = |owner, id| registry.entry(id, stream::Caller::Owner(owner)).is_ok();
    gateway.job_names.claim_name(
        caller.owner,
        id,
        is_known,
        gateway.generations.limits.now().retry_after,
    )
}
