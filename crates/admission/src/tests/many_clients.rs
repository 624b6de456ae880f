//! The defaults, under 32 clients of a slow machine, in virtual time.

use super::plant::{JOB, Job, Plant};
use super::*;

const CLIENTS: usize = 32;
const REQUESTS: usize = 2 * CLIENTS;

/// Time of a sequence in a step: tokens of eight are slower than the target, so the limit stays at the floor.
const TOKEN: Duration = Duration::from_millis(80);

/// Eight of them side by side take a minute, where each needs [`TOKEN`] for a token.
const SLOW: Job = Job {
    prompt: 4000,
    answer: 100,
    ..JOB
};

#[test]
fn requests_of_ordinary_clients_all_succeed() {
    let mut plant = Plant::new(AdmissionBounds {
        adaptive: AdaptiveLimits::default(),
        queue: QueueLimits::default(),
        ..fixed(0, 0)
    });
    plant.per_sequence = TOKEN;
    let mut asked = 0;
    while plant.served.len() < REQUESTS {
        while asked < REQUESTS && asked - plant.served.len() < CLIENTS {
            plant.ask(SLOW).expect("room for one request of each");
            asked += 1;
        }
        plant.step();
        assert_eq!(plant.timed_out, 0, "after {asked} requests");
    }
    let longest = plant.served.iter().map(|s| s.admitted - s.asked).max();
    assert!(longest > Some(30 * S), "slow enough to tell: {longest:?}");
}
