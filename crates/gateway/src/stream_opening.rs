//! The record of a stream's beginning.

use crate::handles::GenerationHandles;
use crate::open::ParsedRequest;
use crate::records::{DescriptionKind, RecordedPrompts, StreamDescription, unix_us};
use crate::stored::StoredNote;
use crate::streams::{DurableStream, StreamTerms};
use generate::stream_meta::StreamMeta;
use std::time::Instant;
use wire::protocol::Protocol;

/// A stream that is about to be registered.
pub(crate) struct StreamOpening<'a> {
    pub(crate) request: &'a mut ParsedRequest,
    pub(crate) meta: &'a StreamMeta,
    pub(crate) terms: &'a StreamTerms,
    pub(crate) deadline: Option<Instant>,
    /// The note of an answer that is to be stored.
    pub(crate) stored_note: Option<&'a StoredNote>,
}

impl StreamOpening<'_> {
    /// Records the beginning of a resumable stream, if there is a journal and the client wants that; an answer of which
    /// another process has the beginning is not recorded. The description is
    /// for the record of the prepared prompts, and has none.
    pub(crate) fn record_opening(
        self,
        handles: &GenerationHandles,
    ) -> Option<(DurableStream, StreamDescription)> {
        let is_new = self.request.ask.params.continued.is_none();
        let is_wanted = self.terms.resumable && self.request.request.durable && is_new;
        let journal = handles.journal.get().filter(|_| is_wanted)?;
        let mut description = self.describe(handles.limits.now().closed_objects);
        let prompts = std::mem::take(&mut self.request.ask.prompts);
        description.prompts = RecordedPrompts::Requested(prompts);
        let encoded = description.encode();
        if let RecordedPrompts::Requested(prompts) = std::mem::take(&mut description.prompts) {
            self.request.ask.prompts = prompts;
        }
        let durable = journal.open_stream(self.meta.id.to_bits(), encoded.ok()?)?;
        let durable = match description.kind {
            DescriptionKind::WorkflowRun => durable.without_continuation(),
            DescriptionKind::Generation
            | DescriptionKind::StoredBlob
            | DescriptionKind::WebhookDelivery
            | DescriptionKind::Retired => durable,
        };
        Some((durable, description))
    }

    /// The description without prompts. Settings that decide the answer are part of the description.
    fn describe(&self, closed_objects: bool) -> StreamDescription {
        let (request, meta, terms) = (&*self.request, self.meta, self.terms);
        let model = &request.lease.serving.model;
        let job_id = request.response_id.clone();
        let mut params = request.ask.params.clone();
        params.closed_objects.get_or_insert(closed_objects);
        StreamDescription {
            kind: match request.program {
                Some(_) => DescriptionKind::WorkflowRun,
                None => DescriptionKind::Generation,
            },
            owner: terms.owner.0,
            protocol: terms.protocol,
            framing: terms.framing,
            reasoning_field: terms.reasoning_field,
            explicit_acks: terms.explicit_acks,
            credit_window: terms.credit_window,
            detached_tokens: terms.detached_tokens,
            response_id: meta.response_id.clone(),
            created_unix_s: meta.created_unix_s,
            opened_unix_us: unix_us(meta.arrived),
            deadline_unix_us: self.deadline.map(unix_us),
            model: meta.model.clone(),
            model_key: model.id.clone(),
            identity: model.identity_now(),
            context_max: model.handle.context_max,
            n: request.ask.n,
            params,
            stream_options: request.ask.stream_options.clone(),
            priority: meta.stream_options.priority,
            prompts: RecordedPrompts::default(),
            body_bytes: request.body_bytes,
            job_id: job_id.filter(|_| terms.protocol == Protocol::Job),
            stored: self
                .stored_note
                .and_then(|note| serde_json::to_value(note).ok()),
        }
    }
}
