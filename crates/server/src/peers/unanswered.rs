//! Instances whose part of an answer is missing.

use super::peer::Peer;
use cluster::messages::Role;
use generate::error::ApiError;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// `Retry-After` while it is not known where something is: an instance that is gone is regarded as such after some seconds.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A living instance that did not answer in time: what it has is missing.
#[derive(Clone, Debug, JsonSchema, PartialEq, Eq, Serialize)]
#[schemars(rename = "UnansweredInstance")]
pub(crate) struct Unanswered {
    /// Id of the instance.
    pub(crate) instance: String,
    /// Why there is no answer.
    pub(crate) reason: String,
    #[serde(skip)]
    pub(crate) role: Role,
}

impl Unanswered {
    pub(crate) fn new(peer: &Peer, reason: String) -> Self {
        Self {
            instance: peer.id.to_string(),
            reason,
            role: peer.role,
        }
    }

    /// The error of a look-up that these instances may have answered.
    pub(crate) fn error(unanswered: &[Self]) -> ApiError {
        let silent = unanswered.iter();
        let silent = silent.map(|one| format!("{} ({})", one.instance, one.reason));
        let silent: Vec<_> = silent.collect();
        let message = format!(
            "it is at none of the gateways that answered; no answer: {}",
            silent.join(", ")
        );
        ApiError::capacity("recovering", message, RETRY_AFTER)
    }
}
