//! Metadata and terms of a stream from the recorded description. Nothing comes from the settings of this process.

use super::wall_time::WallTime;
use crate::durability::StreamDescription;
use crate::streams::StreamTerms;
use generate::reported_sampling::ReportedSampling;
use generate::stream_meta::StreamMeta;
use std::time::Instant;
use stream::{Owner, StreamId};

/// Metadata of a stream with this id.
pub(crate) fn stream_meta(
    description: &StreamDescription,
    id: StreamId,
    wall: WallTime,
) -> StreamMeta {
    let (params, prompts) = (&description.params, description.prompts.len());
    StreamMeta {
        id,
        response_id: description.response_id.clone(),
        created_unix_s: description.created_unix_s,
        arrived: wall.past_instant(description.opened_unix_us),
        model: description.model.clone(),
        stream_options: description.stream_options.clone(),
        prompts,
        choices: prompts * description.n,
        sampling: ReportedSampling::of(params),
        stops: params.stops.clone(),
        logprobs: params.sampling.logprobs,
        top_n: params.sampling.top_logprobs as usize,
    }
}

/// Terms of a stream. Only resumable streams are durable.
pub(crate) fn stream_terms(description: &StreamDescription) -> StreamTerms {
    StreamTerms {
        owner: Owner(description.owner),
        protocol: description.protocol,
        framing: description.framing,
        reasoning_field: description.reasoning_field,
        resumable: true,
        detachable: false,
        explicit_acks: description.explicit_acks,
        credit_window: description.credit_window,
        detached_tokens: description.detached_tokens,
    }
}

/// When the request has to be done.
pub(crate) fn deadline(description: &StreamDescription, wall: WallTime) -> Option<Instant> {
    description.deadline_unix_us.map(|at| wall.instant(at))
}
