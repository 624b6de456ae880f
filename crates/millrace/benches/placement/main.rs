//! Three engines behind one gateway, with each placement policy: prefix hits and time to first token.
//! `cargo bench -p millrace --bench placement -- --seconds 60 --rounds 2`
//!
//! Clients hold conversations over a few system prompts. Each policy gets new processes, with empty caches, and the same
//! conversations. Engines share the machine's cores, so only the policies of one run can be compared. Needs `nats-server`.
#![expect(clippy::print_stdout, reason = "the figures")]

mod conversation;
mod processes;

#[path = "../../tests/it/kill/event_reader.rs"]
#[allow(dead_code, reason = "a part is used")]
mod event_reader;
#[path = "../../../server/benches/load/mod.rs"]
mod load;

use conversation::{Conversation, Turn};
use load::figures::{ms, quantile};
use load::{argument, now};
use processes::Cluster;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{io, thread};

const POLICIES: [&str; 3] = ["round_robin", "least_loaded", "predicted"];

fn main() -> io::Result<()> {
    let seconds = argument("--seconds", 60.0);
    let clients = argument("--clients", 6.0) as usize;
    let engines = argument("--engines", 3.0) as usize;
    println!("{engines} engines, {clients} clients, {seconds} s; TTFT in ms");
    println!("| placement | turns | prefix hits | TTFT p50 | p90 | p99 |");
    println!("|---|---|---|---|---|---|");
    for _ in 0..argument("--rounds", 1.0) as usize {
        for policy in POLICIES {
            let cluster = Cluster::start(policy, engines)?;
            let turns = converse(&cluster.gateway(), clients, seconds);
            print_row(policy, &turns);
        }
    }
    Ok(())
}

/// All turns of clients that begin a new conversation when one has ended.
fn converse(gateway: &str, clients: usize, seconds: f64) -> Vec<Turn> {
    let until = now() + Duration::from_secs_f64(seconds);
    let number = AtomicU64::new(0);
    thread::scope(|scope| {
        let talk = || {
            let mut turns = Vec::new();
            while now() < until {
                let mut conversation = Conversation::new(number.fetch_add(1, Ordering::Relaxed));
                while now() < until
                    && let Some(turn) = conversation.take_turn(gateway)
                {
                    turns.push(turn);
                }
            }
            turns
        };
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(talk)).collect();
        let ended = clients.into_iter().map(std::thread::ScopedJoinHandle::join);
        ended.flat_map(|turns| turns.expect("a client")).collect()
    })
}

fn print_row(policy: &str, turns: &[Turn]) {
    let sum = |of: fn(&Turn) -> u64| turns.iter().map(of).sum::<u64>() as f64;
    let hits = sum(|turn| turn.cached_tokens) / sum(|turn| turn.prompt_tokens).max(1.0);
    let mut times: Vec<_> = turns.iter().map(|turn| turn.first_token).collect();
    let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|share| ms(quantile(&mut times, share)));
    println!(
        "| {policy} | {} | {:.1} % | {p50:.0} | {p90:.0} | {p99:.0} |",
        turns.len(),
        hits * 100.0
    );
}
