//! Stored answers over restarts: each process starts on a copy of the journal's folder, as after a power loss.

use super::super::stored_snapshot::SNAPSHOT_VERSION;
use super::*;
use crate::keys::{Keys, Scopes};
use crate::limits::{GatewayLimits, ResponseLimits};
use crate::records::DescriptionKind;
use crate::streams::{StreamFeed, StreamJournal};
use bytes::Bytes;
use journal::{JournalConfig, JournalDirectory, open_journal};
use std::path::PathBuf;
use std::time::Duration;
use stream::Owner;
use testing::folder::Folder;

const LIMITS: ResponseLimits = ResponseLimits {
    stored_max: 3,
    stored_bytes: 1 << 20,
};

fn limits(responses: ResponseLimits) -> Arc<LiveLimits> {
    Arc::new(LiveLimits::new(GatewayLimits::of_tests(responses)))
}

/// A journal that is rewritten soon.
fn small_journal() -> JournalConfig {
    JournalConfig {
        segment_bytes: 256 << 10,
        bytes_max: 32 << 20,
        // Records are acknowledged after they were synced, so that rewriting keeps up with the objects of a test.
        sync_interval: Duration::ZERO,
        ..JournalConfig::default()
    }
}

/// A process with a journal in a folder of its own.
struct Process {
    folder: Folder,
    store: ResponseStore,
    journal: Arc<StreamJournal>,
    caller: Caller,
    /// Streams in the journal that are no stored answers.
    others: usize,
}

impl Process {
    fn first() -> Self {
        Self::start(Folder::new("stored"), LIMITS)
    }

    fn start(folder: Folder, responses: ResponseLimits) -> Self {
        let directory = JournalDirectory::new(journal_path(&folder));
        let (writer, recovered) = open_journal(directory, small_journal()).expect("a journal");
        let (journal, objects) =
            StreamJournal::start(writer, recovered, (StreamFeed::new(), None)).expect("a thread");
        let slot = Arc::<JournalSlot>::default();
        slot.set(Arc::clone(&journal));
        let store = ResponseStore::new(limits(responses), slot, Default::default());
        let others = store.restore_answers(objects).len();
        let caller = Keys::anonymous().identify(None).expect("a caller");
        Self {
            folder,
            store,
            journal,
            caller,
            others,
        }
    }

    /// The process that starts after this one has died now.
    fn next(&self) -> Self {
        self.next_with(LIMITS)
    }

    fn next_with(&self, responses: ResponseLimits) -> Self {
        // A segment that is deleted meanwhile was written again elsewhere.
        let copy = std::iter::repeat_with(|| copy_journal(&self.folder))
            .flatten()
            .next();
        Self::start(copy.expect("a copy"), responses)
    }

    /// Stores an answer that has ended at this time.
    async fn keep(&self, id: &str, kind: StoredKind, unix_us: u64) {
        let note = StoredNote {
            kind,
            created_unix_us: unix_us,
            items: Box::default(),
            previous: None,
            metadata: Metadata::new(),
            repeated_fields: String::new(),
            is_durable: true,
        };
        let snapshot = StoredSnapshot {
            kind: DescriptionKind::StoredBlob,
            version: SNAPSHOT_VERSION,
            response_id: id.to_owned(),
            stream: StreamId::from_random([unix_us as u8; 16]),
            owner: self.caller.owner.0,
            model: "m".to_owned(),
            ended_unix_us: unix_us,
            taken_unix_us: unix_us,
            note,
        };
        let outcome = EndedResponse {
            body: Bytes::from(format!("{{\"id\":\"{id}\",\"x\":1.50}}")),
            items: Box::new([r#"{"y":1e400}"#.into()]),
            ended_unix_us: unix_us,
            is_discarded: false,
        };
        let (description, outcome) = snapshot.encode(&outcome).expect("short");
        self.keep_bytes(description, outcome).await;
    }

    async fn keep_bytes(&self, description: Vec<u8>, outcome: Vec<u8>) {
        let id = u128::from_be_bytes(self.store.ids.next_random());
        let blob = self
            .journal
            .store_blob(id, description.clone(), (outcome.clone(), true));
        let blob = blob.expect("a working journal");
        assert!(blob.written().await);
        self.store.restore(&description, &outcome, blob);
    }

    /// Names of the journal's segments, the oldest first.
    fn segments(&self) -> Vec<String> {
        let files = std::fs::read_dir(journal_path(&self.folder)).expect("the journal");
        let names = files.map(|file| file.expect("a file").file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned());
        let mut segments: Vec<String> = names.filter(|name| name.ends_with(".log")).collect();
        segments.sort();
        segments
    }

    /// Ids of all answers, the oldest first.
    fn ids(&self) -> Vec<String> {
        let kept = crate::locks::lock(&self.store.kept);
        kept.by_age()
            .map(|record| record.response_id.to_string())
            .collect()
    }

    /// Ids in a copy of the journal, when they are these: forgetting is not waited for.
    async fn wait_for_journal(&self, want: &[&str]) {
        for _ in 0..100 {
            if self.next().ids() == want {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("{:?} in the journal, not {want:?}", self.next().ids());
    }
}

/// A copy of a journal; `None` if a segment was deleted meanwhile.
fn copy_journal(from: &Folder) -> Option<Folder> {
    let folder = Folder::new("stored");
    let to = journal_path(&folder);
    std::fs::create_dir_all(&to).ok()?;
    for file in std::fs::read_dir(journal_path(from)).ok()? {
        let file = file.ok()?;
        std::fs::copy(file.path(), to.join(file.file_name())).ok()?;
    }
    Some(folder)
}

fn journal_path(folder: &Folder) -> PathBuf {
    folder.0.join("journal")
}

#[tokio::test]
async fn ended_answers_survive_restarts() {
    let first = Process::first();
    // In the order of their creation, whatever the order in the journal is.
    for (id, kind, at) in [
        ("resp_b", StoredKind::Response, 20),
        ("chatcmpl-a", StoredKind::ChatCompletion, 10),
        ("resp_c", StoredKind::Response, 30),
    ] {
        first.keep(id, kind, at).await;
    }
    let second = first.next();
    let third = second.next();
    for process in [&first, &second, &third] {
        assert_eq!(process.ids(), ["chatcmpl-a", "resp_b", "resp_c"]);
        assert_eq!(process.others, 0);
        let record = process.store.find_response("resp_b", &process.caller);
        let record = record.expect("stored");
        let ResponseLookup::Ended(outcome) = process.store.look_up(&record) else {
            panic!("the response has ended");
        };
        assert_eq!(outcome.body, r#"{"id":"resp_b","x":1.50}"#);
        assert_eq!(
            outcome.items.iter().map(|item| &**item).collect::<String>(),
            r#"{"y":1e400}"#
        );
        let chat = process.store.find_completion("chatcmpl-a", &process.caller);
        let want = r#"{"id":"chatcmpl-a","x":1.50,"metadata":{}}"#;
        assert_eq!(chat.expect("stored").json(), want);
        let mut stranger = process.caller.clone();
        (stranger.owner, stranger.scopes) = (Owner(9), Scopes::default());
        assert!(process.store.find_response("resp_b", &stranger).is_err());
    }
}

#[tokio::test]
async fn changed_metadata_and_deletions_survive_restarts() {
    let first = Process::first();
    first
        .keep("chatcmpl-a", StoredKind::ChatCompletion, 10)
        .await;
    first
        .keep("chatcmpl-b", StoredKind::ChatCompletion, 20)
        .await;
    for value in ["1", "2"] {
        let found = first.store.find_completion("chatcmpl-a", &first.caller);
        let metadata: Metadata = [("n".to_owned(), value.to_owned())].into();
        let mut found = found.expect("stored");
        first.store.set_metadata(&mut found, metadata.clone()).await;
        let next = first.next();
        let restored = next.store.find_completion("chatcmpl-a", &next.caller);
        assert_eq!(*restored.expect("stored").metadata, metadata);
        assert_eq!(
            next.ids(),
            ["chatcmpl-a", "chatcmpl-b"],
            "the last snapshot counts"
        );
    }
    let found = first
        .store
        .find_completion("chatcmpl-b", &first.caller)
        .expect("stored");
    let _ = first.store.remove(&found.record);
    drop(found);
    first.wait_for_journal(&["chatcmpl-a"]).await;
}

#[tokio::test]
async fn bounds_hold_after_a_restart() {
    let first = Process::first();
    for (id, at) in [("resp_a", 10), ("resp_b", 20), ("resp_c", 30)] {
        first.keep(id, StoredKind::Response, at).await;
    }
    // An evicted answer is not in the journal.
    first.keep("resp_d", StoredKind::Response, 40).await;
    assert_eq!(first.ids(), ["resp_b", "resp_c", "resp_d"]);
    first
        .wait_for_journal(&["resp_b", "resp_c", "resp_d"])
        .await;
    let one = ResponseLimits {
        stored_max: 1,
        ..LIMITS
    };
    let narrow = first.next_with(one);
    assert_eq!(narrow.ids(), ["resp_d"], "the last one that ended");
}

#[tokio::test]
async fn answers_survive_the_rewriting_of_the_journal() {
    let mut process = Process::first();
    process.keep("resp_a", StoredKind::Response, 10).await;
    process
        .keep("chatcmpl-b", StoredKind::ChatCompletion, 20)
        .await;
    // Once written by this process, once recovered.
    for _ in 0..2 {
        let first_segment = process.segments().swap_remove(0);
        // Other objects come and go until the first segment is deleted.
        let bytes = vec![b' '; 32 << 10];
        while process.segments().contains(&first_segment) {
            let id = u128::from_be_bytes(process.store.ids.next_random());
            let other = process
                .journal
                .store_blob(id, bytes.clone(), (bytes.clone(), true));
            assert!(other.expect("a working journal").written().await);
        }
        process = process.next();
        assert_eq!(process.ids(), ["resp_a", "chatcmpl-b"]);
        let found = process.store.find_response("resp_a", &process.caller);
        let ResponseLookup::Ended(outcome) = process.store.look_up(&found.expect("stored")) else {
            panic!("the response has ended");
        };
        assert_eq!(outcome.body, r#"{"id":"resp_a","x":1.50}"#);
    }
}

#[tokio::test]
async fn unreadable_answer_stays_in_the_journal() {
    let first = Process::first();
    first.keep("resp_a", StoredKind::Response, 10).await;
    let later = br#"{"kind":"stored_blob","version":2,"anything":[]}"#;
    first.keep_bytes(later.to_vec(), b"{}".to_vec()).await;
    let second = first.next();
    assert_eq!(second.ids(), ["resp_a"]);
    second.wait_for_journal(&["resp_a"]).await;
    let unreadable = |process: &Process| {
        let unreadable = process.store.unreadable.lock();
        unreadable.expect("no panic").len()
    };
    assert_eq!(
        (
            unreadable(&first),
            unreadable(&second),
            unreadable(&second.next())
        ),
        (1, 1, 1)
    );
}

#[tokio::test]
async fn answers_stay_in_memory_when_the_journal_stops() {
    let first = Process::first();
    first
        .keep("chatcmpl-a", StoredKind::ChatCompletion, 10)
        .await;
    first.journal.stop();
    let metadata: Metadata = [("n".to_owned(), "1".to_owned())].into();
    let found = first.store.find_completion("chatcmpl-a", &first.caller);
    let mut found = found.expect("stored");
    first.store.set_metadata(&mut found, metadata.clone()).await;
    let found = first.store.find_completion("chatcmpl-a", &first.caller);
    assert_eq!(*found.expect("stored").metadata, metadata);
    let next = first.next();
    let found = next.store.find_completion("chatcmpl-a", &next.caller);
    assert!(found.expect("the last snapshot").metadata.is_empty());
}
