//! A reader that comes to a stream that is there, or comes back to it.

use crate::app::App;
use crate::gateway::generation::Generation;
use crate::gateway::metrics::MeteredRequest;
use crate::gateway::streams::entry::Entry;
use crate::gateway::streams::listener::Listener;
use crate::stream_body::StreamBody;
use crate::wire::clock;
use crate::wire::cursor::{Cursor, invalid_cursor};
use crate::wire::dialect::Dialect;
use generate::error::ApiError;
use generate::output::position::Position;
use std::sync::Arc;

/// How it reads.
pub(crate) struct Watching {
    /// What it was told before; `None`: nothing.
    pub(crate) cursor: Option<Cursor>,
    pub(crate) dialect: Box<dyn Dialect>,
    /// What the metrics call the dialect.
    pub(crate) name: &'static str,
    /// Credit follows this reader, whoever governed before.
    pub(crate) govern: bool,
}

impl Watching {
    /// The events.
    ///
    /// # Errors
    /// The place it names was never told; the stream was refused before it began.
    pub(crate) fn body(self, app: &App, entry: &Arc<Entry>) -> Result<StreamBody, ApiError> {
        if let Some(error) = entry.refused() {
            return Err(error.clone());
        }
        let keep_alive = app.config.now().keep_alive;
        let measured = MeteredRequest {
            dialect: self.name,
            stream: true,
            attached: true,
            arrived: clock::now(),
        };
        let (govern, metrics) = (self.govern, Arc::clone(&app.metrics.generations));
        let known = self.cursor.as_ref().map(|cursor| cursor.reached.clone());
        let body = if entry.started().is_some() {
            let generation = attach(entry, known.as_deref(), govern)?.metered(&metrics, measured);
            StreamBody::new(generation, self.dialect, keep_alive)
        } else {
            if known.iter().flatten().any(|known| known.begun() > 0) {
                return Err(invalid_cursor());
            }
            let (entry, place) = (Arc::clone(entry), entry.place().cloned());
            let beginning = async move {
                entry.settled().await?;
                Ok(attach(&entry, known.as_deref(), govern)?.metered(&metrics, measured))
            };
            StreamBody::waiting(Box::pin(beginning), place, self.dialect, keep_alive)
        };
        Ok(match &self.cursor {
            Some(cursor) => body.resumed(cursor),
            None => body,
        })
    }
}

fn attach(
    entry: &Arc<Entry>,
    known: Option<&[Position]>,
    govern: bool,
) -> Result<Generation, ApiError> {
    let listener = match govern {
        true => Listener::opening(entry),
        false => Listener::joining(entry),
    };
    Generation::attach(listener, known).ok_or_else(invalid_cursor)
}
