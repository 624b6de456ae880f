//! A reader of a generation for one client: credit, metrics, and the guards that stop the stream.

use crate::metrics::{GenerationMetrics, MeteredRequest, ResponseMeter};
use crate::streams::answer_storage::AnswerStorage;
use crate::streams::{CancelOnDrop, Changes, EndReceipt, StreamRecord, StreamRun, Subscriber};
use generate::output::choice_reader::LogReaders;
use generate::output::event::{EventSink, Usage};
use generate::output::generation_reader::{GenerationReader, Turn};
use generate::output::position::Position;
use generate::stream_source::Change;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use stream::End;

/// All choices of one stream, for one reader. If the reader also runs the stream, the drop stops the stream.
pub struct Generation {
    subscriber: Subscriber,
    reader: GenerationReader,
    meter: Option<Box<ResponseMeter>>,
    /// The right to run a plain stream, held for the stream's client.
    run: Option<StreamRun>,
    /// Cancel-on-drop guard of a generation that may be detached.
    cancel_on_drop: Option<CancelOnDrop>,
    /// The last turn, where the answer is to be stored first.
    held: Option<HeldTurn>,
    /// After the last event.
    receipt: Option<EndReceipt>,
}

/// A turn, and the wait before it.
type HeldTurn = (Turn, Pin<Box<dyn Future<Output = ()> + Send>>);

impl Generation {
    /// The reader of a plain stream's client, with the first readers of the logs. The stream is started.
    pub fn for_client(run: StreamRun, readers: Vec<LogReaders>) -> Option<Self> {
        let record = run.record();
        let reader = GenerationReader::new(record.source(), readers, None)?;
        let mut generation = Self::with_reader(Subscriber::opening(record), reader);
        generation.run = Some(run);
        Some(generation)
    }

    /// A further reader, for a client that has `known` of each choice (`None`: nothing). `None` when the stream is
    /// not started or has not emitted as much.
    pub fn attach(subscriber: Subscriber, known: Option<&[Position]>) -> Option<Self> {
        let record = Arc::clone(subscriber.record());
        if let Some(known) = known
            && !record.has_reached(known)?
        {
            return None;
        }
        let reader = GenerationReader::attach(record.source(), known)?;
        Some(Self::with_reader(subscriber, reader))
    }

    /// The reader with one token per event, and one choice after another, as [`GenerationReader::by_step`].
    pub fn by_step(self) -> Self {
        let reader = self.reader.by_step();
        Self { reader, ..self }
    }

    fn with_reader(subscriber: Subscriber, reader: GenerationReader) -> Self {
        Self {
            subscriber,
            reader,
            meter: None,
            run: None,
            cancel_on_drop: None,
            held: None,
            receipt: None,
        }
    }

    /// The stream.
    pub fn record(&self) -> &Arc<StreamRecord> {
        self.subscriber.record()
    }

    /// Adds metrics.
    pub fn with_metrics(
        mut self,
        metrics: &Arc<GenerationMetrics>,
        request: MeteredRequest,
    ) -> Self {
        let mut meter = metrics.open_meter(request);
        meter.set_stream(self.record());
        self.meter = Some(meter);
        self
    }

    /// Adds a cancel-on-drop guard.
    pub(crate) fn with_cancel_on_drop(mut self, cancel_on_drop: CancelOnDrop) -> Self {
        self.cancel_on_drop = Some(cancel_on_drop);
        self
    }

    /// Number of choices.
    pub fn choices(&self) -> usize {
        self.reader.choices()
    }

    /// The end of the first choice, after a successful end.
    pub fn first_end(&self) -> Option<End> {
        self.reader.first_end()
    }

    /// After the last event: the receipt, to be confirmed when the reader has the end.
    pub fn take_end_receipt(&mut self) -> Option<EndReceipt> {
        self.receipt.take()
    }

    /// Counts up to now.
    pub fn usage(&self) -> Usage {
        self.reader.usage()
    }

    /// Returns credit for everything read so far, after the frames have left for the client. Only for the credit
    /// owner, and only if the client does not send acknowledgements.
    pub fn return_credit(&mut self) {
        let explicit = self.record().terms().explicit_acks;
        // A client whose credit was revoked for missing acknowledgements does not get credit back by reading.
        let revoke = explicit && self.record().credit_owner.was_revoked();
        let owns_credit = !revoke && self.subscriber.owns_credit();
        self.meter
            .iter_mut()
            .for_each(|meter| meter.frame_taken(owns_credit));
        if owns_credit && !explicit {
            self.reader.return_credit();
        }
    }

    /// One turn over the choices, as [`GenerationReader::poll_turn`]. `Pending` returns credit for tokens without an
    /// event (a token that the output pipeline withholds must not cost credit forever). The last turn comes when a stored
    /// answer is in the journal, and its events come before.
    pub fn poll_turn(&mut self, cx: &mut Context<'_>, sink: &mut dyn EventSink) -> Poll<Turn> {
        let turn = match &mut self.held {
            Some((turn, stored)) => {
                let turn = stored.as_mut().poll(cx).map(|()| *turn);
                if turn.is_ready() {
                    self.held = None;
                }
                turn
            }
            None => self.poll_reader(cx, sink),
        };
        if turn.is_pending() {
            self.return_credit();
        }
        let (tokens, open) = (self.reader.tokens_read(), self.reader.open_choices());
        if let Some(meter) = &mut self.meter {
            meter.frame_emitted(turn, tokens);
        }
        if let Poll::Ready(Turn::Ended | Turn::Broken(_)) = turn {
            self.receipt = Some(EndReceipt::new(self.record()));
        }
        if let Some(run) = &mut self.run {
            if turn.is_pending() {
                run.reader_waits();
            }
            run.tokens_read(tokens, open);
        }
        turn
    }

    /// A turn of the reader, of which the last one may be held.
    fn poll_reader(&mut self, cx: &mut Context<'_>, sink: &mut dyn EventSink) -> Poll<Turn> {
        let record = self.subscriber.record();
        let mut stop = |end| {
            let end = record.record_failure(end);
            record.cancel();
            end
        };
        let turn = self.reader.poll_turn(cx, sink, &mut stop);
        if let Poll::Ready(last @ (Turn::Ended | Turn::Broken(_))) = turn
            && let Some(stored) = record.storage().and_then(AnswerStorage::wait)
        {
            self.held = Some((last, Box::pin(stored)));
            return Poll::Ready(Turn::Open);
        }
        turn
    }
}

/// Follows the state changes of a stream, next to the stream's logs.
///
/// State changes and tokens arrive on separate paths. A change belongs after the tokens generated before the change:
/// so a change is taken when there is nothing to read, and held until there is nothing to read once more; earlier
/// tokens are in the log by then.
#[derive(Default)]
pub struct StreamFollower {
    changes: Option<Changes>,
    held: Option<Change>,
}

/// Result of polling for a change.
pub enum FollowEvent {
    /// No change; the task is woken by the next change.
    Nothing,
    /// A change that may have unread tokens before: read the logs again.
    Held,
    /// A change to be emitted now.
    Due(Change),
}

impl StreamFollower {
    /// To be called when there is nothing to read. `wanted`: whether the reader still emits state changes.
    pub fn poll_change(
        &mut self,
        generation: &Generation,
        wanted: bool,
        cx: &mut Context<'_>,
    ) -> FollowEvent {
        // Nothing changes after the end.
        if !wanted || generation.held.is_some() {
            *self = Self::default();
            return FollowEvent::Nothing;
        }
        if let Some(change) = self.held.take() {
            return FollowEvent::Due(change);
        }
        let changes = self
            .changes
            .get_or_insert_with(|| generation.record().transitions.follow_changes());
        match changes.as_mut().poll_next(cx) {
            Poll::Ready(Some(change)) => {
                self.held = Some(change);
                FollowEvent::Held
            }
            Poll::Ready(None) | Poll::Pending => FollowEvent::Nothing,
        }
    }
}
