//! The body of another instance's response, as long as the instance lives.

use super::peer::Peers;
use axum::BoxError;
use bytes::Bytes;
use cluster::names::InstanceId;
use http_body::{Body, Frame, SizeHint};
use http_client::Incoming;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Breaks off, without an end, when the instance is gone: a machine that is lost, or a process that is stopped, closes no
/// connection.
pub(crate) struct LivingBody {
    body: Incoming,
    gone: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl LivingBody {
    /// A body that this instance sends.
    pub(crate) fn new(body: Incoming, peers: &Peers, instance: InstanceId) -> Self {
        Self {
            body,
            gone: Box::pin(peers.clone().wait_until_gone(instance)),
        }
    }
}

impl Body for LivingBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        // The body is not read any further after the error.
        this.gone
            .as_mut()
            .poll(cx)
            .map(|()| Some(Err("the instance that sends the response is gone".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
