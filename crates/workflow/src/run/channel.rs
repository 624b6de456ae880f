//! Channels of a run: the program's end, and for channels it writes the end that is drained.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use stream::ring::{Next, Refused, RingReader, RingWriter};

pub(super) enum Channel {
    /// The program writes, the run drains.
    Out {
        name: Arc<str>,
        writer: RingWriter<u32>,
        reader: RingReader<u32>,
    },
    /// The program reads, a writer outside writes.
    In {
        reader: RingReader<u32>,
        /// Ids that were read and may be read again after a roll-back; the first has this number.
        read: VecDeque<u32>,
        first: u64,
    },
}

/// Outcome of reading a channel from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Item(u32),
    Empty,
    Closed,
    /// No more ids can be kept.
    TooMany,
}

impl Channel {
    pub(super) fn capacity(&self) -> usize {
        match self {
            Self::Out { writer, .. } => writer.capacity(),
            Self::In { reader, .. } => reader.capacity(),
        }
    }

    /// Name of the channel for the host.
    pub(super) fn name(&self) -> Option<Arc<str>> {
        match self {
            Self::Out { name, .. } => Some(Arc::clone(name)),
            Self::In { .. } => None,
        }
    }

    pub(super) fn write(&mut self, id: u32) -> Result<(), Refused> {
        match self {
            Self::Out { writer, .. } => writer.push(id),
            Self::In { .. } => Err(Refused::Closed),
        }
    }

    /// Takes the oldest written id.
    pub(super) fn drain(&mut self) -> Option<u32> {
        match self {
            Self::Out { reader, .. } => reader.try_next(),
            Self::In { .. } => None,
        }
    }

    /// Discards ids before this number, which are not read again.
    pub(super) fn forget(&mut self, number: u64) {
        if let Self::In { read, first, .. } = self {
            while *first < number && read.pop_front().is_some() {
                *first += 1;
            }
        }
    }

    /// The id with this number, which was not discarded; at most `most` are kept.
    pub(super) fn take(&mut self, number: u64, most: usize) -> Found {
        let Self::In {
            reader,
            read,
            first,
        } = self
        else {
            return Found::Closed;
        };
        let at = usize::try_from(number - *first).unwrap_or(usize::MAX);
        while read.len() <= at {
            match reader.next_item() {
                Next::Item(_) if read.len() >= most => return Found::TooMany,
                Next::Item(id) => read.push_back(id),
                Next::Empty => return Found::Empty,
                Next::Closed => return Found::Closed,
            }
        }
        read.get(at).map_or(Found::Empty, |id| Found::Item(*id))
    }

    /// Registers the waker for the next id.
    pub(super) fn wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self::In { reader, read, .. } = self else {
            return Poll::Ready(());
        };
        match reader.poll_next(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(found) => {
                read.extend(found);
                Poll::Ready(())
            }
        }
    }
}
