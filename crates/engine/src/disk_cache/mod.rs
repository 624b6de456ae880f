//! The prompt cache on disk: pages of prefixes that were used before, read back instead of computed.
//!
//! # Runs
//!
//! Full pages from position 0 are cut into *runs* of [`runs::RUN_TOKENS`] tokens. A run is one file, named by a hash of
//! everything that decides its bits ([`runs::RunKey`]) and with all tokens up to its end inside. The engine thread knows
//! which runs there are ([`run_index`]) and decides everything; one more thread reads and writes the files ([`disk_worker`]).
//! Buffers go to that thread with a job and come back with the reply, so there is no shared state and no lock.
//!
//! # Reading
//!
//! A queued request that would start, and whose runs after the pages in memory are on the disk, stays in the queue while these
//! are read. Each run that arrives fills pages at the head of a step, and the pages are indexed and given back at once: they
//! are *cached* pages, and the request finds them as any other when it starts. So no sequence is ever half read, and nothing
//! else in the scheduler knows of the disk. One prefix is read at a time; requests that begin with the run that it begins with
//! wait too, others start meanwhile.
//!
//! A read ends early, and the rest is computed, when a file is missing or damaged, when there is no page, when the request
//! leaves the queue, and when nothing arrives for [`SILENCE_MAX_NS`]. Replies that come later carry the number of an earlier
//! read: only their buffer counts. A file with another head or checksum is removed and counted.
//!
//! # Writing
//!
//! Runs that a request found in memory at its start were used before: those that are not on the disk are copied out, one at a time
//! and none while a prefix is read, and written. The pages are not held meanwhile ([`prefix_write`]). Before a run is written,
//! the least recently used ones are removed until it fits. After an error (a full disk) nothing is written for
//! [`writing::WRITE_PAUSE_NS`]. No error reaches a request.

mod disk_worker;
mod prefix_transfer;
mod run_directory;
mod runs;
mod writing;

pub(crate) use prefix_transfer::KnownPages;

use crate::Stats;
use crate::pages::Pages;
use crate::prefix_index::PrefixRoot;
use crate::stats::count;
use crate::terms::Age;
use disk_worker::{DiskJob, DiskReply, DiskWorker, DiskWorkerLost, ReadRate};
use model::{Dims, ExportPages, PageId};
use prefix_transfer::{PrefixRead, PrefixWrite};
use run_directory::{RunDirectory, RunReadError};
use runs::{RUNS_MAX, RunIndex, RunKey, RunPlace, RunPrefix, RunShape};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

/// Buffers of one run each, for reads and writes on the way.
const BUFFERS: usize = 4;

/// Time without a reply after which a prefix is computed: longer than a disk takes to wake up from a queue of writes.
const SILENCE_MAX_NS: u64 = 2_000_000_000;

/// The engine thread's part of the prompt cache on disk.
pub(crate) struct DiskCache {
    identity: RunKey,
    shape: RunShape,
    bytes_max: u64,
    warn: Box<dyn Fn(&str) + Send>,
    index: RunIndex,
    /// `None` after the thread was lost: nothing is read or written any more.
    worker: Option<DiskWorker>,
    /// Free buffers; at most [`BUFFERS`].
    buffers: Vec<Box<[u8]>>,
    read: Option<PrefixRead>,
    /// Reads so far.
    reads: u64,
    rate: ReadRate,
    /// The last request whose prompt was looked up.
    considered: Age,
    write: Option<PrefixWrite>,
    /// Whether a run is being written.
    is_writing: bool,
    /// Nothing is written before.
    write_after_ns: u64,
    /// Scratch: pages of a run.
    held: Vec<PageId>,
}

impl DiskCache {
    /// Opens the directory and starts the thread. `waker` wakes the engine thread.
    pub(crate) fn open(
        config: DiskCacheConfig,
        dims: &Dims,
        page_bytes: usize,
        waker: Waker,
    ) -> Result<Self, DiskCacheError> {
        let shape = RunShape::new(dims.page_tokens, page_bytes);
        let identity = RunKey::identity(&config.identity, shape);
        let path = config.directory.clone();
        let in_directory = |error| DiskCacheError::Directory(config.directory.clone(), error);
        let opened = RunDirectory::open(path, identity, shape);
        let (directory, found) = opened.map_err(in_directory)?;
        let mut index = RunIndex::default();
        for run in found {
            index.insert(run.key, run.run, run.bytes);
        }
        while (index.bytes() > config.bytes_max || index.len() > RUNS_MAX)
            && let Some((key, run)) = index.oldest()
        {
            index.remove(key);
            directory.remove(key, run);
        }
        let worker = DiskWorker::start(directory, waker).map_err(in_directory)?;
        let buffer = || vec![0; shape.bytes()].into_boxed_slice();
        Ok(Self {
            identity,
            shape,
            bytes_max: config.bytes_max,
            index,
            worker: Some(worker),
            buffers: std::iter::repeat_with(buffer).take(BUFFERS).collect(),
            read: None,
            reads: 0,
            rate: ReadRate::default(),
            considered: Age::MAX,
            write: None,
            is_writing: false,
            write_after_ns: 0,
            held: Vec::with_capacity(shape.pages),
            warn: config.warn,
        })
    }

    /// Whether no prefix can be read now: the disk is empty or lost, or all buffers are on the way.
    pub(crate) fn is_empty(&self) -> bool {
        self.worker.is_none() || self.index.len() == 0 || self.buffers.is_empty()
    }

    /// The request that a prefix is being read for.
    pub(crate) fn reads_for(&self) -> Option<Age> {
        self.read.as_ref().map(|read| read.age)
    }

    /// Whether the prefix that is being read begins with the first run of these tokens.
    pub(crate) fn reads_beginning_of(&self, root: PrefixRoot, tokens: &[u32]) -> bool {
        let Some(read) = &self.read else {
            return false;
        };
        let first = &tokens[..tokens.len().min(self.shape.tokens())];
        let prefix = self.prefix_of(root, first);
        prefix.keys().first() == read.prefix.keys().first() && !prefix.keys().is_empty()
    }

    /// Whether this request is the last one that was looked up; makes it so.
    pub(crate) fn consider(&mut self, age: Age) -> bool {
        std::mem::replace(&mut self.considered, age) == age
    }

    /// Begins to read the runs of a prompt that follow the pages in memory, if some are on the disk and reading is expected to
    /// be faster than computing, at `row_ns` for each token. Returns whether it is.
    pub(crate) fn begin_read(
        &mut self,
        age: Age,
        (root, tokens): (PrefixRoot, &[u32]),
        known: KnownPages,
        row_ns: u64,
        now_ns: u64,
    ) -> bool {
        let prefix = self.prefix_of(root, tokens);
        let first = known.pages / self.shape.pages;
        let later = prefix.keys().iter().skip(first);
        let runs = later.take_while(|key| self.index.contains(**key)).count();
        if runs == 0 {
            return false;
        }
        let end = first + runs;
        let bytes = runs as u64 * self.shape.bytes() as u64;
        let tokens = (end * self.shape.pages - known.pages) * self.shape.page_tokens;
        if !self.rate.is_faster(bytes, tokens, row_ns) {
            return false;
        }
        self.index.touch(&prefix.keys()[..end]);
        self.reads += 1;
        let name = (self.reads, age);
        let read = PrefixRead::new(name, Arc::new(prefix), first..end, known, now_ns);
        self.read = Some(read);
        self.request_runs();
        self.read.is_some()
    }

    /// Ends the read of a request that has left the queue.
    pub(crate) fn cancel_read(&mut self) {
        self.read = None;
    }

    /// Takes what the thread has done, and gives it more to do. At the head of a step, when no page is about to be written.
    pub(crate) fn exchange(
        &mut self,
        pages: &mut Pages,
        model: &mut dyn ExportPages,
        stats: &Stats,
        now_ns: u64,
    ) {
        while let Some(worker) = &self.worker {
            match worker.next_reply() {
                Ok(Some(reply)) => {
                    self.take_reply(reply, (&mut *pages, &mut *model), stats, now_ns);
                }
                Ok(None) => break,
                Err(DiskWorkerLost) => self.lose_worker(),
            }
        }
        self.check_silence(stats, now_ns);
        self.request_runs();
        self.write_next_run(pages, &*model);
        stats
            .disk_bytes
            .store(self.index.bytes(), Ordering::Relaxed);
    }

    fn take_reply(
        &mut self,
        reply: DiskReply,
        memory: (&mut Pages, &mut dyn ExportPages),
        stats: &Stats,
        now_ns: u64,
    ) {
        match reply {
            DiskReply::Read {
                number,
                place,
                pages,
                outcome,
            } => {
                match outcome {
                    Ok(()) => {
                        count(&stats.disk_bytes_read, pages.len());
                        self.take_run(number, &pages, memory, stats, now_ns);
                    }
                    Err(why) => {
                        self.forget_run(&place, &why, stats);
                        if self.read.as_ref().is_some_and(|r| r.number == number) {
                            self.end_read(stats, now_ns);
                        }
                    }
                }
                self.buffers.push(pages);
            }
            DiskReply::Written {
                place,
                pages,
                outcome,
            } => {
                self.is_writing = false;
                self.buffers.push(pages);
                self.take_written(&place, outcome, stats, now_ns);
            }
        }
    }

    /// Fills pages with a run that was read.
    fn take_run(
        &mut self,
        number: u64,
        bytes: &[u8],
        memory: (&mut Pages, &mut dyn ExportPages),
        stats: &Stats,
        now_ns: u64,
    ) {
        let Some(read) = self.read.as_mut().filter(|read| read.number == number) else {
            return;
        };
        read.progress_ns = now_ns;
        let has_pages = read.fill_pages(self.shape, bytes, &mut self.held, memory);
        if !has_pages || read.awaited.is_empty() {
            self.end_read(stats, now_ns);
        }
    }

    /// Ends the read, complete or not: the request starts with the pages that were filled.
    fn end_read(&mut self, stats: &Stats, now_ns: u64) {
        let Some(read) = self.read.take() else {
            return;
        };
        let ns = now_ns.saturating_sub(read.started_ns);
        if read.bytes > 0 {
            self.rate.record(read.bytes, ns);
        }
        let tokens = read.filled * self.shape.page_tokens;
        count(&stats.disk_hit_tokens, tokens);
        stats.disk_read_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Forgets a run that could not be read.
    fn forget_run(&mut self, place: &RunPlace, why: &RunReadError, stats: &Stats) {
        self.index.remove(place.key());
        match why {
            RunReadError::Missing => {}
            RunReadError::Damaged => {
                count(&stats.disk_damaged, 1);
                (self.warn)("a damaged file was removed; its tokens are computed");
            }
            RunReadError::Failed(error) => {
                count(&stats.disk_failures, 1);
                (self.warn)(&format!(
                    "a file cannot be read ({error}); its tokens are computed"
                ));
            }
        }
    }

    /// Ends a read to which the disk gives no reply.
    fn check_silence(&mut self, stats: &Stats, now_ns: u64) {
        let Some(read) = &mut self.read else {
            return;
        };
        if now_ns.saturating_sub(read.progress_ns) < SILENCE_MAX_NS {
            return;
        }
        // The bytes that did not come count, so that the disk is known to be slow.
        read.bytes += self.shape.bytes() as u64;
        self.end_read(stats, now_ns);
        count(&stats.disk_failures, 1);
        (self.warn)("the disk does not answer; the prompt is computed");
    }

    /// Requests further runs of the read, one for each free buffer.
    fn request_runs(&mut self) {
        while let (Some(read), Some(worker)) = (&mut self.read, &self.worker)
            && !read.unsent.is_empty()
            && let Some(pages) = self.buffers.pop()
            && let Some(place) = read.next_place()
        {
            let job = DiskJob::Read {
                number: read.number,
                place,
                pages,
            };
            if worker.send(job).is_err() {
                self.lose_worker();
            }
        }
    }

    /// Nothing is read or written any more.
    fn lose_worker(&mut self) {
        (self.warn)("the thread of the prompt cache is lost; all prompts are computed");
        if let Some(worker) = self.worker.take() {
            worker.detach();
        }
        (self.read, self.write) = (None, None);
    }

    fn prefix_of(&self, root: PrefixRoot, tokens: &[u32]) -> RunPrefix {
        RunPrefix::new((self.identity, self.shape), root, tokens)
    }
}

/// Where prefixes of prompts are kept, and for which model.
pub struct DiskCacheConfig {
    /// Directory, created with mode 0700; used by one process at a time.
    pub directory: PathBuf,
    /// Bytes of all files, at most.
    pub bytes_max: u64,
    /// Names the content of the weights and everything else that decides the bits of keys and values. Files under another
    /// name are removed.
    pub identity: String,
    /// Gets warnings for the operator, on the engine thread: a damaged file, a full disk.
    pub warn: Box<dyn Fn(&str) + Send>,
}

/// The prompt cache on disk cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DiskCacheError {
    /// Not with this model or configuration, for this reason.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The directory cannot be used.
    #[error("{}", directory_problem(.0, .1))]
    Directory(PathBuf, io::Error),
}

/// Reasons why the directory cannot be used.
fn directory_problem(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::WouldBlock => format!("another process uses {path}"),
        _ => format!("{path}: {error}"),
    }
}
