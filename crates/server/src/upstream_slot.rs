//! Servers of others that compute the tokens, for metrics.

use std::sync::{Arc, OnceLock};
use upstream::UpstreamStatus;

/// The upstreams of this process; empty where an engine computes.
pub(crate) type UpstreamSlot = Arc<OnceLock<Arc<UpstreamStatus>>>;
