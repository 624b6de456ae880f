//! Streams on other machines: a tap on the records that are appended to a writer, and one stream rebuilt from records that
//! another machine has sent.

use crate::frame::FrameHeader;
use crate::record::{
    FRAME_BYTES_MAX, OPEN_VERSION, RECORD_BYTES_MAX, RECORD_HEADER_BYTES_MAX, Record,
};
use crate::record_encoding::{RawRecord, RecordAddress};
use crate::recovered_stream::RecoveredStream;
use crate::replay::Replay;
use crate::stream_table::StreamKey;

/// A stream with the place of further records.
#[derive(Clone, Debug)]
pub struct RemoteStream {
    /// The stream; the key is [`StreamKey::NONE`].
    pub stream: RecoveredStream,
    /// Address of the next record.
    pub next: RecordAddress,
}

/// Why records are no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// No beginning of the stream was found.
    #[error("the records of the stream have no beginning")]
    NoBeginning,
    /// A newer version wrote the description.
    #[error("a newer version ({0}) wrote the stream's records")]
    NewerVersion(u32),
}

/// Collects the messages of one stream.
#[derive(Debug)]
pub struct RemoteRecords {
    replay: Replay,
    /// The part of a record at the end of the last message.
    carry: Vec<u8>,
    frames: u64,
}

impl RemoteRecords {
    /// Records whose streams take at most `bytes_max` of memory.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            replay: Replay::new(bytes_max),
            carry: Vec::new(),
            frames: 0,
        }
    }

    /// Applies the records of a message. `continues`: the message follows the last one of the same sender; otherwise the
    /// part of a record that the last one ended with is dropped.
    pub fn push_message(&mut self, records: &[u8], continues: bool) {
        if !continues {
            self.carry.clear();
        }
        self.carry.extend_from_slice(records);
        let mut whole = 0;
        while let Some(raw) = self.carry.get(whole..).and_then(RawRecord::read) {
            whole += raw.bytes;
        }
        let header = FrameHeader {
            number: self.frames,
            boot: 0,
            settled: 0,
        };
        self.frames += 1;
        self.replay
            .apply_frame(&header, 0, self.carry.get(..whole).unwrap_or_default());
        self.carry.drain(..whole);
        if self.carry.len() > RECORD_HEADER_BYTES_MAX + RECORD_BYTES_MAX {
            // No record is so long: the bytes are none.
            self.replay.note_damage(self.frames);
            self.carry.clear();
        }
        debug_assert!(self.carry.capacity() <= 4 * FRAME_BYTES_MAX, "bounded");
    }

    /// The stream with this id.
    ///
    /// # Errors
    /// There is none, or this version cannot read it.
    pub fn finish(self, id: u128) -> Result<RemoteStream, ReplayError> {
        let streams = self.replay.finish().streams;
        let found = streams.into_iter().find(|(_, stream)| stream.id == id);
        let (handle, stream) = found.ok_or(ReplayError::NoBeginning)?;
        if stream.version > OPEN_VERSION {
            return Err(ReplayError::NewerVersion(stream.version));
        }
        let sequence = stream.next_sequence;
        Ok(RemoteStream {
            stream: stream.into_recovered(StreamKey::NONE),
            next: RecordAddress { handle, sequence },
        })
    }
}

/// Receives records on the thread that appends them, before the disk does and also while the disk fails. No method may
/// wait.
pub trait RecordTap: Send {
    /// A stream begins.
    fn open_stream(&mut self, key: StreamKey, id: u128, description: &[u8]);

    /// A record was appended to a stream. Tokens may be more than one record holds.
    fn append(&mut self, id: u128, record: &Record<'_>);

    /// The retention of a stream has ended.
    fn forget_stream(&mut self, id: u128);

    /// The next stream that the tap needs once more from memory, if any: the caller passes the state to
    /// [`copy_stream`](Self::copy_stream). Each call returns another stream.
    fn next_copy(&mut self) -> Option<(StreamKey, u128)>;

    /// Receives a stream once more: the description, and the records that `write` passes on.
    fn copy_stream(&mut self, id: u128, description: &[u8], write: RecordSource<'_>);
}

/// Passes the records of a stream to its argument.
pub type RecordSource<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&Record<'_>));

#[cfg(test)]
mod tests {
    //! Promise (Records of streams in JetStream): messages cut anywhere give the stream; a missing one makes the
    //! stream lost.

    use super::*;
    use crate::record::{Open, REWRITTEN, Record, Tokens};
    use crate::record_encoding::encode_record;
    use crate::recovered_stream::{Integrity, LossReason};

    const ID: u128 = 7;

    fn encoded(records: &[(u64, u64, Record<'_>)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (handle, sequence, record) in records {
            let (handle, sequence) = (*handle, *sequence);
            encode_record(&mut out, RecordAddress { handle, sequence }, record).unwrap();
        }
        out
    }

    fn tokens(first: u32, ids: &[u32]) -> Record<'_> {
        Record::Tokens(Tokens {
            first,
            ids,
            ..Tokens::default()
        })
    }

    fn replay(bytes: &[u8], cut: usize) -> Result<RemoteStream, ReplayError> {
        let mut records = RemoteRecords::new(1 << 20);
        for message in bytes.chunks(cut) {
            records.push_message(message, true);
        }
        records.finish(ID)
    }

    #[test]
    fn messages_cut_anywhere_give_the_stream() {
        let bytes = encoded(&[
            (5, 0, Record::Open(Open::new(ID, b"{\"prompt\":1}"))),
            (5, 1, tokens(0, &[1, 2, 300_000])),
            (5, 2, tokens(3, &[4])),
        ]);
        for cut in 1..=bytes.len() {
            let found = replay(&bytes, cut).unwrap();
            assert_eq!(found.stream.choices[0].ids, [1, 2, 300_000, 4], "{cut}");
            assert_eq!(found.stream.integrity, Integrity::Intact);
            assert_eq!(found.next.handle, 5);
            assert_eq!(found.next.sequence, 3);
            assert_eq!(found.stream.key, StreamKey::NONE);
        }
    }

    #[test]
    fn part_of_a_record_of_a_dead_sender_is_dropped() {
        let first = encoded(&[
            (5, 0, Record::Open(Open::new(ID, b"{}"))),
            (5, 1, tokens(0, &[1])),
            (5, 2, tokens(1, &[2])),
        ]);
        let second = encoded(&[(5, 2, tokens(1, &[9]))]);
        let mut records = RemoteRecords::new(1 << 20);
        records.push_message(&first[..first.len() - 1], false);
        records.push_message(&second, false);
        let found = records.finish(ID).unwrap();
        assert_eq!(found.stream.choices[0].ids, [1, 9]);
        assert_eq!(found.stream.integrity, Integrity::Intact);
    }

    fn rewritten(copy: u64) -> Record<'static> {
        let why = REWRITTEN;
        Record::Forgotten { why, copy }
    }

    #[test]
    fn copy_counts_when_the_original_is_forgotten() {
        let copy = Open {
            replaces: 5,
            ..Open::new(ID, b"copy")
        };
        let records = [
            (5, 0, Record::Open(Open::new(ID, b"first"))),
            (5, 1, tokens(0, &[1, 2])),
            (6, 0, Record::Open(copy)),
            (6, 1, tokens(0, &[1, 2])),
            (5, 2, rewritten(6)),
            (6, 2, tokens(2, &[3])),
        ];
        for (count, description, tokens) in [(4, "first", 2), (5, "copy", 2), (6, "copy", 3)] {
            let bytes = encoded(&records[..count]);
            let found = replay(&bytes, 9).unwrap().stream;
            assert_eq!(found.description, description.as_bytes());
            assert_eq!(found.choices[0].ids.len(), tokens);
        }
        // The original's messages were purged.
        let found = replay(&encoded(&records[2..]), 9).unwrap().stream;
        assert_eq!(found.integrity, Integrity::Intact);
        assert_eq!(found.choices[0].ids, [1, 2, 3]);
    }

    #[test]
    fn unfinished_copy_does_not_count_for_another_one() {
        let copy = Open {
            replaces: 5,
            ..Open::new(ID, b"copy")
        };
        let records = |named| {
            encoded(&[
                (5, 0, Record::Open(Open::new(ID, b"first"))),
                (6, 0, Record::Open(copy)),
                (6, 1, tokens(0, &[1, 2])),
                (5, 1, rewritten(named)),
            ])
        };
        let copied = |named| replay(&records(named), 9).map(|found| found.stream.description);
        assert_eq!(copied(6), Ok(b"copy".to_vec()));
        assert_eq!(copied(0), Ok(b"copy".to_vec()), "of an earlier version");
        assert_eq!(copied(7), Err(ReplayError::NoBeginning), "7 is lost");
    }

    #[test]
    fn missing_message_makes_the_stream_lost() {
        let bytes = encoded(&[
            (5, 0, Record::Open(Open::new(ID, b"{}"))),
            (5, 2, tokens(1, &[2])),
        ]);
        let found = replay(&bytes, bytes.len()).unwrap().stream;
        assert_eq!(found.integrity, Integrity::Lost(LossReason::Hole));
    }

    #[test]
    fn records_without_a_beginning_are_an_error() {
        assert_eq!(replay(&[], 1).unwrap_err(), ReplayError::NoBeginning);
        let open = Open {
            version: OPEN_VERSION + 1,
            ..Open::new(ID, b"{}")
        };
        let newer = encoded(&[(1, 0, Record::Open(open))]);
        let expected = ReplayError::NewerVersion(OPEN_VERSION + 1);
        assert_eq!(replay(&newer, 64).unwrap_err(), expected);
        let other = encoded(&[(1, 0, Record::Open(Open::new(8, b"{}")))]);
        assert_eq!(replay(&other, 64).unwrap_err(), ReplayError::NoBeginning);
    }
}
