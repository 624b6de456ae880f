//! Attempts that another gateway adopts: their owner is gone, and the gateway continues the stream.
//!
//! The engine has computed on since the owner was heard last, so it has the tokens that the new gateway has, and perhaps
//! more. What the gateway has is compared: tokens by id, and control updates by their effect. Where both are equal, the
//! choice becomes an attempt of the gateway, under the name that the gateway gives, and the tokens after those that the
//! gateway has follow as those of any attempt. A message of the earlier owner names an attempt that there is no more.
//!
//! An attempt is compared and adopted choice by choice: a gateway continues each open choice with a request of its own.

use super::attempt_parts::{AttemptRequest, AttemptUpdates, SentChoice};
use super::attempts::{Attempts, Entry};
use super::running::{RunningAttempt, queued};
use crate::messages::{AdoptAnswer, AdoptEntry, AdoptRequest, Adoption, Attempt};
use crate::names::InstanceId;
use engine::Token;
use engine::remote::StreamChoice;
use std::sync::Arc;
use std::time::Instant;

/// Tokens that are compared at once.
const CHUNK: usize = 64;

impl Attempts {
    /// Gives a gateway the attempts that it asks for. A repeated request is answered as the first.
    pub fn adopt(&mut self, request: &AdoptRequest, now: Instant) -> Vec<AdoptAnswer> {
        self.hear(request.gateway, now);
        let entries = request.entries.iter();
        let answers = entries.map(|wanted| AdoptAnswer {
            handle: wanted.handle,
            attempt: wanted.attempt,
            adoption: self.adopt_one(request.gateway, wanted, now),
        });
        answers.collect()
    }

    fn adopt_one(&mut self, gateway: InstanceId, wanted: &AdoptEntry, now: Instant) -> Adoption {
        let key = (gateway, wanted.handle);
        if let Some(entry) = self.entries.get(&key) {
            let is_same = entry.attempt == wanted.attempt;
            let adopted = entry.running.as_ref().filter(|_| is_same);
            return adopted.map_or(Adoption::Unknown, |running| running.adopted());
        }
        let Some((owner, at)) = self.find(wanted) else {
            return Adoption::Unknown;
        };
        let Some(entry) = self.entries.get_mut(&owner) else {
            return Adoption::Unknown;
        };
        let Some(running) = &mut entry.running else {
            return Adoption::Unknown;
        };
        let is_equal = running.is_continued_by(at, wanted);
        let (handle, attempt) = (wanted.handle, wanted.attempt);
        let have = u32::try_from(wanted.ids.len()).unwrap_or(u32::MAX);
        // Dropped where the gateway is to submit the request again: the owner is no more.
        let name = Attempt { handle, attempt };
        let taken = running.take_choice(at, name, (wanted.generation, have));
        if running.is_taken() {
            self.entries.remove(&owner);
        }
        let stream = wanted.choice.stream;
        tracing::info!(
            %gateway,
            owner = %owner.0,
            "stream {stream:032x}: {}",
            if is_equal { "adopted by another gateway" } else { "another gateway continues other tokens or updates" }
        );
        if !is_equal {
            return Adoption::Differs;
        }
        taken.pause_as_ordered();
        let adoption = taken.adopted();
        let entry = Entry::adopted(wanted.attempt, taken, now);
        self.entries.insert(key, entry);
        self.heard.insert(gateway, now);
        adoption
    }

    /// The attempt of the latest owner that computes a choice, and the index of the choice there.
    fn find(&self, wanted: &AdoptEntry) -> Option<((InstanceId, u64), usize)> {
        let found = self.entries.iter().filter_map(|(key, entry)| {
            let running = entry.running.as_ref()?;
            let (at, generation) = running.find(wanted.choice)?;
            (generation <= wanted.generation).then_some((generation, (*key, at)))
        });
        let last = found.max_by_key(|(generation, (_, at))| (*generation, *at));
        last.map(|(_, found)| found)
    }
}

impl RunningAttempt {
    /// The index of a choice that is open or that has ended here, and the generation of its owner.
    fn find(&self, wanted: StreamChoice) -> Option<(usize, u64)> {
        let AttemptRequest {
            origin,
            first_choice,
            ..
        } = &self.request;
        let origin = origin.as_ref()?;
        let at = self.choices.iter().position(|choice| {
            let number = u32::try_from(choice.log).unwrap_or(u32::MAX);
            let number = first_choice.saturating_add(number);
            !choice.is_given_end && origin.choice(number) == Some(wanted)
        });
        Some((at?, origin.generation))
    }

    /// Whether a gateway with these tokens and updates can go on with the choice.
    fn is_continued_by(&self, at: usize, wanted: &AdoptEntry) -> bool {
        let choice = self.choices[at];
        let has_logprobs = self.request.logprobs || self.request.top_n > 0;
        let computed = wanted.ids.len() >= choice.uncomputed as usize;
        self.has_updates(wanted) && (computed || !has_logprobs) && self.begins_with(at, &wanted.ids)
    }

    /// Whether the updates of the gateway are those in effect, and no others were ordered.
    fn has_updates(&self, wanted: &AdoptEntry) -> bool {
        let AttemptUpdates {
            before, ordered, ..
        } = self.updates;
        let all = before + ordered;
        let has_all = |at: usize| {
            self.work.updates(at) == all
                && self.work.request(at).progress.updates_applied() == u64::from(all)
        };
        !self.updates.has_injected
            && self.updates.merged == wanted.in_effect
            && self.requests.iter().all(|&at| has_all(at))
    }

    fn begins_with(&self, at: usize, ids: &[u32]) -> bool {
        let log = &self.work.log(self.choices[at].log).tokens;
        let blank = Token {
            id: 0,
            logprob: 0.0,
        };
        let mut tokens = [blank; CHUNK];
        let mut chunks = (0_u64..).step_by(CHUNK).zip(ids.chunks(CHUNK));
        chunks.all(|(first, ids)| {
            let tokens = &mut tokens[..ids.len()];
            let copied = log.copy_items(first, tokens);
            copied == ids.len() && tokens.iter().zip(ids).all(|(token, id)| token.id == *id)
        })
    }

    fn adopted(&self) -> Adoption {
        match self.is_paused {
            true => Adoption::AdoptedPaused,
            false => Adoption::Adopted,
        }
    }

    /// The choice with this index, as an attempt of the next owner, which has so many items. The choice is gone here.
    pub(super) fn take_choice(
        &mut self,
        at: usize,
        attempt: Attempt,
        (generation, have): (u64, u32),
    ) -> Self {
        let SentChoice {
            log, uncomputed, ..
        } = self.choices[at];
        let nothing = SentChoice::from_index(self.choices[at].sent);
        self.choices[at] = SentChoice {
            log,
            is_given_end: true,
            is_end_sent: true,
            ..nothing
        };
        let choice = SentChoice {
            log,
            uncomputed,
            ..SentChoice::from_index(have)
        };
        let mut origin = self.request.origin.clone();
        if let Some(origin) = &mut origin {
            origin.generation = generation;
        }
        let request = AttemptRequest {
            origin,
            ..self.request.clone()
        };
        let AttemptUpdates {
            before, ordered, ..
        } = self.updates;
        Self {
            attempt,
            requests: self.work.requests_of(|other| other == log),
            work: Arc::clone(&self.work),
            readers: vec![self.readers.get_mut(at).and_then(Option::take)],
            choices: vec![choice],
            request,
            updates: AttemptUpdates {
                before: before + ordered,
                ordered: 0,
                ..self.updates.clone()
            },
            orders_applied: 0,
            is_paused: self.is_paused,
            is_orphaned: false,
            sent: queued(attempt),
        }
    }

    /// Whether other gateways have adopted all choices that were open.
    pub(super) fn is_taken(&self) -> bool {
        self.choices.iter().all(|choice| choice.is_given_end)
    }
}
