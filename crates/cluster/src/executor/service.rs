//! The tasks of an executor on NATS.

use super::attempts::{Admission, Attempts, Settled};
use super::given_images::{DecodeImages, GivenImages, ImageDesk};
use super::received_files::ReceivedFiles;
use super::running::RunningAttempt;
use super::submission::{ExecutorModel, ReadRun, rejected};
use crate::messages::{
    Assembled, Attempt, FileMessage, FileReply, Heartbeat, PartAssembly, ReadRequest, Rejection,
    Run, RunReply, decode_orders,
};
use crate::names::{InstanceId, Subjects};
use crate::nats::{SubjectKind, UnreadableMessages, publish_in_time};
use async_nats::connection::State;
use async_nats::{Client, Message, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

/// Requests that are submitted at the same time, each on a thread of its own: reading a long record and compiling constraints
/// take time.
const SUBMISSIONS_MAX: usize = 2;
/// Time between two looks for what changed outside of steps, such as the end of a cancelled request.
const LOOK: Duration = Duration::from_millis(20);
/// Time between two looks for silent gateways and old attempts.
const EXPIRE: Duration = Duration::from_secs(1);
/// Time that requests have to end when the process shuts down.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// What is wrong with a request that names no subject for the answer.
const NO_ANSWER: &str = "a request that wants no answer";

/// A running executor. Dropped, it takes no further requests, and cancels the running ones.
pub struct ExecutorService {
    task: JoinHandle<()>,
    steps: Arc<Notify>,
    stop: Arc<Notify>,
    /// No request is left after [`Self::leave`].
    left: watch::Receiver<bool>,
}

impl ExecutorService {
    /// Subscribes to the requests for this engine; messages that are none are counted in `unreadable`. Without `decode`,
    /// requests with images are rejected. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn start(
        client: Client,
        subjects: Subjects,
        engine: InstanceId,
        (models, decode): (Vec<ExecutorModel>, Option<DecodeImages>),
        unreadable: Arc<UnreadableMessages>,
    ) -> Result<Self, String> {
        let subscribe = async |subject: String| {
            let subscribed = client.subscribe(subject.clone()).await;
            subscribed.map_err(|why| format!("{subject}: {why}"))
        };
        let (steps, stop) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (has_left, left) = watch::channel(false);
        let worker = Worker {
            runs: subscribe(subjects.run(engine)).await?,
            orders: subscribe(subjects.control(engine)).await?,
            reads: subscribe(subjects.read(engine)).await?,
            files: subscribe(subjects.files(engine)).await?,
            heartbeats: subscribe(subjects.heartbeat()).await?,
            client: client.clone(),
            subjects,
            models: models.into(),
            attempts: Attempts::new(engine),
            parts: PartAssembly::default(),
            images: ImageDesk {
                files: Arc::default(),
                decode,
            },
            submissions: JoinSet::new(),
            turns: Arc::new(Semaphore::new(SUBMISSIONS_MAX)),
            outbox: Vec::new(),
            unreadable,
            steps: Arc::clone(&steps),
            stop: Arc::clone(&stop),
            has_left,
        };
        Ok(Self {
            task: tokio::spawn(worker.run()),
            steps,
            stop,
            left,
        })
    }

    /// To be called after each step of an engine: the tokens of the step are sent.
    pub fn step_waker(&self) -> Waker {
        Waker::from(Arc::new(StepWaker(Arc::clone(&self.steps))))
    }

    /// Rejects further requests, and ends the running ones with [`stream::FailCode::Shutdown`] at the next step, so that
    /// their gateways place them on other engines. Returns when the ends are sent, or after five seconds. Requests are rejected
    /// until the drop: one without an answer would wait for it at its gateway, for ten seconds.
    pub async fn leave(&self) {
        self.stop.notify_one();
        let mut left = self.left.clone();
        if timeout(LEAVE_MAX, left.wait_for(|left| *left))
            .await
            .is_err()
        {
            tracing::warn!("not all requests of gateways were given back in time");
        }
    }
}

impl Drop for ExecutorService {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct StepWaker(Arc<Notify>);

impl Wake for StepWaker {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}

/// A submission that is done.
type Submitted = ((InstanceId, Attempt), Result<RunningAttempt, RunReply>);

struct Worker {
    client: Client,
    subjects: Subjects,
    runs: Subscriber,
    orders: Subscriber,
    reads: Subscriber,
    files: Subscriber,
    heartbeats: Subscriber,
    models: Arc<[ExecutorModel]>,
    attempts: Attempts,
    parts: PartAssembly,
    images: ImageDesk,
    /// At most [`super::STARTING_MAX`].
    submissions: JoinSet<Submitted>,
    turns: Arc<Semaphore>,
    /// Messages to gateways, between encoding and sending.
    outbox: Vec<(InstanceId, Bytes)>,
    unreadable: Arc<UnreadableMessages>,
    steps: Arc<Notify>,
    stop: Arc<Notify>,
    has_left: watch::Sender<bool>,
}

impl Worker {
    /// Runs until aborted.
    async fn run(mut self) {
        let (steps, stop) = (Arc::clone(&self.steps), Arc::clone(&self.stop));
        let (mut look, mut expire) = (ticks(LOOK), ticks(EXPIRE));
        let mut is_leaving = false;
        loop {
            let is_busy = self.attempts.open() > 0;
            tokio::select! {
                Some(message) = self.runs.next() => self.take_run(message).await,
                Some(message) = self.orders.next() => self.take_orders(&message),
                Some(message) = self.reads.next() => self.take_read(message).await,
                Some(message) = self.files.next() => self.take_file(message).await,
                Some(message) = self.heartbeats.next() => self.take_heartbeat(&message),
                Some(Ok((name, outcome))) = self.submissions.join_next() => {
                    self.settle(name, outcome).await;
                }
                () = steps.notified() => self.send_news().await,
                _ = look.tick(), if is_busy => self.send_news().await,
                _ = expire.tick() => {
                    self.attempts.expire(now());
                    self.parts.drop_expired(now());
                    self.lock_files().drop_idle(now());
                }
                () = stop.notified(), if !is_leaving => {
                    is_leaving = true;
                    self.leave();
                }
            }
            let is_empty = self.attempts.open() == 0 && self.submissions.is_empty();
            if is_leaving && !*self.has_left.borrow() && is_empty {
                self.send_news().await;
                if let Err(why) = self.client.flush().await {
                    tracing::warn!("the last messages to gateways may be lost: {why}");
                }
                self.has_left.send_replace(true);
            }
        }
    }

    async fn take_run(&mut self, message: Message) {
        let Some(answer) = message.reply else {
            self.unreadable.note(SubjectKind::Run, NO_ANSWER);
            return;
        };
        let arrived = now();
        let admission = match self.parts.push(&message.payload, arrived) {
            Ok(Assembled::Incomplete) => Admission::Answer(RunReply::Received),
            Ok(Assembled::Run(run)) => self.attempts.admit(run, answer.to_string(), arrived),
            Err(why) => {
                self.unreadable.note(SubjectKind::Run, why);
                Admission::Answer(rejected(Rejection::Invalid, why.to_string()))
            }
        };
        match admission {
            Admission::Answer(reply) => self.publish(answer.to_string(), reply.encode()).await,
            Admission::Start(run) => self.submit(*run, arrived),
            Admission::Wait => {}
        }
    }

    /// Submits a request on a thread for work that takes time, after its images were decoded.
    fn submit(&mut self, run: Run, arrived: Instant) {
        let attempt = Attempt {
            handle: run.handle,
            attempt: run.attempt,
        };
        let name = (run.gateway, attempt);
        let (models, turns) = (Arc::clone(&self.models), Arc::clone(&self.turns));
        let images = self.images.clone();
        self.submissions
            .spawn(async move { (name, submit(run, arrived, (models, turns), images).await) });
    }

    fn lock_files(&self) -> MutexGuard<'_, ReceivedFiles> {
        let files = self.images.files.lock();
        files.unwrap_or_else(PoisonError::into_inner)
    }

    async fn take_file(&mut self, message: Message) {
        let Some(answer) = message.reply else {
            self.unreadable.note(SubjectKind::Run, NO_ANSWER);
            return;
        };
        let reply = match FileMessage::decode(&message.payload) {
            Ok(message) => self.lock_files().take(message, now()),
            Err(why) => {
                self.unreadable.note(SubjectKind::Run, why);
                FileReply::Invalid
            }
        };
        self.publish(answer.to_string(), reply.encode()).await;
    }

    async fn settle(
        &mut self,
        name: (InstanceId, Attempt),
        outcome: Result<RunningAttempt, RunReply>,
    ) {
        let Settled { answers, reply } = self.attempts.settle(name, outcome);
        let reply = reply.encode();
        for answer in answers {
            self.publish(answer, reply.clone()).await;
        }
        // Steps may have ended before this attempt was known: their tokens must not wait for the next look.
        self.steps.notify_one();
    }

    fn take_orders(&mut self, message: &Message) {
        match decode_orders(&message.payload) {
            Ok((gateway, orders)) => self.attempts.apply_orders(gateway, &orders, now()),
            Err(why) => self.unreadable.note(SubjectKind::Control, why),
        }
    }

    async fn take_read(&mut self, message: Message) {
        let Some(answer) = message.reply else {
            self.unreadable.note(SubjectKind::Read, NO_ANSWER);
            return;
        };
        match ReadRequest::decode(&message.payload) {
            Ok(request) => {
                let mut bytes = Vec::new();
                self.attempts.read(&request, now()).encode(&mut bytes);
                self.publish(answer.to_string(), bytes).await;
            }
            Err(why) => self.unreadable.note(SubjectKind::Read, why),
        }
    }

    fn take_heartbeat(&mut self, message: &Message) {
        if let Ok(heartbeat) = Heartbeat::decode(&message.payload) {
            self.attempts.hear(heartbeat.id, now());
        }
    }

    async fn send_news(&mut self) {
        let mut outbox = std::mem::take(&mut self.outbox);
        self.attempts.send_news(now(), &mut |gateway, batch| {
            let mut bytes = Vec::new();
            batch.encode(&mut bytes);
            outbox.push((gateway, bytes.into()));
        });
        for (gateway, bytes) in outbox.drain(..) {
            let subject = self.subjects.tokens(gateway);
            self.publish(subject, bytes).await;
        }
        self.outbox = outbox;
    }

    /// Sends a message, if there is a connection. One that is lost is read again by its gateway, or asked again.
    async fn publish(&self, subject: String, payload: impl Into<Bytes>) {
        if self.client.connection_state() != State::Connected {
            return;
        }
        if let Err(why) = publish_in_time(&self.client, subject, None, payload.into()).await {
            tracing::debug!("a message to a gateway: {why}");
        }
    }

    fn leave(&mut self) {
        self.attempts.leave();
        for model in &*self.models {
            model.handle.engine.shutdown(now());
        }
    }
}

/// Outcome of the first turn of a submission.
enum FirstTurn {
    Done(Box<Result<RunningAttempt, RunReply>>),
    /// The request has images, which are decoded without a turn.
    Images(Box<ReadRun>),
}

async fn submit(
    run: Run,
    arrived: Instant,
    (models, turns): (Arc<[ExecutorModel]>, Arc<Semaphore>),
    images: ImageDesk,
) -> Result<RunningAttempt, RunReply> {
    let panicked = || rejected(Rejection::Invalid, "the submission panicked");
    let own = Arc::clone(&models);
    let read = move || match ReadRun::read(&own, run) {
        Ok(read) if read.images().is_empty() => {
            FirstTurn::Done(Box::new(read.submit(&own, GivenImages::default(), arrived)))
        }
        Ok(read) => FirstTurn::Images(Box::new(read)),
        Err(reply) => FirstTurn::Done(Box::new(Err(reply))),
    };
    let turn = Arc::clone(&turns).acquire_owned().await;
    let first = tokio::task::spawn_blocking(read).await;
    drop(turn);
    let read = match first.map_err(|_| panicked())? {
        FirstTurn::Done(outcome) => return *outcome,
        FirstTurn::Images(read) => read,
    };
    let given = images.prepare(read.images().to_vec(), read.vision(&models), arrived);
    let given = given.await?;
    let _turn = turns.acquire_owned().await;
    let submitted = tokio::task::spawn_blocking(move || read.submit(&models, given, arrived));
    submitted.await.unwrap_or_else(|_| Err(panicked()))
}

fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
