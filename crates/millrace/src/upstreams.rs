//! Servers of others that compute the tokens of this process.

use crate::config::Settings;
use crate::failure::Failure;
use std::sync::{Arc, Mutex, PoisonError};
use text::TextCover;
use tokio::runtime::Handle;
use upstream::{UpstreamModel, UpstreamRelay, UpstreamStatus};

/// The upstreams of the settings, for threads outside the server's runtime.
#[derive(Clone)]
pub(crate) struct UsedUpstreams {
    pub(crate) status: Arc<UpstreamStatus>,
    /// From the load of the model to [`UsedUpstreams::finish`].
    relay: Arc<Mutex<Option<UpstreamRelay>>>,
    runtime: Handle,
}

/// Begins to ask the upstreams of the settings, if there are any. Must be called inside the server's runtime.
///
/// # Errors
/// The file with the key cannot be used.
pub(crate) fn use_upstreams(settings: &Settings) -> Result<Option<UsedUpstreams>, Failure> {
    if !settings.upstream.is_used() {
        return Ok(None);
    }
    let config = settings.upstream.config().map_err(Failure::user)?;
    Ok(Some(UsedUpstreams {
        status: UpstreamStatus::start(config),
        relay: Arc::default(),
        runtime: Handle::current(),
    }))
}

impl UsedUpstreams {
    /// Waits for an upstream; returns its context, if it says it.
    pub(crate) fn wait_until_usable(&self) -> Option<usize> {
        self.runtime.block_on(self.status.wait_until_usable())
    }

    /// Sends the requests of a model to the upstreams.
    pub(crate) fn relay(&self, model: UpstreamModel) {
        let cover = match TextCover::new(Arc::clone(&model.tokenizer)) {
            Ok(cover) => Some(Arc::new(cover)),
            Err(byte) => {
                tracing::warn!(
                    "the vocabulary has no token for the byte {byte:#04X}: servers that return text without token ids cannot be used"
                );
                None
            }
        };
        let _inside = self.runtime.enter();
        let relay = UpstreamRelay::start(Arc::clone(&self.status), model, cover);
        *self.relay.lock().unwrap_or_else(PoisonError::into_inner) = Some(relay);
    }

    /// Closes the calls of requests that have not ended. To be called when no stream is open any more.
    pub(crate) async fn finish(&self) {
        let relay = self.relay.lock();
        let relay = relay.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(relay) = relay {
            relay.finish().await;
        }
    }
}
