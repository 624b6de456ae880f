//! Calls that the tests of attempts share.

use super::engine_process::{Case, EngineProcess, decode, epoch, sampled};
use crate::messages::{Order, OrderKind, ReadEntry, ReadRequest, Rejection, RunReply, TokenBatch};
use crate::names::InstanceId;

pub(super) const GATEWAY: InstanceId = InstanceId(7);

pub(super) fn case(n: usize, credit_window: u64) -> Case {
    let mut params = sampled(200);
    params.sampling.min_tokens = 200;
    Case {
        label: "a long answer",
        params,
        n,
        credit_window,
    }
}

pub(super) fn started(n: usize, credit_window: u64) -> EngineProcess {
    let mut process = EngineProcess::new(epoch(), 16);
    let run = process.run_of(&case(n, credit_window), GATEWAY, 1);
    assert_eq!(process.submit(run), Some(RunReply::Accepted));
    process
}

pub(super) fn order(sequence: u32, kind: OrderKind) -> Order {
    Order {
        handle: 1,
        attempt: 1,
        sequence,
        kind,
    }
}

pub(super) fn apply(process: &mut EngineProcess, orders: &[Order]) {
    let now = process.now;
    process.attempts.apply_orders(GATEWAY, orders, now);
}

pub(super) fn read(process: &mut EngineProcess, entries: &[(u64, u32, u32)]) -> TokenBatch {
    let entry = |&(handle, attempt, have): &(u64, u32, u32)| ReadEntry {
        handle,
        attempt,
        have: vec![have; 2],
    };
    let request = ReadRequest {
        gateway: GATEWAY,
        entries: entries.iter().map(entry).collect(),
    };
    let now = process.now;
    let mut bytes = Vec::new();
    process.attempts.read(&request, now).encode(&mut bytes);
    decode(&bytes)
}

pub(super) fn step(process: &mut EngineProcess) -> Vec<TokenBatch> {
    process.step();
    let messages = process.messages();
    messages.iter().map(|(_, bytes)| decode(bytes)).collect()
}

pub(super) fn code(reply: Option<RunReply>) -> Rejection {
    match reply {
        Some(RunReply::Rejected { code, .. }) => code,
        other => panic!("not rejected: {other:?}"),
    }
}
