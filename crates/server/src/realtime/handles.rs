//! The handles that a WebSocket uses, and the number of WebSockets that are open.
//!
//! Limits of WebSockets.

use super::message_gate::GateLimits;
use crate::config::live_config::LiveConfig;
use crate::peers::PeerCalls;
use crate::response::stream_response::StreamResponder;
use gateway::lifecycle::Lifecycle;
use gateway::lifetime_stats::LifetimeStats;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::clock;

/// Handles that a WebSocket uses.
#[derive(Clone)]
pub(crate) struct RealtimeHandles {
    pub(crate) responder: StreamResponder,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) config: Arc<LiveConfig>,
    pub(crate) sockets: OpenSockets,
    pub(crate) peer_calls: Arc<PeerCalls>,
}

impl RealtimeHandles {
    /// Bounds of a client's messages: one with images may be as long as a body with images.
    pub(super) fn message_limits(&self) -> GateLimits {
        let (config, gateway) = (self.config.now(), self.responder.gateway());
        let plain_max = config.realtime.message_bytes_max;
        let long_max = if gateway.models.may_see_images() {
            config.media_body_bytes_max.max(plain_max)
        } else {
            plain_max
        };
        GateLimits {
            plain_max,
            long_max,
            bodies: Arc::clone(&gateway.generations.images.media.bodies),
            bodies_max: config.media_bodies_bytes_max,
            retry_after: config.retry_after,
        }
    }
}

/// The WebSockets that are open.
#[derive(Clone)]
pub(crate) struct OpenSockets(Arc<Mutex<LifetimeStats>>);

/// The right to have one WebSocket open, released on drop.
pub(super) struct SocketPermit(Arc<Mutex<LifetimeStats>>);

impl OpenSockets {
    /// Permits one more WebSocket, if at most `max` are open then.
    ///
    /// # Errors
    /// The expected time until one is closed.
    pub(super) fn acquire_permit(&self, max: usize) -> Result<SocketPermit, Duration> {
        lock_stats(&self.0).begin_lives(1, max, clock::now())?;
        Ok(SocketPermit(Arc::clone(&self.0)))
    }
}

impl Default for OpenSockets {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(LifetimeStats::new(clock::now()))))
    }
}

impl Drop for SocketPermit {
    fn drop(&mut self) {
        lock_stats(&self.0).end_lives(1, clock::now());
    }
}

fn lock_stats(stats: &Mutex<LifetimeStats>) -> MutexGuard<'_, LifetimeStats> {
    stats.lock().unwrap_or_else(PoisonError::into_inner)
}
