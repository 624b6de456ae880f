//! A request for a generation, up to the lease of the model.

use crate::request::extract::GenerationRequest;
use crate::request::model_lookup::{self, NamedModel};
use crate::response::deferred_response;
use crate::response::stream_response::StreamResponder;
use axum::response::Response;
use gateway::handles::Gateway;
use gateway::models::{ModelLease, ModelLookup};
use gateway::open::OpenedStream;
use gateway::submit::{Resumable, UnparsedRequest};
use generate::error::ApiError;
use wire::format::Format;
use wire::framing::Framing;

/// A request for a generation in one wire protocol. The body is not parsed.
pub(crate) struct IncomingRequest {
    pub(crate) format: Format,
    pub(crate) framing: Framing,
    request: GenerationRequest,
    resumable: Resumable,
}

impl IncomingRequest {
    /// A request whose stream is resumable if a header field selects that.
    pub(crate) fn new(format: Format, framing: Framing, request: GenerationRequest) -> Self {
        Self {
            format,
            framing,
            resumable: Resumable::chosen(request.stream.resumable == Some(true)),
            request,
        }
    }

    /// The request with another value of `resumable`.
    pub(crate) fn with_resumable(self, resumable: Resumable) -> Self {
        Self { resumable, ..self }
    }

    /// The response. If the model must be loaded first, a streamed response reports the progress of loading; the
    /// response of a resumable stream waits, because the response head carries the stream id.
    ///
    /// # Errors
    /// All invalid fields at once; a full queue or registry; limits of the key.
    pub(crate) async fn respond(self, responder: &StreamResponder) -> Result<Response, ApiError> {
        let gateway = responder.gateway();
        let named = NamedModel::of(&self.request.body, self.format);
        let is_deferrable = named.stream && self.resumable != Resumable::Yes;
        match named.find(&gateway.models).await? {
            Some(ModelLookup::Pending(wanted)) if is_deferrable => {
                Ok(deferred_response::respond(responder, self, wanted))
            }
            found => {
                let lease = model_lookup::lease(found).await?;
                Ok(responder.respond(self.open(gateway, lease)?).await)
            }
        }
    }

    /// Whether the response is streamed.
    pub(crate) fn is_streamed(&self) -> bool {
        NamedModel::of(&self.request.body, self.format).stream
    }

    /// The stream, opened after the model is ready.
    ///
    /// # Errors
    /// All invalid fields at once; a full queue or registry; limits of the key.
    pub(crate) async fn opened(self, gateway: &Gateway) -> Result<OpenedStream, ApiError> {
        let lease =
            model_lookup::find_lease(&gateway.models, self.format, &self.request.body).await?;
        self.open(gateway, lease)
    }

    /// The stream, opened on a model that is ready.
    ///
    /// # Errors
    /// All invalid fields at once; a full queue or registry; limits of the key.
    pub(crate) fn open(
        self,
        gateway: &Gateway,
        lease: Option<ModelLease>,
    ) -> Result<OpenedStream, ApiError> {
        let request = &self.request;
        let unparsed = UnparsedRequest {
            format: self.format,
            framing: self.framing,
            body: &request.body,
            priority: request.scheduling.priority,
            deadline: request.scheduling.deadline,
            resumable: self.resumable,
            explicit_acks: request.stream.explicit_acks,
            streamed: false,
            lease,
        };
        unparsed.open(gateway, &request.caller)
    }
}
