//! Extractors: typed and checked parts of a request.
//!
//! axum runs the extractors of a handler from left to right; the body comes last. The first failed check ends the
//! request with an error response in the wire protocol of the route.

use crate::access::authentication;
use crate::app::App;
use crate::request::{request_body, request_headers};
use crate::response::Rejected;
use admission::Priority;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use bytes::Bytes;
use gateway::keys::Caller;
use gateway::media::LongBody;
use gateway::open::{RequestedDelivery, StreamRequest};
use generate::error::{ApiError, Problem};
use serde::de::DeserializeOwned;
use std::time::Instant;
use wire::clock;
use wire::framing::Framing;
use wire::protocol::Protocol;
use wire::request_body::RequestBody;

/// Values in the path, such as an id.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<App> for Path<T> {
    type Rejection = Rejected;

    async fn from_request_parts(head: &mut Parts, app: &App) -> Result<Self, Rejected> {
        let found = axum::extract::Path::from_request_parts(head, app).await;
        let axum::extract::Path(values) = found.map_err(|_| {
            let problem = Problem::new("path", "must be UTF-8, also where it is percent-encoded");
            ApiError::fields(vec![problem])
        })?;
        Ok(Self(values))
    }
}

/// The caller that the authentication layer identified.
pub(crate) struct Authenticated(pub(crate) Caller);

impl FromRequestParts<App> for Authenticated {
    type Rejection = Rejected;

    async fn from_request_parts(head: &mut Parts, _: &App) -> Result<Self, Rejected> {
        Ok(Self(authentication::caller(&head.extensions)?.clone()))
    }
}

/// The id in the path, and the caller who asks for it.
pub(crate) struct AskedId {
    pub(crate) id: String,
    pub(crate) caller: Caller,
}

impl FromRequestParts<App> for AskedId {
    type Rejection = Rejected;

    async fn from_request_parts(head: &mut Parts, app: &App) -> Result<Self, Rejected> {
        let Path(id) = Path::from_request_parts(head, app).await?;
        let Authenticated(caller) = Authenticated::from_request_parts(head, app).await?;
        Ok(Self { id, caller })
    }
}

/// The caller, after counting the request against the rate limit of the caller's key.
pub(crate) struct RateLimited(pub(crate) Caller);

impl FromRequestParts<App> for RateLimited {
    type Rejection = Rejected;

    async fn from_request_parts(head: &mut Parts, _: &App) -> Result<Self, Rejected> {
        let caller = authentication::caller(&head.extensions)?;
        caller.count_request(clock::now()).map_err(ApiError::from)?;
        Ok(Self(caller.clone()))
    }
}

/// Header fields about the scheduling of a request. They override fields of the body.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SchedulingHeaders {
    pub(crate) priority: Option<Priority>,
    pub(crate) deadline: Option<Instant>,
}

impl FromRequestParts<App> for SchedulingHeaders {
    type Rejection = Rejected;

    async fn from_request_parts(head: &mut Parts, _: &App) -> Result<Self, Rejected> {
        Ok(Self {
            priority: request_headers::parse_priority(&head.headers)?,
            deadline: request_headers::parse_deadline(&head.headers)?,
        })
    }
}

/// A body within the limits of size and time. Web pages must send the content type JSON.
pub(crate) struct JsonBody(pub(crate) Bytes);

impl FromRequest<App> for JsonBody {
    type Rejection = Rejected;

    async fn from_request(request: Request, app: &App) -> Result<Self, Rejected> {
        let (head, body) = request.into_parts();
        request_headers::expect_json(&head.headers)?;
        let body = request_body::read(&head.headers, body, &app.config.now()).await?;
        Ok(Self(body))
    }
}

/// A body that may have images: longer than others, within the bytes that all such bodies share. Web pages must send the
/// content type JSON.
pub(crate) struct MediaBody {
    pub(crate) bytes: Bytes,
    /// `None` of a body that is no longer than others.
    pub(crate) long: Option<LongBody>,
}

impl FromRequest<App> for MediaBody {
    type Rejection = Rejected;

    async fn from_request(request: Request, app: &App) -> Result<Self, Rejected> {
        let (head, body) = request.into_parts();
        request_headers::expect_json(&head.headers)?;
        let bodies = &app.gateway.generations.images.media.bodies;
        let config = app.config.now();
        if !app.gateway.models.may_see_images() {
            let bytes = request_body::read(&head.headers, body, &config).await?;
            return Ok(Self { bytes, long: None });
        }
        let read = request_body::read_long(&head.headers, body, (&config, bodies));
        let (bytes, long) = read.await?;
        Ok(Self { bytes, long })
    }
}

/// A request for a generation: caller, header fields, and the bytes of the body.
pub(crate) struct GenerationRequest {
    pub(crate) caller: Caller,
    pub(crate) delivery: RequestedDelivery,
    body: MediaBody,
}

impl FromRequest<App> for GenerationRequest {
    type Rejection = Rejected;

    async fn from_request(request: Request, app: &App) -> Result<Self, Rejected> {
        let (mut head, body) = request.into_parts();
        let RateLimited(caller) = RateLimited::from_request_parts(&mut head, app).await?;
        let delivery = request_headers::parse_delivery(&head.headers)?;
        let request = Request::from_parts(head, body);
        let body = MediaBody::from_request(request, app).await?;
        Ok(Self {
            caller,
            delivery,
            body,
        })
    }
}

impl GenerationRequest {
    /// The request in the wire protocol of its route.
    ///
    /// # Errors
    /// The body is not a JSON object.
    pub(crate) fn in_protocol(
        self,
        protocol: Protocol,
        framing: Framing,
    ) -> Result<StreamRequest, ApiError> {
        Ok(StreamRequest {
            caller: self.caller,
            protocol,
            framing,
            delivery: self.delivery,
            streamed: false,
            body: RequestBody::parse(self.body.bytes)?,
            long_body: self.body.long,
        })
    }
}
