//! More than there is capacity for, in virtual time.
#![expect(clippy::print_stdout, reason = "the figures")]

use super::plant::{Arrivals, JOB, Job, Plant, Served};
use super::*;

/// What the plant serves per second at its best, nearly: 50 steps of 50 sequences take about 2.4 s with their prompts
/// in between.
const CAPACITY: f64 = 20.0;

/// The defaults, from a floor of 5, below which a slow limit shows.
fn adaptive() -> AdmissionBounds {
    AdmissionBounds {
        adaptive: AdaptiveLimits {
            min_streams: 5,
            ..AdaptiveLimits::default()
        },
        queue: QueueLimits {
            max_depth: 64,
            timeout: 10 * S,
            ..QueueLimits::default()
        },
        ..fixed(0, 0)
    }
}

fn percentile(mut values: Vec<Duration>, percent: usize) -> Duration {
    values.sort_unstable();
    values[(values.len() * percent / 100).min(values.len() - 1)]
}

fn ttft(served: &[Served]) -> Vec<Duration> {
    served.iter().map(|s| s.first_token - s.admitted).collect()
}

/// Runs for a time with arrivals at a rate; returns how many were refused.
fn load(
    plant: &mut Plant,
    arrivals: &mut Arrivals,
    per_second: f64,
    time: Duration,
    job: Job,
) -> usize {
    let (end, mut rejected) = (plant.now + time, 0);
    while plant.now < end {
        while arrivals.due(per_second, plant.now) {
            rejected += usize::from(plant.ask(job).is_err());
        }
        plant.step();
    }
    rejected
}

#[test]
fn load_of_twice_the_capacity() {
    let mut plant = Plant::new(adaptive());
    let mut arrivals = Arrivals::new(1, plant.now);
    let rejected = load(&mut plant, &mut arrivals, 2.0 * CAPACITY, 120 * S, JOB);
    let served = plant.served.len();
    let p95 = percentile(ttft(&plant.served), 95);
    let waits = plant.served.iter().map(|s| s.admitted - s.asked).collect();
    let wait = percentile(waits, 95);
    println!(
        "served {served}, rejected {rejected}, timed out {}, p95 TTFT {p95:?}, p95 wait {wait:?}, limit {}",
        plant.timed_out, plant.limit_high
    );
    assert!(p95 < AdaptiveLimits::default().target_ttft);
    assert!(plant.limit_high > 40, "it grew: {}", plant.limit_high);
    assert!(served as f64 > 0.7 * CAPACITY * 120.0, "and was used");
    assert!(rejected > served / 2);
    // Who would have waited in vain was told so at the door.
    assert!(plant.timed_out < served / 50, "{}", plant.timed_out);
    assert!(wait < 10 * S);
}

/// The limit after each of four phases: short prompts, long ones, slow decodes, and short prompts again; and then idle.
fn limits_by_phase(is_engine_told: bool) -> [usize; 5] {
    let mut plant = Plant::new(adaptive());
    plant.decode_time = plant.decode_time.filter(|_| is_engine_told);
    let mut arrivals = Arrivals::new(2, plant.now);
    // The chunks of one are a second's worth of steps.
    let long = Job {
        prompt: 4000,
        ..JOB
    };
    let quick = plant.per_sequence;
    let phases = [
        (2.0 * CAPACITY, 60, JOB, quick),
        (CAPACITY, 60, long, quick),
        (CAPACITY, 180, JOB, 60 * quick),
        (2.0 * CAPACITY, 90, JOB, quick),
        (0.2, 150, JOB, quick),
    ];
    phases.map(|(per_second, seconds, job, per_sequence)| {
        plant.per_sequence = per_sequence;
        load(&mut plant, &mut arrivals, per_second, seconds * S, job);
        plant.limit()
    })
}

/// When all of a rush of twenty chats on a fresh server run; each sequence adds `per_sequence` to a step.
fn rush(per_sequence: Duration) -> (Duration, usize) {
    let bounds = AdmissionBounds {
        adaptive: AdaptiveLimits::default(),
        ..adaptive()
    };
    let mut plant = Plant::new(bounds);
    plant.per_sequence = per_sequence;
    let (begun, chat) = (plant.now, Job { answer: 400, ..JOB });
    let chats: Vec<_> = (0..20).map(|_| plant.ask(chat).unwrap()).collect();
    while chats.iter().any(|id| plant.is_waiting(*id)) && plant.now < begun + 4 * S {
        plant.step();
    }
    (plant.now - begun, plant.limit())
}

/// Promise (Admission and keys): a burst of requests on a fresh server runs within seconds where latencies are far
/// below their targets.
#[test]
fn rush_runs_within_seconds_where_latencies_are_far_below_their_targets() {
    let (waited, limit) = rush(MS);
    println!("all of 20 run after {waited:?}, limit {limit}");
    assert!(waited < 3 * S && limit < 40);
    // 200 ms between tokens: below the target, and too slow for twice the streams.
    let (waited, limit) = rush(25 * MS);
    assert_eq!((waited >= 4 * S, limit), (true, 8));
}

/// Promise (Admission and keys): prompts, however long, do not lower the concurrency limit; slow tokens, and prompts
/// that wait for tokens of other answers, do.
/// Also held by `admission/src/tests/overload.rs :: limit_shrinks_where_prompts_wait_for_tokens`.
#[test]
fn limit_follows_latency_up_and_down() {
    let [high, long, slow, again, idle] = limits_by_phase(true);
    println!("limit {high} -> {long} (long prompts) -> {slow} (slow decodes) -> {again} -> {idle}");
    assert!(high >= 40 && long >= high, "prompts do not lower it");
    assert!(slow <= high / 2 && again >= slow + 20);
    assert_eq!(idle, adaptive().adaptive.min_streams);
}

#[test]
fn limit_of_an_engine_elsewhere_follows_the_whole_time_to_first_token() {
    let [high, long, ..] = limits_by_phase(false);
    println!("limit {high} -> {long} (long prompts)");
    assert!(high >= 40 && long <= high / 2);
}

#[test]
fn limit_shrinks_where_prompts_wait_for_tokens() {
    let mut bounds = adaptive();
    bounds.adaptive.target_itl = 3600 * S;
    bounds.adaptive.max_streams = 200;
    let answers = Job {
        prompt: 400,
        answer: 2000,
        ..JOB
    };
    let mut plant = Plant::new(bounds);
    let mut arrivals = Arrivals::new(8, plant.now);
    load(&mut plant, &mut arrivals, CAPACITY, 60 * S, answers);
    let quick = plant.limit();
    plant.per_sequence *= 100;
    load(&mut plant, &mut arrivals, CAPACITY, 60 * S, answers);
    println!("limit {quick} -> {} (tokens take the time)", plant.limit());
    assert!(quick >= 40 && plant.limit() <= quick / 2);
}

#[test]
fn limit_converges_to_the_capacity() {
    let mut bounds = adaptive();
    bounds.adaptive.max_streams = 1000;
    bounds.adaptive.target_itl = 60 * MS;
    let mut plant = Plant::new(bounds);
    let mut arrivals = Arrivals::new(7, plant.now);
    load(&mut plant, &mut arrivals, 3.0 * CAPACITY, 300 * S, JOB);
    let (mut gaps, mut limits) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        load(&mut plant, &mut arrivals, 3.0 * CAPACITY, S, JOB);
        gaps.push(plant.last_step);
        limits.push(plant.limit());
    }
    let (p95, least, most) = (
        percentile(gaps, 95),
        limits.iter().min().unwrap(),
        limits.iter().max().unwrap(),
    );
    println!("p95 between tokens {p95:?}, limit {least}..={most} of 1000");
    assert!(p95 < 75 * MS && *least > 30 && *most < 150);
}

/// A caller who was sent away: when it was first, what it was told, and when it comes back.
struct Away {
    who: u64,
    since: Instant,
    told: Duration,
    back: Instant,
}

/// Lets come back whose time it is by `until`, in order. Adds (told, taken) of those who got in.
fn come_back(
    plant: &mut Plant,
    away: &mut Vec<Away>,
    until: Instant,
    got_in: &mut Vec<(Duration, Duration)>,
) {
    loop {
        let due = (0..away.len()).filter(|&i| away[i].back <= until);
        let Some(i) = due.min_by_key(|&i| away[i].back) else {
            return;
        };
        match plant.ask_as(away[i].who, JOB) {
            Ok(_) => {
                let caller = away.swap_remove(i);
                got_in.push((caller.told, plant.now - caller.since));
            }
            Err(rejection) => away[i].back = plant.now + rejection.retry_after().unwrap(),
        }
    }
}

fn sent_away(plant: &mut Plant, away: &mut Vec<Away>) {
    if let Err(rejection) = plant.ask(JOB) {
        let told = rejection.retry_after().unwrap();
        away.push(Away {
            since: plant.now,
            who: plant.strangers,
            told,
            back: plant.now + told,
        });
    }
}

/// Share of callers for whom it took no longer than twice what they were told.
fn true_share(got_in: &[(Duration, Duration)]) -> f64 {
    let step = 50 * MS;
    let honest = got_in
        .iter()
        .filter(|(told, took)| *took <= 2 * *told + step);
    honest.count() as f64 / got_in.len() as f64
}

/// A burst of three hundred polite callers, `pause` after an overload whose callers stayed away: how many were sent
/// away, the longest `Retry-After`, when all were in, and for how many it was true.
fn burst(bounds: AdmissionBounds, pause: Duration) -> (usize, Duration, Duration, f64) {
    let mut plant = Plant::new(bounds);
    let mut arrivals = Arrivals::new(3, plant.now);
    load(&mut plant, &mut arrivals, 2.0 * CAPACITY, 60 * S, JOB);
    load(&mut plant, &mut arrivals, 0.5 * CAPACITY, pause, JOB);
    let (burst, mut away, mut got_in) = (plant.now, Vec::new(), Vec::new());
    for _ in 0..300 {
        sent_away(&mut plant, &mut away);
    }
    let sent = away.len();
    let longest = away.iter().map(|caller| caller.told).max().unwrap();
    while !away.is_empty() {
        let now = plant.now;
        come_back(&mut plant, &mut away, now, &mut got_in);
        plant.step();
    }
    (sent, longest, plant.now - burst, true_share(&got_in))
}

#[test]
fn returning_callers_find_retry_after_true() {
    let defaults = AdmissionBounds {
        adaptive: AdaptiveLimits::default(),
        ..adaptive()
    };
    // Shortly after a crowd that did not return, this one is expected not to return either, and its `Retry-After` is too short.
    for (pause, share) in [(5, 0.7), (30, 0.9)] {
        let (sent, longest, all_in, honest) = burst(defaults, pause * S);
        println!(
            "burst after {pause} s: {sent} sent away, longest {longest:?}, all in after {all_in:?}, true for {honest:.3}"
        );
        assert!(sent > 150 && honest > share);
        // And not too long: the slots did become free at about that pace.
        assert!(longest < 2 * all_in && all_in < 2 * longest);
    }
}

/// Lasting overload in which this share of the callers comes back when told; gives how many did, the median of what
/// they were told, and for how many it was true.
fn lasting(polite: f64) -> (usize, Duration, f64) {
    let mut plant = Plant::new(adaptive());
    let mut arrivals = Arrivals::new(4, plant.now);
    load(&mut plant, &mut arrivals, 2.0 * CAPACITY, 60 * S, JOB);
    let (end, mut away, mut got_in) = (plant.now + 120 * S, Vec::new(), Vec::new());
    while plant.now < end || !away.is_empty() {
        while arrivals.next() <= plant.now {
            come_back(&mut plant, &mut away, arrivals.next(), &mut got_in);
            arrivals.due(2.0 * CAPACITY, plant.now);
            if plant.now < end && arrivals.unit() < polite {
                sent_away(&mut plant, &mut away);
            } else {
                let _ = plant.ask(JOB);
            }
        }
        let now = plant.now;
        come_back(&mut plant, &mut away, now, &mut got_in);
        plant.step();
    }
    let told = percentile(got_in.iter().map(|(told, _)| *told).collect(), 50);
    (got_in.len(), told, true_share(&got_in))
}

#[test]
fn polite_callers_are_admitted_in_lasting_overload() {
    for polite in [0.05, 0.25, 0.5] {
        let (came_back, told, honest) = lasting(polite);
        println!(
            "lasting, {polite} polite: {came_back} came back, median told {told:?}, true for {honest:.3}"
        );
        assert!(came_back > 50 && honest >= 0.9, "{polite}: {honest}");
    }
}

#[test]
fn retry_after_grows_and_stays_true_up_to_a_minute() {
    let (came_back, told, honest) = lasting(1.0);
    println!(
        "lasting, all polite: {came_back} came back, median told {told:?}, true for {honest:.3}"
    );
    assert!(told > 5 * S && honest >= 0.5, "{told:?}, {honest}");
}

#[test]
fn background_requests_are_served_within_their_ageing_bound() {
    let bounds = adaptive();
    let patient = AdmissionBounds {
        queue: QueueLimits {
            timeout: 120 * S,
            ..bounds.queue
        },
        ..bounds
    };
    let mut plant = Plant::new(patient);
    let mut arrivals = Arrivals::new(5, plant.now);
    let high = Job {
        class: Priority::High,
        ..JOB
    };
    let low = Job {
        class: Priority::Background,
        ..JOB
    };
    load(&mut plant, &mut arrivals, 2.0 * CAPACITY, 60 * S, high);
    for _ in 0..5 {
        let (asked, id) = (
            plant.now,
            plant.ask(low).expect("room is kept for its class"),
        );
        while plant.is_waiting(id) {
            load(&mut plant, &mut arrivals, 2.0 * CAPACITY, 50 * MS, high);
        }
        // Three classes of ageing, then those who came before that instant: a queue's worth.
        let ageing = 3 * bounds.queue.ageing;
        let queue = Duration::from_secs_f64(
            1.5 * bounds.queue.max_depth as f64 / plant.core.snapshot().drain_per_second.unwrap(),
        );
        let waited = plant.now - asked;
        println!("waited {waited:?} of {ageing:?} + {queue:?}");
        assert!(waited < ageing + queue);
        assert!(waited > ageing / 2, "urgent ones did go first");
    }
}

#[test]
fn unattainable_deadline_is_rejected_at_once() {
    let mut plant = Plant::new(adaptive());
    let mut arrivals = Arrivals::new(6, plant.now);
    load(&mut plant, &mut arrivals, 1.8 * CAPACITY, 60 * S, JOB);
    while plant.core.snapshot().waiting > 40 {
        plant.step();
    }
    let hasty = Job {
        deadline: Some(plant.now + 500 * MS),
        ..JOB
    };
    let rejection = plant.ask(hasty).expect_err("two seconds of others wait");
    assert_eq!(rejection.reason(), "deadline_unattainable");
    let back = rejection.retry_after().unwrap();
    assert!(back > 500 * MS && back < 5 * S, "{back:?}");
    let calm = Job {
        deadline: Some(plant.now + 8 * S),
        ..JOB
    };
    assert!(plant.ask(calm).is_ok());
    while !plant.is_empty() {
        plant.step();
    }
    let alone = Job {
        deadline: Some(plant.now + 500 * MS),
        ..JOB
    };
    assert!(plant.ask(alone).is_ok(), "nobody is ahead");
    // Forty thousand tokens take four seconds to compute: no queue is needed to know that.
    let huge = Job {
        prompt: 40_000,
        deadline: Some(plant.now + 2 * S),
        ..JOB
    };
    assert_eq!(
        plant.ask(huge).unwrap_err().reason(),
        "deadline_unattainable"
    );
}
