//! The feeds of the other gateways, for a reader of the feed of the cluster.
//!
//! ```text
//! driver    one task for a reader: follows the instances that come and go
//! follower  one task for a gateway: its feed over HTTP, with the reader's key, again and again
//! ```
//!
//! Events are passed on as they are. A reader that is slow fills the buffer between followers and reader; then the followers
//! read no further, and the other gateways tell the number of dropped events in their feeds, as to any slow reader. What
//! happens while a gateway is not reachable is lost: an event says from when to when.

use super::stream_feed::FeedMessage;
use crate::peers::{PassedRequest, Peer, PeerReach, Peers, ask};
use bytes::{Buf, Bytes, BytesMut};
use cluster::names::InstanceId;
use http::StatusCode;
use http_body_util::BodyExt;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Events between the followers and the reader.
const EVENTS_MAX: usize = 64;
/// Bytes of one event; the metrics of an instance are the longest.
const EVENT_BYTES_MAX: usize = 64 << 10;
/// Pause before the first and before later attempts to reach a gateway again.
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Time for the head of a feed.
const OPEN_WAIT: Duration = Duration::from_secs(5);
/// Time after which an open feed without a byte is regarded as broken: several keep-alives.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// Events of other gateways, each a frame with its blank line. Ends all tasks when dropped.
pub(super) struct PeerFeeds {
    events: Receiver<Bytes>,
    driver: JoinHandle<()>,
}

impl PeerFeeds {
    /// Follows the other gateways' feeds. `request` is the reader's request.
    pub(super) fn follow(peers: Peers, request: PassedRequest) -> Self {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let driver = tokio::spawn(follow_all(peers, request, sender));
        Self { events, driver }
    }

    /// The next event. Never ready after the last one.
    pub(super) async fn next(&mut self) -> Bytes {
        match self.events.recv().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }

    /// An event that has arrived.
    pub(super) fn try_next(&mut self) -> Option<Bytes> {
        self.events.try_recv().ok()
    }
}

impl Drop for PeerFeeds {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A task that ends when dropped.
struct Follower(JoinHandle<()>);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn follow_all(peers: Peers, request: PassedRequest, sender: Sender<Bytes>) {
    let Some(mut changes) = peers.changes() else {
        return;
    };
    let mut followers = HashMap::<InstanceId, Follower>::new();
    loop {
        let living = peers.living(PeerReach::Gateways);
        followers.retain(|id, _| living.iter().any(|peer| peer.id == *id));
        for peer in living {
            followers.entry(peer.id).or_insert_with(|| {
                let asked = (peers.clone(), peer);
                let follow = follow_one(asked, request.clone(), sender.clone());
                Follower(tokio::spawn(follow))
            });
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn follow_one((peers, peer): (Peers, Peer), request: PassedRequest, sender: Sender<Bytes>) {
    let (mut pause, mut is_lost) = (RETRY_FIRST, false);
    loop {
        let mut feed = OneFeed {
            peers: &peers,
            peer: &peer,
            sender: &sender,
            has_begun: false,
            was_lost: is_lost,
        };
        let why = feed.read(&request).await;
        if feed.has_begun {
            (pause, is_lost) = (RETRY_FIRST, false);
        }
        let Err(why) = why else {
            return;
        };
        if !is_lost {
            let event = reach_event(&peer, Some(&why));
            if sender.send(event).await.is_err() {
                return;
            }
        }
        is_lost = true;
        sleep(pause).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

/// One connection to a gateway's feed.
struct OneFeed<'a> {
    peers: &'a Peers,
    peer: &'a Peer,
    sender: &'a Sender<Bytes>,
    has_begun: bool,
    /// Whether the reader knows that events of this gateway are missing.
    was_lost: bool,
}

impl OneFeed<'_> {
    /// Passes events on until the connection ends. `Ok`: there is no reader any more.
    async fn read(&mut self, request: &PassedRequest) -> Result<(), String> {
        let opened = timeout(OPEN_WAIT, ask(self.peers, self.peer, request)).await;
        let response = opened.map_err(|_| "no answer in time")??;
        if response.status() != StatusCode::OK {
            return Err(format!("it answered with {}", response.status()));
        }
        self.has_begun = true;
        if self.was_lost {
            let event = reach_event(self.peer, None);
            if self.sender.send(event).await.is_err() {
                return Ok(());
            }
        }
        let (mut body, mut frames) = (response.into_body(), EventFrames::default());
        loop {
            let frame = timeout(SILENCE_MAX, body.frame()).await;
            let frame = frame.map_err(|_| "the feed is silent")?;
            let frame = frame.ok_or("the feed has ended")?;
            let data = frame.map_err(|why| why.to_string())?.into_data();
            frames.push(&data.unwrap_or_default());
            while let Some(event) = frames.next()? {
                if self.sender.send(event).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// The event of a gateway's feed that cannot be read for a reason, or is read again.
fn reach_event(peer: &Peer, reason: Option<&str>) -> Bytes {
    let (instance, mut out) = (peer.id.to_string(), BytesMut::new());
    let message = match reason {
        Some(reason) => FeedMessage::Unreachable { instance, reason },
        None => FeedMessage::Reachable { instance },
    };
    message.write_to(&mut out);
    out.freeze()
}

/// Frames of Server-Sent Events in a stream of bytes; comments are left out.
#[derive(Default)]
struct EventFrames {
    buffer: BytesMut,
}

impl EventFrames {
    fn push(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
    }

    /// The next complete event.
    fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            let end = self.buffer.windows(2).position(|pair| pair == b"\n\n");
            let Some(end) = end else {
                return if self.buffer.len() <= EVENT_BYTES_MAX {
                    Ok(None)
                } else {
                    Err(format!("an event is longer than {EVENT_BYTES_MAX} bytes"))
                };
            };
            let frame = self.buffer.split_to(end + 2);
            if frame.starts_with(b"data: {") {
                return Ok(Some(Bytes::copy_from_slice(frame.chunk())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_cut_out_of_any_pieces() {
        let stream =
            b"data: {\"a\":1}\n\n: ping\n\ndata: {\"b\":\"\\n\"}\n\nretry: 5\n\ndata: {}\n\n";
        for size in 1..stream.len() {
            let (mut frames, mut found) = (EventFrames::default(), Vec::new());
            for piece in stream.chunks(size) {
                frames.push(piece);
                while let Some(event) = frames.next().unwrap() {
                    found.push(event);
                }
            }
            let expected: [&[u8]; 3] = [
                b"data: {\"a\":1}\n\n",
                b"data: {\"b\":\"\\n\"}\n\n",
                b"data: {}\n\n",
            ];
            assert_eq!(found, expected, "{size}");
        }
        let mut frames = EventFrames::default();
        frames.push(&vec![b'x'; EVENT_BYTES_MAX + 1]);
        assert!(frames.next().is_err());
    }
}
