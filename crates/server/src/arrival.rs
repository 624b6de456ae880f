//! A request that came, up to its model: what it says beside its body, and the wait for the model it names.

use crate::app::App;
use crate::door;
use crate::gateway::admission::Class;
use crate::gateway::keys::Caller;
use crate::gateway::open::OpenedStream;
use crate::gateway::served::{Found, Held};
use crate::gateway::streams::Wishes;
use crate::gateway::submit::Submission;
use crate::intake;
use crate::later;
use crate::wire::clock;
use crate::wire::fields::Fields;
use crate::wire::format::Format;
use crate::wire::framing::Framing;
use axum::http::request::Parts;
use axum::response::Response;
use bytes::Bytes;
use generate::error::ApiError;
use std::sync::Arc;
use std::time::Instant;

/// A request, read.
pub(crate) struct Arrival {
    pub(crate) format: Format,
    pub(crate) framing: Framing,
    caller: Caller,
    class: Option<Class>,
    deadline: Option<Instant>,
    wishes: Wishes,
    body: Bytes,
}

impl Arrival {
    /// What its head says.
    ///
    /// # Errors
    /// The key's rate, or a header field.
    pub(crate) fn of(head: &Parts, format: Format, framing: Framing) -> Result<Self, ApiError> {
        let caller = door::caller(&head.extensions)?;
        caller.request(clock::now())?;
        Ok(Self {
            format,
            framing,
            caller: caller.clone(),
            class: intake::class(&head.headers)?,
            deadline: intake::deadline(&head.headers)?,
            wishes: Wishes::parse(&head.headers)?,
            body: Bytes::new(),
        })
    }

    /// The request with a body.
    pub(crate) fn with_body(self, body: Bytes) -> Self {
        Self { body, ..self }
    }

    /// The response. A streamed one whose model has to be loaded says how far that is; one that is to be
    /// resumable has its name in its head, and waits for that without a word.
    ///
    /// # Errors
    /// All its bad fields at once; or there is no room for it.
    pub(crate) async fn answer(self, app: &Arc<App>) -> Result<Response, ApiError> {
        let told = Told::of(&self.body, self.format);
        let is_streamed = told.stream && !self.wishes.resumable;
        match told.find(app).await? {
            Some(Found::Wanted(wanted)) if is_streamed => Ok(later::answer(app, self, wanted)),
            found => {
                let held = held(found).await?;
                Ok(app.responder.respond(self.open(app, held)?).await)
            }
        }
    }

    /// Whether its answer is to come as it is made.
    pub(crate) fn is_streamed(&self) -> bool {
        Told::of(&self.body, self.format).stream
    }

    /// The stream, after the model was loaded.
    ///
    /// # Errors
    /// All its bad fields at once; or there is no room for it.
    pub(crate) async fn opened(self, app: &Arc<App>) -> Result<OpenedStream, ApiError> {
        let held = find_held(app, self.format, &self.body).await?;
        self.open(app, held)
    }

    /// Opens its stream on a model that is ready.
    ///
    /// # Errors
    /// All its bad fields at once; or there is no room for it.
    pub(crate) fn open(self, app: &Arc<App>, held: Option<Held>) -> Result<OpenedStream, ApiError> {
        let submission = Submission {
            format: self.format,
            framing: self.framing,
            body: &self.body,
            class: self.class,
            deadline: self.deadline,
            streamed: false,
            held,
        };
        submission.open(&app.gateway, &self.caller, |_| Ok(self.wishes))
    }
}

/// The model that a body names, after its wait; `None` of a body whose reader has something to say against it.
///
/// # Errors
/// There is no such model, it cannot be waited for, or it will not be ready.
pub(crate) async fn find_held(
    app: &App,
    format: Format,
    body: &[u8],
) -> Result<Option<Held>, ApiError> {
    held(Told::of(body, format).find(app).await?).await
}

/// The model of a request whose fields are read next; where its wait did not begin, what is wrong with its name is
/// noted.
///
/// # Errors
/// There is no such model, or it is not ready.
pub(crate) fn expect_held(
    held: Option<Held>,
    fields: &mut Fields<'_>,
    app: &App,
) -> Result<Held, ApiError> {
    match held {
        Some(held) => Ok(held),
        None => app.models.hold_now(fields.string("model").as_deref()),
    }
}

async fn held(found: Option<Found>) -> Result<Option<Held>, ApiError> {
    match found {
        Some(found) => found.held().await.map(Some),
        None => Ok(None),
    }
}

/// What has to be known of a body before it can be read.
struct Told {
    /// `Err`: it is none that can be read.
    model: Result<Option<String>, ()>,
    stream: bool,
}

impl Told {
    fn of(body: &[u8], format: Format) -> Self {
        let by_default = matches!(format, Format::OllamaChat | Format::OllamaGenerate);
        let Ok(mut fields) = Fields::parse(body) else {
            return Self {
                model: Err(()),
                stream: false,
            };
        };
        let model = fields.string("model").map(std::borrow::Cow::into_owned);
        let stream = fields.boolean("stream").unwrap_or(by_default);
        Self {
            model: fields.finish().map(|()| model).map_err(|_| ()),
            stream,
        }
    }

    /// The model it names, whose wait has begun if it is not ready; `None` of a body that is refused
    /// by its reader.
    async fn find(self, app: &App) -> Result<Option<Found>, ApiError> {
        match self.model {
            Ok(model) => app.models.want_named(model.as_deref()).await.map(Some),
            Err(()) => Ok(None),
        }
    }
}
