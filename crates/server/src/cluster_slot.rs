//! This process in a cluster, for handlers and metrics.

use cluster::node::ClusterNode;
use std::sync::{Arc, OnceLock};

/// This process in a cluster; empty in a process of its own.
pub(crate) type ClusterSlot = Arc<OnceLock<Arc<ClusterNode>>>;
