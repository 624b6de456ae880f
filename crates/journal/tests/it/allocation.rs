//! After warm-up neither appending, committing nor syncing allocates.
//!
//! Promise (Journal): appending, committing and syncing allocate nothing after warm-up.

use crate::driver::small_config;
use journal::{JournalConfig, JournalDirectory, Record, Tokens, open_journal};
use std::time::Duration;
use testing::folder::Folder;
use testing::heap::thread_allocations;

#[test]
fn steady_state_allocates_nothing() {
    let folder = Folder::new("journal-allocation");
    let config = JournalConfig {
        segment_bytes: 1 << 20,
        bytes_max: 64 << 20,
        ..small_config()
    };
    let (mut writer, _) = open_journal(JournalDirectory::new(&folder.0), config).unwrap();
    let keys: Vec<_> = (0..100)
        .map(|id| writer.open_stream(id, b"description").unwrap())
        .collect();
    let mut now = Duration::ZERO;
    let mut run_turns = |turns: u32, first: u32| {
        let before = thread_allocations();
        for turn in first..first + turns {
            for key in &keys {
                let tokens = Tokens {
                    first: turn,
                    ids: &[turn],
                    logprobs: &[-1.0],
                    ..Tokens::default()
                };
                writer.append(*key, &Record::Tokens(tokens)).unwrap();
            }
            now += Duration::from_millis(50);
            writer.commit(now);
            if let Some(job) = writer.take_sync_job(now) {
                writer.finish_sync(job.run(), now);
            }
        }
        thread_allocations() - before
    };
    run_turns(10, 0);
    assert_eq!(run_turns(300, 10), 0);
}
