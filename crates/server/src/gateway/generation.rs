//! One client's reader of a generation, with its credit, its metrics and the guards that stop the stream.

use crate::gateway::metrics::{GenerationMetrics, Meter, MeteredRequest};
use crate::gateway::streams::{Changes, Entry, Leash, Listener, Run};
use generate::output::choice_reader::LogReaders;
use generate::output::event::{Tell, Usage};
use generate::output::generation_reader::{GenerationReader, Turn};
use generate::output::position::Position;
use std::sync::Arc;
use std::task::{Context, Poll};
use stream::End;

/// All choices of one stream, for one reader. If the reader also runs the stream, dropping it stops the stream.
pub(crate) struct Generation {
    listener: Listener,
    reader: GenerationReader,
    meter: Option<Box<Meter>>,
    /// The right to run a plain stream, for its client.
    run: Option<Run>,
    /// Cancel-on-drop guard of a generation that may be detached.
    leash: Option<Leash>,
}

impl Generation {
    /// The reader of a plain stream's client, with the first readers of the logs. The stream is started.
    pub(crate) fn own(run: Run, readers: Vec<LogReaders>) -> Option<Self> {
        let entry = run.entry();
        let reader = GenerationReader::new(entry.source(), readers, None)?;
        let mut generation = Self::of(Listener::opening(entry), reader);
        generation.run = Some(run);
        Some(generation)
    }

    /// A further reader, whose client has `known` of each choice (`None`: nothing). `None` when the stream is not
    /// started or has not emitted as much.
    pub(crate) fn attach(listener: Listener, known: Option<&[Position]>) -> Option<Self> {
        let entry = Arc::clone(listener.entry());
        if let Some(known) = known
            && !entry.has_reached(known)?
        {
            return None;
        }
        let reader = GenerationReader::attach(entry.source(), known)?;
        Some(Self::of(listener, reader))
    }

    fn of(listener: Listener, reader: GenerationReader) -> Self {
        Self {
            listener,
            reader,
            meter: None,
            run: None,
            leash: None,
        }
    }

    /// The stream.
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        self.listener.entry()
    }

    /// Adds metrics.
    pub(crate) fn metered(
        mut self,
        metrics: &Arc<GenerationMetrics>,
        request: MeteredRequest,
    ) -> Self {
        let mut meter = metrics.open_meter(request);
        meter.of(self.entry());
        self.meter = Some(meter);
        self
    }

    /// Adds a cancel-on-drop guard.
    pub(crate) fn leashed(mut self, leash: Leash) -> Self {
        self.leash = Some(leash);
        self
    }

    /// Number of choices.
    pub(crate) fn choices(&self) -> usize {
        self.reader.choices()
    }

    /// The end of the first choice, once it ended well.
    pub(crate) fn first_end(&self) -> Option<End> {
        self.reader.first_end()
    }

    /// State changes of the stream.
    pub(crate) fn changes(&self) -> Changes {
        self.entry().transitions().follow()
    }

    /// Counts up to now.
    pub(crate) fn usage(&self) -> Usage {
        self.reader.usage()
    }

    /// Returns credit for everything read so far, once it has left for the client. Only the credit owner does, and only
    /// if the client does not acknowledge tokens itself.
    pub(crate) fn accept(&mut self) {
        let explicit = self.entry().opening().explicit_acks;
        // A client that was let go of for want of acknowledgements does not come back by reading.
        let let_go = explicit && self.entry().governor().has_let_go();
        let governs = !let_go && self.listener.governs();
        self.meter.iter_mut().for_each(|meter| meter.taken(governs));
        if governs && !explicit {
            self.reader.return_credit();
        }
    }

    /// One turn over the choices, as [`GenerationReader::poll_turn`]. `Pending` accepts what was read without an event
    /// (a token that the output pipeline holds back must not cost credit for ever).
    pub(crate) fn poll_turn(&mut self, cx: &mut Context<'_>, tell: &mut dyn Tell) -> Poll<Turn> {
        let entry = self.listener.entry();
        let mut stop = |end| {
            let end = entry.broke(end);
            entry.cancel();
            end
        };
        let turn = self.reader.poll_turn(cx, tell, &mut stop);
        if turn.is_pending() {
            self.accept();
        }
        let (tokens, open) = (self.reader.tokens_read(), self.reader.open_choices());
        if let Some(meter) = &mut self.meter {
            meter.told(turn, tokens);
        }
        #[cfg(feature = "otlp")]
        self.tell_finished(turn);
        if let Some(run) = &mut self.run {
            if turn.is_pending() {
                run.waits();
            }
            run.read(tokens, open);
        }
        turn
    }

    /// Reports the whole request to its meter, once it is over.
    #[cfg(feature = "otlp")]
    fn tell_finished(&mut self, turn: Poll<Turn>) {
        let broken = match turn {
            Poll::Ready(Turn::Ended) => None,
            Poll::Ready(Turn::Broken(end)) => Some(end),
            Poll::Ready(Turn::Open) | Poll::Pending => return,
        };
        let (usage, choices) = (self.usage(), self.choices() as u64);
        if let Some(meter) = &mut self.meter {
            meter.finished(crate::gateway::metrics::FinishedRequest {
                broken,
                times: usage.times,
                tokens: usage.completion_tokens,
                choices,
            });
        }
    }
}
