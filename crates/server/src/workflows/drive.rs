//! Polls a run, and writes what it tells into its stream's log.
//!
//! One task per run. It stands still while it is paused and while its log is a window ahead of what its
//! reader took; what it is told meanwhile rings its bell.

use super::running::Running;
use crate::clock;
use crate::streams::Work;
use engine::{Follower, Token, Transition};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use stream::{End, Writer};
use tokio::time::{Instant, Sleep, sleep_until};
use workflow::{Event, Run};

/// A run on its way.
pub(super) struct Drive {
    pub(super) run: Run,
    pub(super) log: Writer<Token>,
    pub(super) running: Arc<Running>,
    /// Its permit, for as long as it works.
    pub(super) work: Arc<Work>,
    pub(super) follower: Box<dyn Follower>,
    /// Tokens it may be ahead of its reader; 0 = no limit.
    pub(super) credit_window: u64,
    pub(super) alarm: Option<Pin<Box<Sleep>>>,
}

impl Drive {
    /// Returns when it has ended.
    pub(super) async fn on(mut self) {
        self.log.wake_on_credit(self.running.waker());
        self.follower.transition(Transition::Started, clock::now());
        let running = Arc::clone(&self.running);
        let end = loop {
            if running.is_cancelled() || self.log.is_abandoned() {
                self.run.stop();
            }
            let event = tokio::select! {
                biased;
                () = running.news() => continue,
                event = poll_fn(|cx| self.poll(cx)) => event,
            };
            match event {
                Some(Event::Token { id, .. }) => self.tell(id),
                Some(Event::Opened { channel, writer }) => running.opened(channel, writer),
                Some(Event::Ended(outcome)) => {
                    running.ended(&outcome);
                    break outcome.end;
                }
                None => break End::Lost,
            }
        };
        self.finish(end);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let stopped = self.running.is_cancelled() || self.log.is_abandoned();
        if !stopped && (self.running.is_paused() || self.is_out_of_credit()) {
            return Poll::Pending; // the bell is rung when that changes
        }
        let event = self.run.poll(cx, clock::now());
        self.alarm = self.run.alarm().map(|at| {
            let mut alarm = Box::pin(sleep_until(Instant::from_std(at)));
            if alarm.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
            alarm
        });
        event
    }

    fn is_out_of_credit(&self) -> bool {
        self.credit_window > 0 && self.log.unaccepted() >= self.credit_window
    }

    /// The log holds as many tokens as the run may tell.
    fn tell(&mut self, id: u32) {
        let token = Token {
            id,
            logprob: f32::NAN,
        };
        if self.log.append(token).is_err() {
            self.run.stop();
        }
    }

    /// The permit goes back before anybody sees the end.
    fn finish(self, end: End) {
        drop((self.run, self.work));
        self.follower
            .transition(Transition::Ended(end), clock::now());
        self.log.finish(end);
    }
}
