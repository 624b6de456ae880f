//! From a ticket to a running generation: wait, prepare, reserve what it really needs, launch.

use crate::admission::{Answers, Ticket};
use crate::ask::Ask;
use crate::clock;
use crate::error::ApiError;
use crate::generation::Generation;
use crate::keys::KeyPermit;
use crate::launch::Launch;
use crate::prepare::{Prepared, prepare};
use crate::router::App;
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

/// A request that was understood and not yet begun. It owns all it needs, so that it can wait in the
/// body of an answer whose head is out.
pub(crate) struct Beginning {
    pub(crate) app: Arc<App>,
    pub(crate) ask: Ask,
    /// The request's body: what of `ask` may have to be prepared elsewhere is as long as this.
    pub(crate) body_bytes: usize,
    pub(crate) key: KeyPermit,
    pub(crate) deadline: Option<Instant>,
}

impl Beginning {
    /// Waits for the permit and begins. A panic on the way is this request's failure alone.
    pub(crate) async fn run(self, ticket: Ticket) -> Result<Generation, ApiError> {
        AssertUnwindSafe(self.begin(ticket))
            .catch_unwind()
            .await
            .unwrap_or_else(|_| Err(unprepared()))
    }

    async fn begin(mut self, ticket: Ticket) -> Result<Generation, ApiError> {
        let asked = clock::now();
        let permit = ticket.await?;
        self.app.metrics.admitted(clock::now() - asked);
        let prompts = self.prepare().await?;
        let lengths = || prompts.iter().map(|prompt| prompt.ids.len());
        let prompt_tokens: usize = lengths().sum();
        self.key.prompt(prompt_tokens as u64, clock::now())?;
        let need = self.app.sizing.exact(lengths(), answers(&self.ask))?;
        let permit = permit.settled(need).await?;
        let (app, ask) = (&self.app, &self.ask);
        let launch = Launch {
            served: &app.served,
            control: &ask.control,
            n: ask.n,
            seed: ask.control.seed.unwrap_or_else(|| app.idents.seed()),
            deadline: self.deadline,
            account: self.key.account(),
            credit_window: app.config.credit_window,
            retry_after: app.config.retry_after,
        };
        let generation = launch.start(prompts, permit, self.key)?;
        tracing::debug!(
            choices = generation.choices(),
            stream = ask.delivery.stream,
            "submitted"
        );
        Ok(generation)
    }

    /// Short prompts are prepared where we are; long ones where they hold nobody up. The permit bounds
    /// how many wait there.
    async fn prepare(&mut self) -> Result<Vec<Prepared>, ApiError> {
        let (prompts, echo) = (
            std::mem::take(&mut self.ask.prompts),
            self.ask.delivery.echo,
        );
        let served = Arc::clone(&self.app.served);
        if self.body_bytes <= self.app.config.inline_prompt_bytes_max {
            return prepare(prompts, echo, &served);
        }
        tokio::task::spawn_blocking(move || prepare(prompts, echo, &served))
            .await
            .unwrap_or_else(|_| Err(unprepared()))
    }
}

/// What answers a request wants.
pub(crate) fn answers(ask: &Ask) -> Answers {
    Answers {
        n: ask.n,
        max_tokens: ask.control.max_tokens,
    }
}

fn unprepared() -> ApiError {
    ApiError::ours("internal_error", "the prompt could not be prepared")
}
