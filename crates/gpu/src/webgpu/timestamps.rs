//! Times of dispatches by the clock of the device.

use super::device::{Device, DeviceError};
use super::memory::{PrepareError, buffer};
use wgpu::{BufferUsages, QuerySet};

/// Dispatches that are timed at once, at most: wgpu has 4,096 moments in a set.
pub(super) const TIMED_MAX: usize = 2048;

/// Bytes of a moment.
const MOMENT_BYTES: u64 = 8;

/// Moments before and after each of some dispatches.
pub(super) struct Timestamps {
    moments: QuerySet,
    resolved: wgpu::Buffer,
    staging: wgpu::Buffer,
    /// Dispatches that there is room for.
    dispatches: usize,
    /// Seconds between two values of the clock.
    tick: f64,
}

impl Timestamps {
    /// Room for the times of so many dispatches, at most [`TIMED_MAX`]; `None` where the device has no clock for kernels.
    pub(super) fn new(device: &Device, dispatches: usize) -> Result<Option<Self>, PrepareError> {
        if !device.facts().has_timestamps {
            return Ok(None);
        }
        let dispatches = dispatches.clamp(1, TIMED_MAX);
        let count = 2 * dispatches as u32;
        let bytes = u64::from(count) * MOMENT_BYTES;
        let resolve = BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC;
        let read = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let descriptor = wgpu::QuerySetDescriptor {
            label: None,
            ty: wgpu::QueryType::Timestamp,
            count,
        };
        Ok(Some(Self {
            moments: device.checked(|device| device.create_query_set(&descriptor))?,
            resolved: buffer(device, "times", bytes, resolve)?,
            staging: buffer(device, "times", bytes, read)?,
            dispatches,
            tick: f64::from(device.queue().get_timestamp_period()) / 1e9,
        }))
    }

    /// The instruction by which a pass writes the time of this dispatch.
    pub(super) fn of_pass(&self, dispatch: usize) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let first = 2 * dispatch as u32;
        (dispatch < self.dispatches).then_some(wgpu::ComputePassTimestampWrites {
            query_set: &self.moments,
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(first + 1),
        })
    }

    /// Submits the commands, waits, and returns the seconds of the first dispatches.
    pub(super) fn read(
        &self,
        device: &Device,
        mut encoder: wgpu::CommandEncoder,
        dispatches: usize,
    ) -> Result<Vec<f64>, DeviceError> {
        let dispatches = dispatches.min(self.dispatches);
        let bytes = 2 * dispatches as u64 * MOMENT_BYTES;
        if bytes > 0 {
            encoder.resolve_query_set(&self.moments, 0..2 * dispatches as u32, &self.resolved, 0);
            encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.staging, 0, bytes);
        }
        let mut seconds = Vec::with_capacity(dispatches);
        device.read(encoder.finish(), &self.staging, bytes, |bytes| {
            let moments = bytes.as_chunks::<8>().0.iter();
            let moments: Vec<_> = moments.map(|bytes| u64::from_ne_bytes(*bytes)).collect();
            let pairs = moments.as_chunks::<2>().0.iter();
            let ticks = pairs.map(|[begin, end]| end.saturating_sub(*begin));
            seconds.extend(ticks.map(|ticks| ticks as f64 * self.tick));
        })?;
        Ok(seconds)
    }
}
