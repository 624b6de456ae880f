//! Gated logs, under shuttle: more readers, holders and items than loom can.

use crate::end::End;
use crate::log::Gate;
use crate::log::open_gated;
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::{assert_nothing_held, explore, follow, pool, thread, wait};
use shuttle::rand::{Rng, thread_rng};

const ITEMS: u32 = 7;

/// Shows what is written until the end is shown or the recorder fails. Returns whether it failed.
fn record(gate: &Gate<u32>, recorded: &AtomicU64, may_fail: bool) -> bool {
    loop {
        let end = gate.written_end();
        let len = gate.written_len();
        if may_fail && thread_rng().gen_bool(0.2) {
            return true;
        }
        recorded.store(len, Ordering::SeqCst);
        gate.show(len);
        if end.is_some() {
            gate.show_end();
            return false;
        }
        thread::park();
    }
}

/// Two readers from the beginning and one that attaches on the way follow a log whose recorder sleeps between items.
/// A recorder that fails opens the gate or drops it.
fn follow_a_recorded_log(may_fail: bool) {
    let pool = pool(4);
    let recorder = wait::this_thread();
    let (mut writer, reader, gate) = open_gated(&pool, ITEMS as usize, recorder).unwrap();
    let recorded = Arc::new(AtomicU64::new(0));
    let tap = writer.tap();
    let second = reader.attach(0).unwrap();
    let mut following: Vec<_> = [reader, second]
        .map(|reader| thread::spawn(move || (0, follow(reader))))
        .into();
    let seen = Arc::clone(&recorded);
    following.push(thread::spawn(move || {
        let len = tap.len();
        assert!(may_fail || len <= seen.load(Ordering::SeqCst));
        let reader = tap.attach(len).unwrap();
        (reader.cursor(), follow(reader))
    }));
    let writing = thread::spawn(move || {
        (0..ITEMS).for_each(|item| writer.append(item).unwrap());
        writer.finish(End::Cancelled);
    });
    if record(&gate, &recorded, may_fail) && thread_rng().gen_bool(0.5) {
        gate.open();
    }
    drop(gate);
    writing.join().unwrap();
    for reader in following {
        let (from, got) = reader.join().unwrap();
        assert_eq!(got, ((from as u32..ITEMS).collect(), End::Cancelled));
    }
    assert_nothing_held(pool.stats());
}

#[test]
fn every_reader_gets_everything_that_the_recorder_shows() {
    explore(|| follow_a_recorded_log(false));
}

#[test]
fn every_reader_gets_everything_when_the_recorder_fails() {
    explore(|| follow_a_recorded_log(true));
}

/// Several logs share one recorder, which is woken by any of them; one log's gate has several holders.
#[test]
fn one_recorder_serves_several_logs() {
    const LOGS: u32 = 3;
    explore(|| {
        let pool = pool(LOGS as usize);
        let mut gates = Vec::new();
        let mut threads = Vec::new();
        for log in 0..LOGS {
            let (mut writer, reader, gate) = open_gated(&pool, 2, wait::this_thread()).unwrap();
            threads.push(thread::spawn(move || {
                (0..2).for_each(|item| writer.append(log * 10 + item).unwrap());
            }));
            threads.push(thread::spawn(move || {
                let all = vec![log * 10, log * 10 + 1];
                assert_eq!(follow(reader), (all, End::Lost));
            }));
            let second = gate.clone();
            threads.push(thread::spawn(move || second.show(1)));
            gates.push(gate);
        }
        loop {
            gates.retain(|gate| {
                let end = gate.written_end();
                gate.show(gate.written_len());
                gate.show_end();
                end.is_none()
            });
            if gates.is_empty() {
                break;
            }
            thread::park();
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert_nothing_held(pool.stats());
    });
}
