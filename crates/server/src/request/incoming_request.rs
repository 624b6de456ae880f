//! A request for a generation, up to the lease of the model.

use crate::request::extract::GenerationRequest;
use crate::request::model_lookup::{self, NamedModel};
use crate::response::deferred_response;
use crate::response::stream_response::StreamResponder;
use axum::response::Response;
use gateway::handles::Gateway;
use gateway::models::{ModelLease, ModelLookup};
use gateway::open::{OpenedStream, Resumable, StreamRequest};
use generate::error::ApiError;
use wire::fields::Fields;
use wire::framing::Framing;
use wire::protocol::Protocol;
use wire::request_body::RequestBody;

/// A request for a generation in one wire protocol. The body was parsed as JSON, the fields were not read.
pub(crate) struct IncomingRequest {
    pub(crate) request: StreamRequest,
    body: RequestBody,
}

impl IncomingRequest {
    /// A request whose stream is resumable if a header field selects that.
    ///
    /// # Errors
    /// The body is not a JSON object.
    pub(crate) fn new(
        protocol: Protocol,
        framing: Framing,
        request: GenerationRequest,
    ) -> Result<Self, ApiError> {
        let body = RequestBody::parse(request.body)?;
        let request = StreamRequest {
            caller: request.caller,
            protocol,
            framing,
            priority: request.scheduling.priority,
            deadline: request.scheduling.deadline,
            resumable: Resumable::from_choice(request.stream.resumable == Some(true)),
            durable: request.stream.is_durable(),
            explicit_acks: request.stream.explicit_acks,
            streamed: false,
        };
        Ok(Self { request, body })
    }

    /// Fields of the body, none of them read yet.
    pub(crate) fn fields(&self) -> Fields<'_> {
        self.body.fields()
    }

    /// The request with another value of `resumable`.
    pub(crate) fn with_resumable(mut self, resumable: Resumable) -> Self {
        self.request.resumable = resumable;
        self
    }

    /// The response. If the model must be loaded first, a streamed response reports the progress of loading; the
    /// response of a resumable stream waits, because the response head carries the stream id.
    ///
    /// # Errors
    /// All invalid fields at once; a full queue or registry; limits of the key.
    pub(crate) async fn respond(self, responder: &StreamResponder) -> Result<Response, ApiError> {
        let gateway = responder.gateway();
        let named = NamedModel::of(self.body.fields(), self.request.protocol);
        let is_deferrable = named.stream && self.request.resumable != Resumable::Yes;
        match named.find(&gateway.models).await? {
            ModelLookup::Pending(pending) if is_deferrable => {
                Ok(deferred_response::respond(responder, self, pending))
            }
            found => {
                let lease = found.lease().await?;
                Ok(responder.respond(self.open(gateway, lease)?).await)
            }
        }
    }

    /// Whether the response is streamed.
    pub(crate) fn is_streamed(&self) -> bool {
        NamedModel::of(self.body.fields(), self.request.protocol).stream
    }

    /// The stream, opened after the model is ready.
    ///
    /// # Errors
    /// All invalid fields at once; a full queue or registry; limits of the key.
    pub(crate) async fn opened(self, gateway: &Gateway) -> Result<OpenedStream, ApiError> {
        let models = &gateway.models;
        let lease = model_lookup::find_lease(models, self.request.protocol, &self.body).await?;
        self.open(gateway, lease)
    }

    /// The stream, opened on a model that is ready.
    ///
    /// # Errors
    /// All invalid fields at once; a full queue or registry; limits of the key.
    pub(crate) fn open(
        self,
        gateway: &Gateway,
        lease: ModelLease,
    ) -> Result<OpenedStream, ApiError> {
        let body = (self.body.fields(), self.body.text().len());
        self.request.open(gateway, body, Some(lease))
    }
}
