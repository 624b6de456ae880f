//! Streams that this gateway does not have: another gateway owns them, or has owned them and is gone.
//!
//! The owner of a stream is named by the last message of the stream's records in JetStream. An owner that is alive answers
//! the request itself. The stream of an owner that is gone is claimed, and continued here as after a restart.

use crate::handles::Gateway;
use crate::keys::Keys;
use crate::owners_slot::{OwnerState, StreamOwners};
use crate::records::images_of_description;
use crate::recovery::ownership::end_fenced_stream;
use crate::recovery::starting_journal::take_over_stream;
use cluster::names::InstanceId;
use cluster::nats::Connection;
use cluster::records::{
    ClaimOutcome, IdentityCheck, JetStreamRecords, LastMessage, RecordsDriver, RecordsLink,
    SharedReplicator,
};
use generate::images::{ImagePart, ImageRecord};
use journal::{BlobReference, BlobStore, RecoveredStream};
use std::sync::Arc;
use std::time::Duration;
use stream::{Caller, Missing, Owner, StreamId};
use wire::clock;

/// Where a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamPlace {
    /// In this process.
    Here,
    /// At this instance, with this address.
    At(InstanceId, String),
    /// Nowhere.
    Unknown,
    /// With an owner whose heartbeats are missing, but not for long enough.
    Silent,
    /// Not known at the moment, for this reason.
    Undecided(String),
}

/// Needs of the records of a gateway.
pub struct RecordsSetup {
    /// The connection to NATS.
    pub connection: Arc<Connection>,
    /// The records of all gateways' streams.
    pub store: JetStreamRecords,
    /// The records of this gateway's streams.
    pub replicator: Arc<SharedReplicator>,
    /// The cluster of this process; `None`: the records are not compared with it.
    pub identity: Option<IdentityCheck>,
    /// Liveness of an instance.
    pub state_of: Box<dyn Fn(InstanceId) -> OwnerState + Send + Sync>,
    /// The other gateways that are known, also those that are gone.
    pub others: Box<dyn Fn() -> Vec<InstanceId> + Send + Sync>,
    /// Bytes of a stream that is taken over, in memory.
    pub stream_bytes_max: usize,
    /// Whether an earlier process of this journal may have stored records, so that another gateway may own its streams.
    pub may_be_replicated: bool,
    /// Called before the first record is stored.
    pub on_store: Box<dyn Fn() + Send + Sync>,
}

/// Starts to store the records of a gateway's streams, and to find the streams of other gateways. To be called before the
/// journal is read, whose writer has the replicator's tap.
///
/// # Errors
/// The connection is closed.
pub async fn start_records(
    gateway: &Gateway,
    keys: Arc<Keys>,
    setup: RecordsSetup,
) -> Result<RecordsDriver, String> {
    let (fencing, journal) = (gateway.clone(), Arc::clone(&gateway.generations.journal));
    let files = Arc::clone(&journal);
    let driver = RecordsDriver::start(RecordsLink {
        connection: setup.connection,
        store: setup.store.clone(),
        replicator: Arc::clone(&setup.replicator),
        identity: setup.identity,
        on_fenced: Box::new(move |fenced| end_fenced_stream(&fencing, fenced)),
        on_store: setup.on_store,
        on_wanted: Box::new(move || {
            if let Some(journal) = journal.get() {
                journal.wake();
            }
        }),
        read_file: Arc::new(move |name| {
            let store = files.get()?.blobs()?;
            store.read(&store.reference(*name)?).ok()
        }),
    });
    let driver = driver.await?;
    gateway.owners.set(Arc::new(StreamOwners {
        store: setup.store,
        replicator: setup.replicator,
        state_of: setup.state_of,
        others: setup.others,
        keys,
        stream_bytes_max: setup.stream_bytes_max,
        may_be_replicated: setup.may_be_replicated,
        status: Arc::clone(driver.status()),
    }));
    Ok(driver)
}

/// Time between two looks at an instance that does not answer.
const LOST_LOOK: Duration = Duration::from_millis(50);

/// Ready when heartbeats of an instance are missing: a process that is stopped accepts connections and answers nothing.
pub async fn wait_until_lost(gateway: &Gateway, instance: InstanceId) {
    let Some(owners) = gateway.owners.get() else {
        return;
    };
    while matches!((owners.state_of)(instance), OwnerState::Alive(_)) {
        tokio::time::sleep(LOST_LOOK).await;
    }
}

/// Where a stream of the caller is; one whose owner is gone is here afterwards. The caller's key is compared before any
/// record is read.
pub async fn locate_stream(gateway: &Gateway, id: StreamId, caller: Caller) -> StreamPlace {
    let Some(owners) = gateway.owners.get() else {
        return StreamPlace::Here;
    };
    if is_here(gateway, id) {
        return StreamPlace::Here;
    }
    let _one = gateway.owners.begin_lookup(id).await;
    if is_here(gateway, id) {
        return StreamPlace::Here;
    }
    locate(owners, gateway, id, caller).await
}

fn is_here(gateway: &Gateway, id: StreamId) -> bool {
    let registry = gateway.generations.streams.registry();
    registry.entry(id, Caller::Admin).is_ok()
}

fn was_removed(gateway: &Gateway, id: StreamId) -> bool {
    let registry = gateway.generations.streams.registry();
    matches!(registry.entry(id, Caller::Admin), Err(Missing::Gone(_)))
}

async fn locate(
    owners: &StreamOwners,
    gateway: &Gateway,
    id: StreamId,
    caller: Caller,
) -> StreamPlace {
    let last = match owners.store.last_message(id.to_bits()).await {
        Ok(Some(last)) => last,
        Ok(None) => return StreamPlace::Unknown,
        // Without JetStream there are no records: no stream can be taken over.
        Err(_) if owners.status.is_not_enabled() => return StreamPlace::Unknown,
        Err(why) => return StreamPlace::Undecided(why),
    };
    if !caller.may_see(Owner(last.head.key)) {
        return StreamPlace::Unknown;
    }
    if last.head.instance == owners.replicator.lock().instance() && was_removed(gateway, id) {
        // The records are about to be purged.
        return StreamPlace::Unknown;
    }
    match owners.state_of_owner(&last) {
        OwnerState::Alive(Some(address)) => StreamPlace::At(last.head.instance, address),
        OwnerState::Alive(None) => {
            let why = "the gateway that owns the stream has no address that is trusted (cluster.address, cluster.secret_file)";
            StreamPlace::Undecided(why.to_owned())
        }
        OwnerState::Silent => StreamPlace::Silent,
        OwnerState::Gone => claim(owners, gateway, id, |_| true).await,
    }
}

/// Attempts to read a file from JetStream.
const FILE_ATTEMPTS_MAX: usize = 8;
/// Pause between them.
const FILE_PAUSE: Duration = Duration::from_millis(250);

/// Brings the images of a claimed stream from JetStream into this gateway's journal, where they have to be when the stream is
/// registered. Without one of them the stream ends as lost.
async fn restore_files(
    owners: &StreamOwners,
    gateway: &Gateway,
    stream: &RecoveredStream,
) -> Vec<BlobReference> {
    let images = images_of_description(&stream.description);
    let blobs = gateway.generations.journal.get();
    let Some(blobs) = blobs.and_then(|journal| journal.blobs()) else {
        return Vec::new();
    };
    let mut references = Vec::new();
    for image in images {
        let Some(name) = image.digest() else {
            continue;
        };
        if let Some(reference) = blobs.reference(name) {
            references.push(reference);
            continue;
        }
        match restore_file(owners, blobs, (stream.id, image)).await {
            Ok(reference) => references.push(reference),
            Err(why) => {
                let id = StreamId::from_bits(stream.id);
                tracing::warn!(stream = %id, "an image of a stream that was taken over is missing: {why}");
            }
        }
    }
    references
}

async fn restore_file(
    owners: &StreamOwners,
    blobs: &BlobStore,
    (stream, image): (u128, ImageRecord),
) -> Result<BlobReference, String> {
    let name = image.digest().ok_or("its name is no hash")?;
    let length = usize::try_from(image.bytes).unwrap_or(usize::MAX);
    let mut attempts = 0;
    let file = loop {
        match owners.store.file(stream, &name, length).await {
            Ok(file) => break file.ok_or("JetStream does not have it")?,
            Err(why) if attempts == FILE_ATTEMPTS_MAX => return Err(why),
            Err(_) => attempts += 1,
        }
        tokio::time::sleep(FILE_PAUSE).await;
    };
    let blobs = blobs.clone();
    let put = move || {
        let part = ImagePart::of_record(&image, file.into()).map_err(|why| why.to_string())?;
        blobs.put(name, &part.bytes).map_err(|why| why.to_string())
    };
    let put = tokio::task::spawn_blocking(put).await;
    put.unwrap_or_else(|_| Err("it cannot be written".to_owned()))
}

/// Takes a stream over whose owner is gone, if `is_wanted` agrees with the records.
pub(crate) async fn claim(
    owners: &StreamOwners,
    gateway: &Gateway,
    id: StreamId,
    is_wanted: impl Fn(&RecoveredStream) -> bool,
) -> StreamPlace {
    let journal = gateway.generations.journal.get();
    if !journal.is_some_and(|journal| journal.is_working()) {
        let why = "the stream's owner is gone, and this gateway has no journal to continue it";
        return StreamPlace::Undecided(why.to_owned());
    }
    let instance = owners.replicator.lock().instance();
    let may_replace = |last: &LastMessage, stored: &RecoveredStream| {
        owners.state_of_owner(last) == OwnerState::Gone && is_wanted(stored)
    };
    let bits = id.to_bits();
    let claimed = owners
        .store
        .claim(bits, instance, owners.stream_bytes_max, may_replace);
    match claimed.await {
        Ok(ClaimOutcome::Claimed(claimed)) => {
            let generation = claimed.place.generation;
            tracing::info!(stream = %id, generation, "a stream of a dead gateway is taken over");
            let now = clock::now();
            owners
                .replicator
                .lock()
                .claim_stream(bits, claimed.place, now);
            let files = restore_files(owners, gateway, &claimed.stream).await;
            let is_here = take_over_stream(gateway, &owners.keys, claimed.stream);
            // From here on the stream has references of its own.
            drop(files);
            if is_here {
                StreamPlace::Here
            } else {
                StreamPlace::Undecided("the journal does not work".to_owned())
            }
        }
        Ok(ClaimOutcome::OwnedBy(last)) => match owners.state_of_owner(&last) {
            OwnerState::Alive(Some(address)) => StreamPlace::At(last.head.instance, address),
            _ => StreamPlace::Undecided("the stream has a new owner".to_owned()),
        },
        Ok(ClaimOutcome::Unknown) => StreamPlace::Unknown,
        Err(why) => StreamPlace::Undecided(why),
    }
}
