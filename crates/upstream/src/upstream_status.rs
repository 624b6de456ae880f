//! State of the upstreams: the model that each serves, or why none; and counts.

use super::body::{unsupported_by, unsupported_part};
use super::config::{UpstreamAddress, UpstreamConfig};
use super::http_call::{Target, without_secrets};
use super::model_probe::{FoundModel, find_model};
use generate::remote_request::RemoteRequest;
use http_client::{ClientOptions, HttpClient};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Bytes of one upstream's problem.
const PROBLEM_BYTES_MAX: usize = 300;
/// Idle connections to one upstream that are kept for the next calls.
const IDLE_CONNECTIONS_MAX: usize = 32;

/// State of all upstreams. Each is asked again and again while the value of [`UpstreamStatus::start`] lives.
pub struct UpstreamStatus {
    config: Arc<UpstreamConfig>,
    client: HttpClient,
    /// In the order of the configuration.
    upstreams: Vec<Found>,
    counters: Counters,
    changed: Notify,
    probes: Mutex<JoinSet<()>>,
}

/// The model, or why there is none.
type Found = Mutex<Result<FoundModel, String>>;

#[derive(Default)]
struct Counters {
    calls: AtomicU64,
    continuations: AtomicU64,
    tokens: AtomicU64,
    in_flight: AtomicU64,
    unavailable: AtomicU64,
    cut: AtomicU64,
    refused: AtomicU64,
}

/// Counts of all upstreams together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamCounts {
    /// Upstreams that answer and serve the model.
    pub usable: u64,
    /// Other upstreams.
    pub unusable: u64,
    /// Calls that were begun.
    pub calls: u64,
    /// Calls that continued an answer which another call had begun.
    pub continuations: u64,
    /// Tokens that were received.
    pub tokens: u64,
    /// Calls that run.
    pub in_flight: u64,
    /// Calls that got no response.
    pub unavailable: u64,
    /// Calls whose response ended before the answer.
    pub cut: u64,
    /// Calls that the upstream rejected, or whose response was not understood.
    pub refused: u64,
}

/// Subject of a counter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counted {
    Tokens(u64),
    Unavailable,
    Cut,
    Refused,
}

impl UpstreamStatus {
    /// Begins to ask all upstreams. Must be called inside a tokio runtime.
    pub fn start(config: UpstreamConfig) -> Arc<Self> {
        let unknown = |_: &UpstreamAddress| Mutex::new(Err("not asked yet".to_owned()));
        let status = Arc::new(Self {
            upstreams: config.addresses.iter().map(unknown).collect(),
            counters: Counters::default(),
            client: HttpClient::new(ClientOptions {
                connect_max: config.connect_max,
                idle_max: IDLE_CONNECTIONS_MAX,
                ..ClientOptions::default()
            }),
            config: Arc::new(config),
            changed: Notify::new(),
            probes: Mutex::default(),
        });
        for place in 0..status.upstreams.len() {
            let weak = Arc::downgrade(&status);
            let interval = status.config.probe_interval;
            lock(&status.probes).spawn(async move {
                while let Some(status) = weak.upgrade() {
                    status.probe(place).await;
                    drop(status);
                    sleep(interval).await;
                }
            });
        }
        status
    }

    /// Why no upstream can be used; `None`: one can.
    pub fn problem(&self) -> Option<String> {
        let mut problems = Vec::with_capacity(self.upstreams.len());
        for (found, address) in self.upstreams.iter().zip(&self.config.addresses) {
            match &*lock(found) {
                Ok(_) => return None,
                Err(why) => problems.push(format!("{address}: {why}")),
            }
        }
        Some(format!("no upstream can be used: {}", problems.join("; ")))
    }

    /// Whether an upstream can be used.
    pub(crate) fn is_usable(&self) -> bool {
        (0..self.upstreams.len()).any(|place| self.found(place).is_some())
    }

    /// Waits until an upstream can be used. Returns the smallest context that a usable upstream names.
    pub async fn wait_until_usable(&self) -> Option<usize> {
        loop {
            let changed = self.changed.notified();
            let models = (0..self.upstreams.len()).filter_map(|place| self.found(place));
            let models: Vec<FoundModel> = models.collect();
            if !models.is_empty() {
                return models.iter().filter_map(|model| model.context_max).min();
            }
            changed.await;
        }
    }

    /// Counts of all upstreams together.
    pub fn counts(&self) -> UpstreamCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let places = 0..self.upstreams.len();
        let usable = places.filter(|&place| self.found(place).is_some()).count() as u64;
        let counters = &self.counters;
        UpstreamCounts {
            usable,
            unusable: self.upstreams.len() as u64 - usable,
            calls: get(&counters.calls),
            continuations: get(&counters.continuations),
            tokens: get(&counters.tokens),
            in_flight: get(&counters.in_flight),
            unavailable: get(&counters.unavailable),
            cut: get(&counters.cut),
            refused: get(&counters.refused),
        }
    }

    /// Why no upstream can compute a request with this record; `None`: one may.
    pub(crate) fn refusal(&self, record: &[u8]) -> Option<String> {
        let request = match RemoteRequest::decode(record) {
            Ok(request) => request,
            Err(why) => return Some(why.to_string()),
        };
        let models = (0..self.upstreams.len()).filter_map(|place| self.found(place));
        let parts = models.map(|model| unsupported_by(&model.kind, &request.params));
        let parts: Vec<_> = parts.collect();
        let is_by_all = !parts.is_empty() && parts.iter().all(Option::is_some);
        let by_all = parts.into_iter().flatten().next().filter(|_| is_by_all);
        let part = unsupported_part(&request).or(by_all)?;
        Some(format!(
            "{part}: not supported: the tokens are computed by servers of others (upstream.addresses)"
        ))
    }

    /// The client for all upstreams of the model.
    pub(crate) fn client(&self) -> &HttpClient {
        &self.client
    }

    pub(crate) fn config(&self) -> &Arc<UpstreamConfig> {
        &self.config
    }

    /// The models of upstreams that can be used and have this property, by the place of the upstream.
    pub(crate) fn allowed_models(
        &self,
        is_allowed: impl Fn(&FoundModel) -> bool,
    ) -> Vec<Option<FoundModel>> {
        let places = 0..self.upstreams.len();
        places
            .map(|place| self.found(place).filter(&is_allowed))
            .collect()
    }

    /// The model of an upstream that can be used.
    fn found(&self, place: usize) -> Option<FoundModel> {
        lock(self.upstreams.get(place)?).clone().ok()
    }

    /// Whether ids of an upstream may only have its text.
    pub(crate) fn may_cover_text(&self) -> bool {
        let models = self.allowed_models(|model| model.kind.may_cover_text());
        models.iter().any(Option::is_some)
    }

    pub(crate) fn count(&self, what: Counted) {
        let counters = &self.counters;
        let (counter, n) = match what {
            Counted::Tokens(tokens) => (&counters.tokens, tokens),
            Counted::Unavailable => (&counters.unavailable, 1),
            Counted::Cut => (&counters.cut, 1),
            Counted::Refused => (&counters.refused, 1),
        };
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// Counts a call; `continues`: an answer that another call has begun.
    pub(crate) fn count_call(&self, continues: bool) {
        let counters = &self.counters;
        counters.calls.fetch_add(1, Ordering::Relaxed);
        counters
            .continuations
            .fetch_add(u64::from(continues), Ordering::Relaxed);
    }

    pub(crate) fn set_in_flight(&self, calls: usize) {
        self.counters
            .in_flight
            .store(calls as u64, Ordering::Relaxed);
    }

    async fn probe(&self, place: usize) {
        let address = &self.config.addresses[place];
        let target = Target {
            config: &self.config,
            client: &self.client,
            address,
        };
        let found = find_model(target).await.map_err(|why| {
            let mut why = without_secrets(&why, self.config.api_key.as_deref());
            let mut ends = (0..=PROBLEM_BYTES_MAX.min(why.len())).rev();
            let end = ends.find(|end| why.is_char_boundary(*end));
            why.truncate(end.unwrap_or(0));
            why
        });
        let before = std::mem::replace(&mut *lock(&self.upstreams[place]), found.clone());
        if before == found {
            return;
        }
        match found {
            Ok(model) => {
                tracing::info!(%address, model = model.name, kind = ?model.kind, "an upstream can be used");
            }
            Err(why) => tracing::warn!(%address, "an upstream cannot be used: {why}"),
        }
        self.changed.notify_waiters();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
