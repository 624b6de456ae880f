//! Failures that the fake model simulates.

use model::DeviceFault;

/// A simulated failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When the failure happens.
    pub at: FaultAt,
    /// Failing part.
    pub kind: FaultKind,
}

/// The occasion of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAt {
    /// In the forward call with this number, from 0.
    Call(u64),
    /// Whenever a batch has a row with this token.
    Token(u32),
    /// In the call of the MTP head with this number, from 0: an error or a panic.
    Guess(u64),
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// `forward` returns an error that names no row.
    Error,
    /// `forward` returns an error that names the row, if the span has one; otherwise as `Error`.
    NotFinite,
    /// `forward` panics.
    Panic,
    /// `forward` reports a failed device: the content of all pages and states is lost, and each call fails until the
    /// device is opened again.
    Device(DeviceFault),
    /// As `Device`, but a model that runs ahead reports it when the results of the batch are awaited. Elsewhere without effect.
    LateDevice(DeviceFault),
    /// `forward` ends the process, as a fault of the processor or the driver does.
    Abort,
    /// The logits of rows that attend to that token (with `FaultAt::Call`, of the first span) are NaN.
    NotANumber,
}
