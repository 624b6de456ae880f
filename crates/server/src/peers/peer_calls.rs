//! One request to many instances at once.

use super::passed_request::{PassedRequest, ask};
use super::peer::{Peer, PeerReach, Peers};
use super::unanswered::Unanswered;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::{FuturesUnordered, iter};
use gateway::metrics::counters::Counter;
use gateway::streams::FeedView;
use generate::error::ApiError;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use http_client::Incoming;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};

/// Requests to many instances at one time.
const CALLS_MAX: usize = 8;
/// Instances that one call asks at one time.
const ASKED_AT_ONCE: usize = 32;
/// Bytes of all answers to one call.
const ANSWERS_BYTES_MAX: usize = 8 << 20;
/// Readers of the cluster's feed with the scope `admin`, and as many without it; each has a connection to each gateway, and a
/// buffer of some events.
const FEEDS_MAX: usize = 8;
/// Time in which only the gateway that made an id is asked for it.
const FIRST_TIME: Duration = Duration::from_millis(250);
/// Time for all instances together.
const CALL_TIME: Duration = Duration::from_secs(2);

/// The means to ask other instances, and how often that was done.
pub(crate) struct PeerCalls {
    pub(crate) peers: Peers,
    places: Semaphore,
    feed_places: Arc<Semaphore>,
    own_feed_places: Arc<Semaphore>,
    answered: Counter,
    failed: Counter,
}

/// The right to read the other gateways' feeds.
pub(crate) type FeedPlace = OwnedSemaphorePermit;

/// Requests to other instances since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerCallCounts {
    /// Answered in time.
    pub(crate) answered: u64,
    /// Not answered, or with an error of the instance.
    pub(crate) failed: u64,
}

/// A complete answer of an instance with the status 200.
#[derive(Debug)]
pub(crate) struct PeerAnswer {
    pub(crate) peer: Peer,
    pub(crate) body: Bytes,
}

/// The answers of all living instances.
#[derive(Debug, Default)]
pub(crate) struct PeerAnswers {
    pub(crate) answers: Vec<PeerAnswer>,
    /// Those without an answer, by id.
    pub(crate) unanswered: Vec<Unanswered>,
}

/// The first instance that has what was asked for.
pub(crate) enum FirstHit {
    /// The response of this instance.
    Hit(Peer, Box<Response<Incoming>>),
    /// All instances have answered that they do not have it.
    Nowhere,
    /// No instance that answered has it.
    Unknown(Vec<Unanswered>),
}

impl PeerCalls {
    /// Nothing was asked yet.
    pub(crate) fn new(peers: Peers) -> Self {
        Self {
            peers,
            places: Semaphore::new(CALLS_MAX),
            feed_places: Arc::new(Semaphore::new(FEEDS_MAX)),
            own_feed_places: Arc::new(Semaphore::new(FEEDS_MAX)),
            answered: Counter::default(),
            failed: Counter::default(),
        }
    }

    /// Requests since the start.
    pub(crate) fn counts(&self) -> PeerCallCounts {
        PeerCallCounts {
            answered: self.answered.get(),
            failed: self.failed.get(),
        }
    }

    /// The right to read the other gateways' feeds.
    ///
    /// # Errors
    /// As many readers as may be have it.
    pub(crate) fn take_feed_place(&self, view: &FeedView) -> Result<FeedPlace, ApiError> {
        let places = match view {
            FeedView::All => &self.feed_places,
            FeedView::Own(..) => &self.own_feed_places,
        };
        let place = Arc::clone(places).try_acquire_owned();
        place.map_err(|_| {
            let message = format!(
                "{FEEDS_MAX} readers read the feed of the cluster here; scope=instance is the feed of this gateway"
            );
            ApiError::capacity("overloaded", message, Duration::from_secs(1))
        })
    }

    /// Whether there may be other gateways, now or later.
    pub(crate) fn is_clustered(&self) -> bool {
        self.peers.own_id().is_some()
    }

    /// Whether there are other gateways.
    pub(crate) fn has_gateways(&self) -> bool {
        !self.peers.living(PeerReach::Gateways).is_empty()
    }

    /// Asks all living instances, and collects the complete answers.
    pub(crate) async fn ask_all(&self, reach: PeerReach, request: &PassedRequest) -> PeerAnswers {
        let deadline = Instant::now() + CALL_TIME;
        let peers = self.peers.living(reach);
        if peers.is_empty() {
            return PeerAnswers::default();
        }
        let place = timeout_at(deadline, self.places.acquire()).await;
        let room = AtomicUsize::new(ANSWERS_BYTES_MAX);
        let room = &room;
        let is_late = place.is_err();
        let asked = iter(peers).map(|peer| async move {
            if is_late {
                return (peer, Err(too_many()));
            }
            let answer = timeout_at(deadline, self.read_answer(&peer, request, room)).await;
            let answer = answer.unwrap_or_else(|_| Err(late()));
            (peer, answer)
        });
        let asked: Vec<_> = asked.buffer_unordered(ASKED_AT_ONCE).collect().await;
        drop(place);
        let mut all = PeerAnswers::default();
        for (peer, answer) in asked {
            self.count(answer.is_ok());
            match answer {
                Ok(body) => all.answers.push(PeerAnswer { peer, body }),
                Err(reason) => all.unanswered.push(Unanswered::new(&peer, reason)),
            }
        }
        all.answers.sort_by_key(|answer| answer.peer.id);
        all.unanswered.sort_by(|a, b| a.instance.cmp(&b.instance));
        all
    }

    /// The first response of another gateway that is not one of an instance without the thing asked for. The gateway whose
    /// number is in the id is asked first, and the others if it does not have the thing (a stream was taken over, say) or does
    /// not answer within [`FIRST_TIME`]. Gateways that cannot be asked at all are left out: waiting would not help.
    pub(crate) async fn first_hit(
        &self,
        request: &PassedRequest,
        is_miss: impl Fn(StatusCode) -> bool,
    ) -> FirstHit {
        let deadline = Instant::now() + CALL_TIME;
        let mut peers = self.peers.living(PeerReach::Gateways);
        peers.retain(|peer| peer.address.is_ok());
        let place = timeout_at(deadline, self.places.acquire()).await;
        if place.is_err() {
            let silent = peers.iter().map(|peer| Unanswered::new(peer, too_many()));
            return FirstHit::Unknown(silent.collect());
        }
        let number = request.gateway_number();
        let (named, mut others) = peers
            .into_iter()
            .partition::<Vec<_>, _>(|peer| Some(peer.id.number()) == number);
        let ask_peer = |peer: Peer| async move {
            let response = timeout_at(deadline, ask(&self.peers, &peer, request)).await;
            let response = response.unwrap_or_else(|_| Err(late()));
            (peer, response)
        };
        let mut asked: FuturesUnordered<_> = named.into_iter().map(ask_peer).collect();
        let others_at = Instant::now() + FIRST_TIME;
        let (mut gone, mut unanswered) = (None, Vec::new());
        loop {
            let answered = tokio::select! {
                biased;
                answered = asked.next() => answered,
                () = sleep_until(others_at), if !others.is_empty() => None,
            };
            let Some((peer, response)) = answered else {
                if others.is_empty() {
                    break;
                }
                asked.extend(others.drain(..).map(ask_peer));
                continue;
            };
            match self.judge(response, &is_miss) {
                Ok(Some(response)) if response.status() == StatusCode::GONE => {
                    gone = Some(FirstHit::Hit(peer, response));
                }
                Ok(Some(response)) => return FirstHit::Hit(peer, response),
                Ok(None) => {}
                Err(reason) => unanswered.push(Unanswered::new(&peer, reason)),
            }
        }
        match (gone, unanswered.is_empty()) {
            (Some(gone), _) => gone,
            (None, true) => FirstHit::Nowhere,
            (None, false) => FirstHit::Unknown(unanswered),
        }
    }

    /// Counts an answer: the response about the thing asked for, or none where the gateway does not have it.
    fn judge(
        &self,
        response: Result<Response<Incoming>, String>,
        is_miss: &impl Fn(StatusCode) -> bool,
    ) -> Result<Option<Box<Response<Incoming>>>, String> {
        let answer = response.and_then(|response| match response.status() {
            status if is_miss(status) => Ok(None),
            status if is_failure(status) => Err(refused(status)),
            _ => Ok(Some(Box::new(response))),
        });
        self.count(answer.is_ok());
        answer
    }

    /// Asks all other gateways, and collects the statuses, or why there is no answer. Gateways that cannot be asked at all
    /// are left out: waiting would not help.
    pub(crate) async fn ask_statuses(
        &self,
        request: &PassedRequest,
    ) -> Vec<(Peer, Result<StatusCode, String>)> {
        let deadline = Instant::now() + CALL_TIME;
        let mut peers = self.peers.living(PeerReach::Gateways);
        peers.retain(|peer| peer.address.is_ok());
        let place = timeout_at(deadline, self.places.acquire()).await;
        let is_late = place.is_err();
        let asked = iter(peers).map(|peer| async move {
            if is_late {
                return (peer, Err(too_many()));
            }
            let response = timeout_at(deadline, ask(&self.peers, &peer, request)).await;
            let response = response.unwrap_or_else(|_| Err(late()));
            self.count(response.is_ok());
            (peer, response.map(|response| response.status()))
        });
        asked.buffer_unordered(ASKED_AT_ONCE).collect().await
    }

    async fn read_answer(
        &self,
        peer: &Peer,
        request: &PassedRequest,
        room: &AtomicUsize,
    ) -> Result<Bytes, String> {
        let response = ask(&self.peers, peer, request).await?;
        if response.status() != StatusCode::OK {
            return Err(refused(response.status()));
        }
        let mut body = response.into_body();
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|why| why.to_string())?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let take = |left: usize| left.checked_sub(data.len());
            let taken = room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
            if taken.is_err() {
                return Err(format!(
                    "the answers are larger than {ANSWERS_BYTES_MAX} bytes together"
                ));
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole.freeze())
    }

    fn count(&self, is_answered: bool) {
        let count = if is_answered {
            &self.answered
        } else {
            &self.failed
        };
        count.add(1);
    }
}

/// Whether a status is about the instance, and not about what was asked for.
fn is_failure(status: StatusCode) -> bool {
    const ABOUT_THE_KEY: [StatusCode; 3] = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::MISDIRECTED_REQUEST,
    ];
    status.is_server_error()
        || status == StatusCode::TOO_MANY_REQUESTS
        || ABOUT_THE_KEY.contains(&status)
}

fn late() -> String {
    format!("no answer within {} s", CALL_TIME.as_secs())
}

fn too_many() -> String {
    format!("{CALLS_MAX} other requests to all instances are in progress")
}

fn refused(status: StatusCode) -> String {
    format!("it answered with status {}", status.as_u16())
}
