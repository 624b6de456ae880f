//! The forecast beside rules that react, on generated traces of two weeks, from seeds.
//!
//! ```text
//! trace    arrivals: daily shape, weekdays, jobs, bursts, a launch, outages
//! engines  equal engines with one queue; time to boot
//! rule     who orders engines
//! ```
//!
//! Promise (Cluster): on generated days with jobs and bursts, scaling by the forecast is late less often, with fewer
//! engine-hours, than scaling by utilization.

mod engines;
mod rule;
mod trace;

use engines::{Engines, Figures};
use rule::{PERIOD_S, Rule, Scaler};
use std::io::Write as _;
use trace::{DAY_S, DAYS, Dice, Trace};

/// Requests per second at the daily peak.
const PEAK_PER_S: f64 = 40.0;
/// Days before figures count.
const LEARNED_DAYS: usize = 4;

/// Figures of the days that count.
fn replay(arrivals: &[u16], rule: Rule, seed: u64, days: std::ops::Range<usize>) -> Figures {
    let mut engines = Engines::new(4);
    let mut scaler = Scaler::new(rule);
    let mut dice = Dice::new(seed ^ 0x5ca1e);
    for (second, count) in arrivals.iter().take(days.end * DAY_S).enumerate() {
        let counted = days.contains(&(second / DAY_S));
        engines.step(second, f64::from(*count), &mut dice, counted);
        if second % PERIOD_S == 0 {
            let wanted = scaler.decide(&engines, second);
            engines.order(wanted, second);
        }
    }
    engines.figures
}

fn mean_of(seeds: u64, trace: Trace, rule: Rule, days: std::ops::Range<usize>) -> Figures {
    let mut sum = Figures::default();
    for seed in 1..=seeds {
        let arrivals = trace.arrivals(seed, PEAK_PER_S);
        let figures = replay(&arrivals, rule, seed, days.clone());
        sum.requests += figures.requests;
        sum.violations += figures.violations;
        sum.engine_hours += figures.engine_hours / seeds as f64;
    }
    sum
}

/// The table in measurements/notes.md.
#[test]
#[ignore = "prints the table of measurements/notes.md; takes half a minute"]
fn table() {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "| trace | rule, target | late | engine-hours a day | late, first day | engine-hours, first day |\n|---|---|---|---|---|---|"
    )
    .unwrap();
    for trace in Trace::ALL {
        for rule in [
            Rule::Utilization(75),
            Rule::Utilization(85),
            Rule::UtilizationAndQueue(75),
            Rule::UtilizationAndQueue(85),
            Rule::Forecast(75),
            Rule::Forecast(85),
        ] {
            let figures = mean_of(5, trace, rule, LEARNED_DAYS..DAYS);
            let first = mean_of(5, trace, rule, 0..1);
            writeln!(
                out,
                "| {} | {} | {:.3} % | {:.1} | {:.3} % | {:.1} |",
                trace.name(),
                rule.name(),
                figures.late_percent(),
                figures.engine_hours / (DAYS - LEARNED_DAYS) as f64,
                first.late_percent(),
                first.engine_hours,
            )
            .unwrap();
        }
    }
}

#[test]
fn forecast_is_late_less_often_with_fewer_engine_hours_than_utilization() {
    for trace in [Trace::Jobs, Trace::Bursts] {
        let of = |rule| mean_of(1, trace, rule, 3..6);
        let (forecast, other) = (of(Rule::Forecast(85)), of(Rule::Utilization(75)));
        let against = format!("{trace:?}: {forecast:?} beside utilization: {other:?}");
        assert!(forecast.violations < other.violations, "{against}");
        assert!(forecast.engine_hours < other.engine_hours, "{against}");
    }
}

#[test]
fn jobs_of_each_day_are_late_less_often_than_with_the_queue_watched() {
    let of = |rule| mean_of(1, Trace::Jobs, rule, 3..6);
    let forecast = of(Rule::Forecast(85));
    let other = of(Rule::UtilizationAndQueue(75));
    let against = format!("{forecast:?} beside {other:?}");
    assert!(forecast.violations < 0.6 * other.violations, "{against}");
    assert!(forecast.engine_hours < other.engine_hours, "{against}");
}

#[test]
fn replay_is_decided_by_its_seed() {
    let [a, b, other] = [1, 1, 2].map(mean_of_one_day);
    assert_eq!(a, b);
    assert_ne!(a, other);
}

fn mean_of_one_day(seed: u64) -> Figures {
    let arrivals = Trace::All.arrivals(seed, PEAK_PER_S);
    replay(&arrivals, Rule::Forecast(85), seed, 0..1)
}
