//! Attaching a subscriber to an existing stream, also to resume the stream.

use crate::response::stream_body::StreamBody;
use crate::response::stream_response::StreamResponder;
use gateway::generation::Generation;
use gateway::metrics::{MeteredProtocol, MeteredRequest};
use gateway::streams::positions::wait_for_positions;
use gateway::streams::{StreamRecord, Subscriber};
use generate::error::ApiError;
use generate::output::position::Position;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use wire::clock;
use wire::cursor::{Cursor, invalid_cursor};
use wire::protocol::Encoding;

/// Time in which the head of a response waits until it is known whether a stream that was taken over continues. After that the
/// answer is given within the response.
const DECISION_WAIT: Duration = Duration::from_secs(10);

/// Waits until it is known whether a stream continues that was taken over, of which the client has a part.
pub(crate) async fn wait_decided(record: &StreamRecord, cursor: &Cursor) {
    let has_part = cursor.positions.iter().any(|known| known.begun() > 0);
    if has_part && record.is_taken_over() {
        let _ = timeout(DECISION_WAIT, record.wait_for_outcome()).await;
    }
}

/// How a subscriber reads a stream.
pub(crate) struct SubscribeOptions {
    /// The position to resume from; `None` for the beginning.
    pub(crate) cursor: Option<Cursor>,
    pub(crate) encoding: Encoding,
    pub(crate) protocol: MeteredProtocol,
    /// Whether this subscriber becomes the credit owner.
    pub(crate) govern: bool,
}

impl SubscribeOptions {
    /// The body with the stream's events.
    ///
    /// # Errors
    /// A cursor beyond what was emitted; the rejection of a stream that never started.
    pub(crate) fn open_body(
        self,
        responder: &StreamResponder,
        record: &Arc<StreamRecord>,
    ) -> Result<StreamBody, ApiError> {
        if let Some(error) = record.rejection() {
            return Err(error.clone());
        }
        let keep_alive = responder.keep_alive();
        let metered = MeteredRequest {
            protocol: self.protocol,
            stream: true,
            attached: true,
            arrived: clock::now(),
        };
        let (govern, metrics) = (self.govern, Arc::clone(responder.metrics()));
        let cursor = self.cursor.clone();
        cursor
            .iter()
            .try_for_each(|cursor| record.expect_no_loss(cursor))?;
        let known = self.cursor.as_ref().map(|cursor| cursor.positions.clone());
        let is_behind = known.as_ref().is_some_and(|known| record.is_behind(known));
        let body = if record.started().is_some() && !is_behind {
            let generation = attach_subscriber(record, known.as_deref(), govern)?
                .with_metrics(&metrics, metered);
            StreamBody::new(generation, self.encoding, keep_alive)
        } else {
            let has_part = known.iter().flatten().any(|known| known.begun() > 0);
            if has_part && !record.is_recovered() {
                return Err(invalid_cursor());
            }
            let (record, place) = (Arc::clone(record), record.queue_position().cloned());
            let pending = async move {
                record.wait_for_start().await?;
                if let Some(cursor) = &cursor {
                    if record.is_behind(&cursor.positions) {
                        wait_for_positions(&record, &cursor.positions).await;
                    }
                    record.expect_no_loss(cursor)?;
                }
                Ok(attach_subscriber(&record, known.as_deref(), govern)?
                    .with_metrics(&metrics, metered))
            };
            StreamBody::waiting(Box::pin(pending), place, self.encoding, keep_alive)
        };
        Ok(match &self.cursor {
            Some(cursor) => body.resumed(cursor),
            None => body,
        })
    }
}

fn attach_subscriber(
    record: &Arc<StreamRecord>,
    known: Option<&[Position]>,
    govern: bool,
) -> Result<Generation, ApiError> {
    let subscriber = if govern {
        Subscriber::opening(record)
    } else {
        Subscriber::joining(record)
    };
    Generation::attach(subscriber, known).ok_or_else(invalid_cursor)
}
