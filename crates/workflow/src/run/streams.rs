//! Ops on channels.

use super::channel::{Channel, Found};
use super::machine::Next;
use super::{Event, Run, Trouble};
use crate::program::{Direction, Param, Slot};
use crate::value::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use stream::End;
use stream::ring::{self, Refused, RingKind};

/// The result of `stream_read_u32` without an id to read.
const NOTHING: i64 = -1;

impl Run {
    pub(super) fn open_channel(
        &mut self,
        output: Slot,
        channel: usize,
        capacity: &Param<i64>,
    ) -> Result<(), Trouble> {
        let capacity = self.int(capacity)?;
        let others = self
            .channels
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != channel);
        let taken: usize = others
            .filter_map(|(_, other)| Some(other.as_ref()?.capacity()))
            .sum();
        let most = self.plan.limits.channel_items_max.saturating_sub(taken);
        let capacity = usize::try_from(capacity)
            .ok()
            .filter(|c| (1..=most).contains(c));
        let capacity = capacity
            .ok_or_else(|| Trouble::program(format!("capacity must be from 1 to {most}")))?;
        let ends = ring::open(capacity, RingKind::Lossless);
        let (writer, reader) = ends.map_err(|why| Trouble::program(why.to_string()))?;
        let name = Arc::clone(&self.program.variables[output].name);
        self.channels[channel] = Some(match self.program.channels[channel] {
            Direction::In => {
                self.events.push_back(Event::Opened {
                    channel: name,
                    writer,
                });
                Channel::In {
                    reader,
                    read: VecDeque::new(),
                    first: self.state.taken[channel],
                }
            }
            Direction::Out | Direction::Unknown => Channel::Out {
                name,
                writer,
                reader,
            },
        });
        self.set(output, Value::Channel(channel))
    }

    pub(super) fn channel_of(&self, slot: Slot) -> Result<usize, Trouble> {
        match self.value(slot)? {
            Value::Channel(channel) => Ok(*channel),
            _ => Err(Trouble::program("there is no channel")),
        }
    }

    pub(super) fn write(&mut self, slot: Slot, input: Slot) -> Result<(), Trouble> {
        let (at, id) = (self.channel_of(slot)?, self.id_var(input)?);
        let Some(channel) = &mut self.channels[at] else {
            return Err(Trouble::program("there is no channel"));
        };
        if channel.write(id) == Err(Refused::Full) {
            let capacity = channel.capacity();
            let what =
                format!("the channel holds {capacity} and is full: flush it, or make it larger");
            return Err(Trouble::program(what));
        }
        if let Some(window) = &mut self.window {
            let what = "an iteration writes one token into its loop's stream_channel";
            return if window.wrote(at) {
                Ok(())
            } else {
                Err(Trouble::program(what))
            };
        }
        self.held.push_back(at);
        if !self.captures {
            self.emit_held();
        }
        Ok(())
    }

    /// Emits output written outside of batched loops.
    pub(super) fn emit_held(&mut self) {
        if self.window.is_some() {
            return; // the window emits it when drained
        }
        while let Some(at) = self.held.pop_front() {
            let id = self.channels[at].as_mut().and_then(Channel::drain);
            let Some(id) = id else { continue };
            if self.emitted >= self.plan.limits.tokens_max {
                self.held.clear();
                return self.finish_run(End::Length, None, None);
            }
            self.emitted += 1;
            self.tell(Some(at), id);
        }
    }

    pub(super) fn read(
        &mut self,
        slot: Slot,
        output: Slot,
        wait: &Param<bool>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Next, Trouble>> {
        let found = self
            .channel_of(slot)
            .and_then(|at| Ok((at, self.flag(wait)?)));
        let (at, wait) = match found {
            Ok(found) => found,
            Err(why) => return Poll::Ready(Err(why)),
        };
        let (number, kept) = (self.state.taken[at], self.window.is_some());
        let most = self.plan.limits.channel_items_max;
        loop {
            let Some(channel) = &mut self.channels[at] else {
                return Poll::Ready(Err(Trouble::program("there is no channel")));
            };
            if !kept {
                channel.forget(number);
            }
            match channel.take(number, most) {
                Found::Item(id) => {
                    self.state.taken[at] += 1;
                    let set = self.set(output, Value::Int(i64::from(id)));
                    return Poll::Ready(set.map(|()| Next::On));
                }
                Found::TooMany => {
                    let what = format!(
                        "the window has read {most} ids ahead of what was told; at most so many \
                         (channel_items_max)"
                    );
                    return Poll::Ready(Err(Trouble::program(what)));
                }
                Found::Empty if wait && self.drain_early() => return Poll::Ready(Ok(Next::Again)),
                Found::Empty if wait => {
                    if let Some(channel) = &mut self.channels[at] {
                        ready!(channel.wait(cx));
                    }
                }
                Found::Closed if wait => {
                    let what = "the channel was closed from outside: nothing will come";
                    return Poll::Ready(Err(Trouble::program(what)));
                }
                Found::Empty | Found::Closed => {
                    let set = self.set(output, Value::Int(NOTHING));
                    return Poll::Ready(set.map(|()| Next::On));
                }
            }
        }
    }
}
