//! A relay on NATS, and its models: added while the relay runs, and replaced after their handles were closed.

use super::core::{Action, Relay};
use super::files::FileSender;
use super::outgoing::{FILES_SUBMIT_WAIT, SUBMIT_WAIT, encode_in_parts, submit};
use super::placing::{Engines, KnownInstance};
use super::{RelayConfig, RelayCounters, SubmitOutcome};
use crate::messages::{
    ContentIdentity, MODELS_MAX, Order, ReadRequest, Rejection, Run, RunReply, TokenBatch,
};
use crate::names::{InstanceId, Subjects};
use crate::nats::{Hearing, SubjectKind, UnreadableMessages, publish_in_time};
use async_nats::{Client, Message, Request, RequestErrorKind, Subscriber};
use engine::remote::{RemoteFiles, RemoteInbox};
use futures_util::StreamExt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Time between two looks at all requests, while there are any.
const TICK: Duration = Duration::from_millis(5);
/// After a look, the relay rests for this many times as long: many requests cost little of a processor, and are looked at
/// less often.
const LOOK_REST: u32 = 19;
/// Longest rest.
const REST_MAX: Duration = Duration::from_millis(100);
/// Time between two looks at the instances.
const INSTANCES_EVERY: Duration = Duration::from_millis(50);
/// Models that wait until the relay takes them.
const ADDED_MAX: usize = 8;
/// Time for requests to end after a shutdown.
const FINISH_MAX: Duration = Duration::from_secs(5);
/// Time for the answer to a read.
const READ_WAIT: Duration = Duration::from_secs(1);

/// Where the instances of the cluster are known from: those that are not gone.
pub type InstanceSource = Box<dyn Fn() -> Vec<KnownInstance> + Send>;

/// A gateway's place in the cluster.
pub struct RelayLink {
    /// The connection.
    pub client: Client,
    /// Whether the connection is usable.
    pub usable: watch::Receiver<bool>,
    /// Names of the subjects.
    pub subjects: Subjects,
    /// This gateway.
    pub gateway: InstanceId,
    /// The other instances.
    pub instances: InstanceSource,
    /// Counts messages that cannot be read.
    pub unreadable: Arc<UnreadableMessages>,
    /// Whether tokens may be told.
    pub hearing: Arc<Hearing>,
}

/// A running relay. Dropped, it ends its requests with [`stream::End::Lost`].
pub struct RelayDriver {
    task: JoinHandle<()>,
    /// Models that the relay has not taken yet, at most [`ADDED_MAX`]; `None`: no model is added any more.
    added: Option<mpsc::Sender<RelayedModel>>,
    waker: Waker,
    counters: Arc<Mutex<RelayCounters>>,
}

impl RelayDriver {
    /// Subscribes to tokens. Has no models yet. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn start(link: RelayLink, config: RelayConfig) -> Result<Self, String> {
        let subject = link.subjects.tokens(link.gateway);
        let subscribed = link.client.subscribe(subject.clone()).await;
        let tokens = subscribed.map_err(|why| format!("{subject}: {why}"))?;
        let wake = Arc::new(Notify::new());
        let waker = Waker::from(Arc::new(RelayWaker(Arc::clone(&wake))));
        let (added, additions) = mpsc::channel(ADDED_MAX);
        let counters = Arc::new(Mutex::new(RelayCounters::default()));
        let worker = RelayTask {
            relay: Relay::new(link.gateway, config, Vec::new()),
            additions,
            link,
            tokens,
            wake,
            submissions: JoinSet::new(),
            reads: JoinSet::new(),
            batch: TokenBatch::default(),
            rests_until: now(),
            counters: Arc::clone(&counters),
        };
        Ok(Self {
            task: tokio::spawn(worker.run()),
            added: Some(added),
            waker,
            counters,
        })
    }

    /// Takes the requests of a model's handle, until that is shut down.
    ///
    /// # Errors
    /// The relay has ended, or more than [`ADDED_MAX`] models are added at the same time.
    pub fn add(&self, model: RelayedModel) -> Result<(), String> {
        model.inbox.wake_by(self.waker.clone());
        let Some(added) = &self.added else {
            return Err("the relay has ended".to_owned());
        };
        added.try_send(model).map_err(|why| match why {
            TrySendError::Full(_) => "the relay is busy".to_owned(),
            TrySendError::Closed(_) => "the relay has ended".to_owned(),
        })
    }

    /// Waits until the requests have ended after the handles were shut down, at most five seconds.
    pub async fn finish(mut self) {
        self.added = None;
        if timeout(FINISH_MAX, &mut self.task).await.is_err() {
            tracing::warn!("not all requests on other engines ended in time");
        }
    }

    /// Counts since the start.
    pub fn counters(&self) -> RelayCounters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RelayDriver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct RelayWaker(Arc<Notify>);

impl Wake for RelayWaker {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}

/// Outcome of a read.
enum ReadAnswer {
    /// Tokens.
    Tokens(Message),
    /// No process listens for the engine.
    NoEngine(InstanceId),
    /// No answer came in time.
    Nothing,
}

/// A request that was answered, or was not.
type RunAnswer = (InstanceId, (u64, u32), SubmitOutcome);

struct RelayTask {
    link: RelayLink,
    relay: Relay,
    tokens: Subscriber,
    /// Closed: the process ends.
    additions: mpsc::Receiver<RelayedModel>,
    wake: Arc<Notify>,
    /// At most one for each attempt that has no answer.
    submissions: JoinSet<RunAnswer>,
    /// At most one for each engine and second.
    reads: JoinSet<ReadAnswer>,
    batch: TokenBatch,
    /// Until then, ticks and wakes do nothing.
    rests_until: Instant,
    counters: Arc<Mutex<RelayCounters>>,
}

impl RelayTask {
    async fn run(mut self) {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = interval(INSTANCES_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let wake = Arc::clone(&self.wake);
        let mut is_finishing = false;
        while !is_finishing || !self.relay.is_closed() {
            let needs_ticks = self.relay.needs_ticks();
            tokio::select! {
                Some(message) = self.tokens.next() => {
                    self.take_tokens(&message, false);
                    // The tick looks at the requests: many messages may arrive.
                    continue;
                }
                Some(answer) = self.reads.join_next() => {
                    match answer {
                        Ok(ReadAnswer::Tokens(message)) => self.take_tokens(&message, true),
                        Ok(ReadAnswer::NoEngine(engine)) => self.relay.on_no_engine(engine, now()),
                        Ok(ReadAnswer::Nothing) | Err(_) => {}
                    }
                    continue;
                }
                Some(submitted) = self.submissions.join_next() => self.take_answer(submitted.ok()),
                added = self.additions.recv(), if !is_finishing => match added {
                    Some(model) => self.add(model),
                    None => is_finishing = true,
                },
                () = wake.notified() => {}
                _ = tick.tick(), if needs_ticks => {}
                _ = look.tick() => self.look_at_instances(),
            }
            // The next tick makes up for what is left out.
            if !self.relay.needs_ticks() || now() >= self.rests_until {
                self.poll().await;
            }
        }
    }

    fn add(&mut self, model: RelayedModel) {
        self.relay.add_model(model);
        self.look_at_instances();
    }

    fn look_at_instances(&mut self) {
        let is_usable = self.is_usable();
        self.relay.set_connected(is_usable, now());
        let instances = (self.link.instances)();
        let engines = Engines::new(self.relay.models(), &instances);
        self.relay.set_engines(engines);
        self.publish_counters();
    }

    fn publish_counters(&self) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        *counters = self.relay.counters();
    }

    /// Whether there is a connection, and tokens that arrive may be told.
    fn is_usable(&self) -> bool {
        *self.link.usable.borrow() && !self.link.hearing.is_held(now())
    }

    fn take_tokens(&mut self, message: &Message, is_answer: bool) {
        if self.link.hearing.is_held(now()) {
            // Read again when the connection counts as usable.
            self.relay.set_connected(false, now());
            return;
        }
        match self.batch.decode_into(&message.payload) {
            Ok(()) => self.relay.on_tokens(&self.batch, is_answer, now()),
            Err(why) => {
                let kind = if is_answer {
                    SubjectKind::Answer
                } else {
                    SubjectKind::Tokens
                };
                self.link.unreadable.note(kind, why);
            }
        }
    }

    fn take_answer(&mut self, submitted: Option<RunAnswer>) {
        let Some((engine, name, outcome)) = submitted else {
            return;
        };
        if let SubmitOutcome::Answered(RunReply::Rejected { code, message }) = &outcome
            && *code == Rejection::Invalid
        {
            // The client gets an error without the reason.
            tracing::warn!("engine {engine} rejected a request: {code:?}: {message}");
        }
        self.relay.on_submitted(engine, name, &outcome, now());
    }

    async fn poll(&mut self) {
        let is_usable = self.is_usable();
        let begun = now();
        let actions = self.relay.poll(begun);
        // Before the actions: an attempt is counted before its engine can answer.
        self.publish_counters();
        let looked = now();
        let rest = looked.saturating_duration_since(begun) * LOOK_REST;
        self.rests_until = looked + rest.min(REST_MAX);
        let mut is_open = is_usable;
        for action in actions {
            match action {
                Action::Submit { engine, run, files } => self.submit(engine, *run, files),
                Action::Order { engine, orders } if is_open => {
                    is_open = self.order(engine, &orders).await;
                }
                Action::Read { engine, request } if is_usable => self.read(engine, &request),
                Action::Order { .. } | Action::Read { .. } => {}
            }
        }
    }

    fn submit(&mut self, engine: InstanceId, run: Run, files: Option<Arc<RemoteFiles>>) {
        let client = self.link.client.clone();
        let subjects = self.link.subjects.clone();
        let name = (run.handle, run.attempt);
        let unreadable = Arc::clone(&self.link.unreadable);
        self.submissions.spawn(async move {
            let sender = FileSender {
                client: &client,
                subject: &subjects.files(engine),
                unreadable: &unreadable,
            };
            let wait = match &files {
                Some(_) => FILES_SUBMIT_WAIT,
                None => SUBMIT_WAIT,
            };
            let sent = match &files {
                Some(files) => sender.send(files).await,
                None => Ok(()),
            };
            let outcome = match sent {
                Ok(()) => submit(&client, &subjects.run(engine), (&run, wait), &unreadable).await,
                Err(outcome) => outcome,
            };
            (engine, name, outcome)
        });
    }

    /// Sends orders; lost ones are given again. Returns whether the connection takes messages.
    async fn order(&mut self, engine: InstanceId, orders: &[Order]) -> bool {
        let subject = self.link.subjects.control(engine);
        for message in encode_in_parts(self.link.gateway, orders) {
            let client = &self.link.client;
            let sent = publish_in_time(client, subject.clone(), None, message.into());
            if let Err(why) = sent.await {
                tracing::debug!("orders for engine {engine}: {why}");
                return false;
            }
        }
        true
    }

    fn read(&mut self, engine: InstanceId, request: &ReadRequest) {
        let Ok(message) = request.encode() else {
            return;
        };
        let client = self.link.client.clone();
        let subject = self.link.subjects.read(engine);
        self.reads.spawn(async move {
            let request = Request::new().payload(message.into());
            let request = request.timeout(Some(READ_WAIT));
            match client.send_request(subject, request).await {
                Ok(message) => ReadAnswer::Tokens(message),
                Err(why) if why.kind() == RequestErrorKind::NoResponders => {
                    ReadAnswer::NoEngine(engine)
                }
                Err(_) => ReadAnswer::Nothing,
            }
        });
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Models of one relay, closed ones with open requests included.
const SLOTS_MAX: usize = 2 * MODELS_MAX;

/// A model whose requests are relayed.
pub struct RelayedModel {
    /// Name in requests.
    pub key: String,
    /// Content, the arithmetic left out; engines with another one get no request.
    pub identity: ContentIdentity,
    /// Tokens that prompt and answer may have together; engines with a shorter context get no request.
    pub context_max: usize,
    /// Fingerprint of the tower by which prompts with images were made, in hexadecimal digits; empty: there are none. Engines
    /// with another one get no request with images.
    pub tower: String,
    /// Requests of the model's handle.
    pub inbox: RemoteInbox,
}

/// A model, by a number that its requests have.
pub(super) struct ModelSlot {
    pub(super) model: RelayedModel,
    /// For the placement: equal for equal content.
    pub(super) hash: u64,
    /// Whether the handles were dropped or shut down, as of the last look.
    pub(super) is_closed: bool,
}

/// All models of a relay, at most [`SLOTS_MAX`].
#[derive(Default)]
pub(super) struct ModelSlots(pub(super) Vec<ModelSlot>);

impl ModelSlots {
    /// Adds a model in a free place; `is_used` tells whether a closed model has requests. Returns the number; `None`: there
    /// are too many, and the model's handle rejects requests.
    pub(super) fn add(
        &mut self,
        model: RelayedModel,
        is_used: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut hasher = DefaultHasher::new();
        model.identity.hash(&mut hasher);
        let slot = ModelSlot {
            model,
            hash: hasher.finish(),
            is_closed: false,
        };
        let mut slots = self.0.iter().enumerate();
        let free = slots.find(|(index, slot)| slot.is_closed && !is_used(*index));
        match free.map(|(index, _)| index) {
            Some(index) => {
                self.0[index] = slot;
                Some(index)
            }
            None if self.0.len() < SLOTS_MAX => {
                self.0.push(slot);
                Some(self.0.len() - 1)
            }
            None => None,
        }
    }

    /// All models, in the order of their numbers.
    pub(super) fn models(&self) -> impl Iterator<Item = &RelayedModel> {
        self.0.iter().map(|slot| &slot.model)
    }

    /// Whether no handle could submit a request.
    pub(super) fn are_closed(&self) -> bool {
        self.0.iter().all(|slot| slot.is_closed)
    }
}
