//! Requests that were taken from the inbox and are not started.

use crate::inbox::{Inbox, InboxState};
use crate::request_id::Age;
use crate::submitted_request::SubmittedRequest;
use std::collections::VecDeque;

/// Queued requests, and the slots that ended requests give back to the inbox.
pub(super) struct RequestQueue {
    /// In order of age.
    requests: VecDeque<Box<SubmittedRequest>>,
    vacated_slots: Vec<usize>,
}

impl RequestQueue {
    pub(super) fn new(inbox_max: usize, requests_max: usize) -> Self {
        Self {
            requests: VecDeque::with_capacity(inbox_max),
            vacated_slots: Vec::with_capacity(requests_max),
        }
    }

    /// Moves new requests in and vacated slots out. Returns the index of the first new request.
    pub(super) fn refill(&mut self, inbox: &Inbox) -> (usize, InboxState) {
        let known = self.requests.len();
        let state = inbox.take_requests(&mut self.requests, &mut self.vacated_slots);
        (known, state)
    }

    /// Gives a slot back at the next [`RequestQueue::refill`].
    pub(super) fn vacate_slot(&mut self, slot: usize) {
        self.vacated_slots.push(slot);
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &SubmittedRequest> {
        self.requests.iter().map(|request| &**request)
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut SubmittedRequest> {
        self.requests.get_mut(at).map(|request| &mut **request)
    }

    pub(super) fn get(&self, at: usize) -> Option<&SubmittedRequest> {
        self.requests.get(at).map(|request| &**request)
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<Box<SubmittedRequest>> {
        self.requests.remove(at)
    }

    /// The index of the first request that is not older.
    pub(super) fn index_of(&self, age: Age) -> usize {
        self.requests.partition_point(|request| request.age() < age)
    }

    /// Puts back a request that was just removed from this index: the queue still has capacity for the request.
    pub(super) fn put_back(&mut self, at: usize, request: Box<SubmittedRequest>) {
        self.requests.insert(at, request);
    }

    /// Panics unless the queue is in order of age.
    pub(super) fn check(&self) {
        let ages = self.requests.iter().map(|request| request.age());
        assert!(ages.is_sorted_by(|a, b| a < b), "the queue is by age");
    }
}
