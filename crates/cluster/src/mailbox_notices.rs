//! Notices of events in mailboxes: a reader who waits at one gateway looks again when an event comes at another.
//!
//! A notice names the key and nothing of the event, which the reader fetches from the gateway that has it. Notices may be
//! lost: readers look again after some seconds without one.

use crate::names::{InstanceId, Subjects};
use crate::nats::{Connection, SubjectKind, publish_in_time};
use futures_util::StreamExt;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The notices of a gateway, and those of the others.
pub struct MailboxNotices {
    connection: Arc<Connection>,
    subject: String,
    gateway: InstanceId,
}

impl MailboxNotices {
    /// The notices of this gateway.
    pub fn new(connection: Arc<Connection>, subjects: &Subjects, gateway: InstanceId) -> Self {
        Self {
            connection,
            subject: subjects.mailbox(),
            gateway,
        }
    }

    /// Sends the arrivals of this gateway, each the number of a key, and calls `heard` with those of the others, until the
    /// connection ends. Must be called inside a tokio runtime.
    pub async fn exchange(&self, mut arrivals: mpsc::Receiver<u64>, heard: impl Fn(u64)) {
        let client = self.connection.client();
        let Ok(mut notices) = client.subscribe(self.subject.clone()).await else {
            // The subject is valid, so the connection has ended.
            return;
        };
        loop {
            tokio::select! {
                notice = notices.next() => match notice {
                    Some(notice) => {
                        match parse_notice(&notice.payload) {
                            Some((from, key)) if from != self.gateway => heard(key),
                            Some(_) => {}
                            None => {
                                let unreadable = self.connection.unreadable();
                                unreadable.note(SubjectKind::Mailbox, "no notice of an event");
                            }
                        }
                    }
                    None => return,
                },
                Some(key) = arrivals.recv() => {
                    if self.connection.is_usable() {
                        let notice = encode_notice(self.gateway, key);
                        let subject = self.subject.clone();
                        // Readers also look from time to time.
                        let _ = publish_in_time(client, subject, None, notice.into()).await;
                    }
                }
            }
        }
    }
}

fn encode_notice(gateway: InstanceId, key: u64) -> Vec<u8> {
    let mut notice = gateway.0.to_be_bytes().to_vec();
    notice.extend_from_slice(&key.to_be_bytes());
    notice
}

fn parse_notice(notice: &[u8]) -> Option<(InstanceId, u64)> {
    let (gateway, key) = notice.split_first_chunk()?;
    let key = key.try_into().ok()?;
    Some((
        InstanceId(u64::from_be_bytes(*gateway)),
        u64::from_be_bytes(key),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_read_back() {
        let notice = encode_notice(InstanceId(7), 3);
        assert_eq!(parse_notice(&notice), Some((InstanceId(7), 3)));
        let long = [&notice[..], &[0]].concat();
        for bad in (0..notice.len())
            .map(|cut| &notice[..cut])
            .chain([&long[..]])
        {
            assert_eq!(parse_notice(bad), None, "{bad:?}");
        }
    }
}
