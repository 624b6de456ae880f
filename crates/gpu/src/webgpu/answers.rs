//! Submits, waits for the device, and results that come to the host.

use super::adapters::PROCESSOR;
use super::device::{Device, DeviceError};
use super::work::SUBMIT_WORK_MAX;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use wgpu::PollType;

/// Seconds in which a device answers at least, and those that a submit of [`SUBMIT_WORK_MAX`] may take: ten times what it takes on a
/// weak integrated GPU.
const ANSWER_S: u64 = 10;
const FULL_ANSWER_S: u64 = 20;

/// Seconds in which a device answers while a model is loaded: some drivers compile a kernel when it first runs.
const LOAD_ANSWER_S: u64 = 60;

/// Seconds of both kinds for a processor, which is a hundred times slower, shared with other programs, and never hangs.
const ANSWER_OF_PROCESSOR_S: u64 = 600;

/// How long an answer of a device of this class may take, after which the device has failed. `work` are the multiply-adds that were
/// submitted and not yet waited for.
fn answer_max(class: &str, is_loaded: bool, work: u64) -> Duration {
    let (least, full) = match class {
        PROCESSOR => (ANSWER_OF_PROCESSOR_S, ANSWER_OF_PROCESSOR_S),
        _ if is_loaded => (ANSWER_S, FULL_ANSWER_S),
        _ => (LOAD_ANSWER_S, FULL_ANSWER_S),
    };
    let seconds = work.saturating_mul(full) / SUBMIT_WORK_MAX;
    Duration::from_secs(seconds.max(least))
}

/// Commands that the device was given.
pub(crate) struct Submission {
    index: wgpu::SubmissionIndex,
    /// Multiply-adds of this submit and all before.
    work: u64,
}

/// Results on their way to the host.
pub(crate) struct Reading {
    submission: Submission,
    bytes: u64,
    mapping: Arc<Mapping>,
}

/// Whether a buffer is mapped; `None` until the driver has answered. The answer may come on another thread that waits for the device,
/// a moment after this one's wait has ended.
#[derive(Default)]
struct Mapping {
    done: Mutex<Option<bool>>,
    answered: Condvar,
}

/// Longest time between the end of a submission and the answer.
const MAPPING_MAX: Duration = Duration::from_secs(5);

impl Mapping {
    fn answer(&self, is_mapped: bool) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        *done = Some(is_mapped);
        self.answered.notify_all();
    }

    /// Waits for the answer.
    fn is_mapped(&self) -> bool {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |done: &mut Option<bool>| done.is_none();
        let waited = self.answered.wait_timeout_while(done, MAPPING_MAX, is_open);
        let (done, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *done == Some(true)
    }
}

impl Device {
    /// Submits commands.
    pub(crate) fn submit(&self, commands: Option<wgpu::CommandBuffer>) -> Submission {
        self.counters.submits.fetch_add(1, Ordering::Relaxed);
        Submission {
            work: self.counters.work.load(Ordering::Relaxed),
            index: self.queue().submit(commands),
        }
    }

    /// Counts multiply-adds of the next submits: a wait for them is as patient.
    pub(super) fn count_work(&self, work: u64) {
        self.counters.work.fetch_add(work, Ordering::Relaxed);
    }

    /// A program is loaded: its kernels are compiled and have been run.
    pub(crate) fn end_load(&self) {
        self.is_loaded.store(true, Ordering::Relaxed);
    }

    /// Waits until the device has done a submission.
    pub(crate) fn wait(&self, submission: Submission) -> Result<(), DeviceError> {
        self.counters.waits.fetch_add(1, Ordering::Relaxed);
        let done = &self.counters.work_done;
        let work = submission.work.saturating_sub(done.load(Ordering::Relaxed));
        let is_loaded = self.is_loaded.load(Ordering::Relaxed);
        let answer_max = answer_max(self.facts().class, is_loaded, work);
        // wgpu panics where the driver reports the loss of the device to a wait.
        let waited = catch_unwind(AssertUnwindSafe(|| {
            self.raw().poll(PollType::Wait {
                submission_index: Some(submission.index),
                timeout: Some(answer_max),
            })
        }));
        let Ok(waited) = waited else {
            self.reports.lost.store(true, Ordering::Release);
            return Err(self.reports.loss());
        };
        self.check()?;
        match waited {
            Ok(_) => {
                done.fetch_max(submission.work, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(DeviceError::Failed(error.to_string())),
        }
    }

    /// Submits commands that write the first `bytes` of `staging`, waits, and reads them.
    pub(crate) fn read(
        &self,
        commands: wgpu::CommandBuffer,
        staging: &wgpu::Buffer,
        bytes: u64,
        read: impl FnOnce(&[u8]),
    ) -> Result<(), DeviceError> {
        let reading = self.begin_read(commands, staging, bytes);
        self.finish_read(reading, staging, read)
    }

    /// Submits commands that write the first `bytes` of `staging`, which belongs to the driver until [`Self::finish_read`].
    pub(crate) fn begin_read(
        &self,
        commands: wgpu::CommandBuffer,
        staging: &wgpu::Buffer,
        bytes: u64,
    ) -> Reading {
        let submission = self.submit(Some(commands));
        let mapping = Arc::new(Mapping::default());
        if bytes > 0 {
            self.counters.maps.fetch_add(1, Ordering::Relaxed);
            let to = Arc::clone(&mapping);
            let done = move |result: Result<(), _>| to.answer(result.is_ok());
            staging.slice(..bytes).map_async(wgpu::MapMode::Read, done);
        }
        Reading {
            submission,
            bytes,
            mapping,
        }
    }

    /// Waits for what was begun, not for what was submitted after, and reads it.
    pub(crate) fn finish_read(
        &self,
        reading: Reading,
        staging: &wgpu::Buffer,
        read: impl FnOnce(&[u8]),
    ) -> Result<(), DeviceError> {
        let waited = self.wait(reading.submission);
        if reading.bytes == 0 {
            // As words, so that they are aligned.
            return waited.map(|()| read(bytemuck::cast_slice::<u32, u8>(&[])));
        }
        let slice = staging.slice(..reading.bytes);
        let view = if waited.is_ok() && reading.mapping.is_mapped() {
            slice.get_mapped_range().ok()
        } else {
            None
        };
        let result = match (waited, &view) {
            (Err(error), _) => Err(error),
            (Ok(()), None) => Err(DeviceError::Failed("a buffer was not mapped".into())),
            (Ok(()), Some(view)) => {
                read(view);
                Ok(())
            }
        };
        drop(view);
        staging.unmap();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_work_is_awaited_longer() {
        const STEP: u64 = 8_000_000_000;
        for (class, is_loaded, work, seconds) in [
            ("discrete", true, 0, 10),
            ("discrete", true, STEP, 10),
            ("integrated", true, SUBMIT_WORK_MAX, 20),
            ("integrated", true, 40 * SUBMIT_WORK_MAX, 800),
            ("discrete", false, STEP, 60),
            ("discrete", false, 40 * SUBMIT_WORK_MAX, 800),
            (PROCESSOR, true, STEP, 600),
            (PROCESSOR, false, 3 * SUBMIT_WORK_MAX, 1800),
        ] {
            let found = answer_max(class, is_loaded, work);
            assert_eq!(found.as_secs(), seconds, "{class}, {is_loaded}, {work}");
        }
        assert!(answer_max("discrete", true, u64::MAX) > Duration::from_secs(600));
    }
}
