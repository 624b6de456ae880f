//! A channel of a run: the program's end, and for what it writes the end that is drained.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use stream::ring::{Next, Reader, Refused, Writer};

pub(super) enum Channel {
    /// The program writes, the run drains.
    Out {
        name: Arc<str>,
        writer: Writer<u32>,
        reader: Reader<u32>,
    },
    /// The program reads, somebody outside writes.
    In {
        reader: Reader<u32>,
        /// What was read and may be taken back; its first item has this number.
        read: VecDeque<u32>,
        first: u64,
    },
}

/// What a look at a channel from outside found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Item(u32),
    Empty,
    Closed,
    /// As many are kept as may be.
    TooMany,
}

impl Channel {
    pub(super) fn capacity(&self) -> usize {
        match self {
            Self::Out { writer, .. } => writer.capacity(),
            Self::In { reader, .. } => reader.capacity(),
        }
    }

    /// What a host knows it by.
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

    /// What was written, oldest first.
    pub(super) fn drain(&mut self) -> Option<u32> {
        match self {
            Self::Out { reader, .. } => reader.try_next(),
            Self::In { .. } => None,
        }
    }

    /// Ids before this number will not be asked for again.
    pub(super) fn forget(&mut self, number: u64) {
        if let Self::In { read, first, .. } = self {
            while *first < number && read.pop_front().is_some() {
                *first += 1;
            }
        }
    }

    /// The id with this number, which was not forgotten; `most` are kept.
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

    /// Leaves the waker where the next id would come.
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
