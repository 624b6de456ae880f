//! Promise (Cluster): wanted engines are never negative, infinite or NaN, for any counters and clocks; a restart
//! keeps what was learned.

use super::seasonal_rate::{Accuracy, DailyProfile, PENDING_MAX, SLOTS};
use super::step_cost::{Interval, StepCost};
use super::{CounterReading, DemandForecast, ENGINES_MAX, ScaleAdvice, ScaleTarget};
use proptest::prelude::*;

const DAY_S: f64 = 86_400.0;
/// Costs of the engine that readings are made of: of a step, and of a token.
const STEP_S: f64 = 0.01;
const TOKEN_S: f64 = 0.0005;

fn forecast() -> DemandForecast {
    DemandForecast::new(ScaleTarget::default())
}

/// The reading after `seconds` more with this rate of requests: 80 prompt tokens and 20 generated ones each.
fn later(reading: &CounterReading, rate: f64, seconds: f64) -> CounterReading {
    let requests = rate * seconds;
    let batch = 1.0 + rate.min(3.0);
    let steps = requests * 20.0 / batch;
    let step_s = steps * STEP_S + requests * 100.0 * TOKEN_S;
    CounterReading {
        arrivals: reading.arrivals + requests as u64,
        admitted: reading.admitted + requests as u64,
        prefill_tokens: reading.prefill_tokens + (requests * 80.0) as u64,
        generated_tokens: reading.generated_tokens + (requests * 20.0) as u64,
        steps: reading.steps + steps as u64,
        step_ns: reading.step_ns + (step_s * 1e9) as u64,
        waiting: 0,
        slots: 10,
    }
}

/// Readings each minute for some days; the rate is a function of the hour of the day.
fn run_days(
    forecast: &mut DemandForecast,
    days: std::ops::Range<u32>,
    rate: impl Fn(f64) -> f64,
) -> CounterReading {
    let mut reading = CounterReading::default();
    for minute in days.start * 1440..days.end * 1440 {
        let at_s = f64::from(minute) * 60.0;
        reading = later(&reading, rate(at_s % DAY_S / 3600.0), 60.0);
        forecast.observe(&reading, at_s);
    }
    reading
}

fn check_bounds(advice: &ScaleAdvice, context: &str) {
    for rate in [advice.arrivals, advice.tokens] {
        for value in [rate.now, rate.predicted] {
            assert!(value.is_finite() && value >= 0.0, "{context}: {advice:?}");
        }
        assert!((0.0..=2.0).contains(&rate.error), "{context}: {advice:?}");
        assert!((-2.0..=2.0).contains(&rate.bias), "{context}: {advice:?}");
    }
    let engine = advice.engine_tokens_per_s;
    assert!(engine.is_finite() && engine >= 0.0, "{context}: {advice:?}");
    let engines = advice.engines_wanted.unwrap_or(0.0);
    assert!(
        (0.0..=ENGINES_MAX).contains(&engines),
        "{context}: {advice:?}"
    );
}

proptest! {
    #[test]
    fn advice_is_finite_for_any_readings_at_any_times(
        readings in prop::collection::vec((any::<[u64; 8]>(), any::<f64>()), 1..40),
        horizon in any::<std::time::Duration>(),
        utilization_percent in any::<u32>(),
    ) {
        let mut forecast = DemandForecast::new(ScaleTarget { horizon, utilization_percent });
        for (counters, unix_s) in readings {
            let [arrivals, admitted, prefill_tokens, generated_tokens, steps, step_ns, waiting, slots] = counters;
            let reading = CounterReading {
                arrivals, admitted, prefill_tokens, generated_tokens, steps, step_ns, waiting, slots,
            };
            forecast.observe(&reading, unix_s);
            check_bounds(&forecast.advice(unix_s), "any");
        }
    }

    #[test]
    fn advice_is_bounded_where_counters_grow_irregularly(
        steps in prop::collection::vec((0.0..2000.0f64, prop_oneof![Just(0.0), 0.0..5.0f64, Just(1e6)]), 1..300),
    ) {
        let (mut forecast, mut reading, mut at_s) = (forecast(), CounterReading::default(), 1e9);
        for (seconds, rate) in steps {
            at_s += seconds;
            reading = later(&reading, rate, seconds);
            forecast.observe(&reading, at_s);
            check_bounds(&forecast.advice(at_s), "irregular");
        }
    }
}

#[test]
fn forecast_without_readings_gives_no_number_of_engines() {
    assert_eq!(forecast().advice(0.0), ScaleAdvice::default());
}

#[test]
fn forecast_without_traffic_wants_no_engine() {
    let mut forecast = forecast();
    run_days(&mut forecast, 0..1, |_| 2.0);
    run_days(&mut forecast, 1..4, |_| 0.0);
    let advice = forecast.advice(4.0 * DAY_S);
    assert!(advice.engines_wanted.unwrap() < 0.05, "{advice:?}");
}

#[test]
fn steady_traffic_wants_as_many_engines_as_its_tokens_need() {
    let mut forecast = forecast();
    run_days(
        &mut forecast,
        0..1,
        |hour| if hour < 12.0 { 1.0 } else { 5.0 },
    );
    let advice = forecast.advice(DAY_S - 30.0);
    // 100 tokens each at 0.5 ms, of these 20 in steps of 10 ms with 10 slots.
    let engine_tokens_per_s = 100.0 / (100.0 * TOKEN_S + 20.0 * STEP_S / 10.0);
    let engine_error = advice.engine_tokens_per_s / engine_tokens_per_s - 1.0;
    assert!(engine_error.abs() < 0.02, "{advice:?}");
    let wanted = 500.0 / (engine_tokens_per_s * ScaleTarget::default().utilization());
    assert!(
        (advice.engines_wanted.unwrap() / wanted - 1.0).abs() < 0.05,
        "{advice:?}"
    );
    assert!((advice.arrivals.now - 5.0).abs() < 0.1, "{advice:?}");
}

#[test]
fn rise_of_each_morning_is_predicted_before_it_begins() {
    let mut forecast = forecast();
    let morning = |hour: f64| {
        if (9.0..17.0).contains(&hour) {
            8.0
        } else {
            1.0
        }
    };
    run_days(&mut forecast, 0..4, morning);
    let at_s = 4.0 * DAY_S + 9.0 * 3600.0 - 240.0;
    for minute in 0..(9 * 60 - 4) {
        let now_s = 4.0 * DAY_S + f64::from(minute) * 60.0;
        forecast.observe(
            &later(&CounterReading::default(), 1.0, 60.0 * f64::from(minute)),
            now_s,
        );
    }
    let advice = forecast.advice(at_s);
    assert!(advice.arrivals.now < 2.0, "{advice:?}");
    assert!(advice.arrivals.predicted > 4.0, "{advice:?}");
    let (wanted, tokens) = (advice.engines_wanted.unwrap(), advice.engine_tokens_per_s);
    assert!(wanted * tokens * 0.85 > 600.0, "{advice:?}");
}

#[test]
fn requests_that_wait_want_engines_though_nothing_new_arrives() {
    let mut forecast = forecast();
    let reading = run_days(&mut forecast, 0..1, |_| 1.0);
    let calm = forecast.advice(DAY_S).engines_wanted.unwrap();
    forecast.observe(
        &CounterReading {
            waiting: 600,
            ..reading
        },
        DAY_S,
    );
    let busy = forecast.advice(DAY_S).engines_wanted.unwrap();
    assert!(busy > calm + 0.5, "{calm} {busy}");
}

#[test]
fn restart_and_gap_keep_what_was_learned() {
    let mut forecast = forecast();
    run_days(&mut forecast, 0..2, |_| 4.0);
    let before = forecast.advice(2.0 * DAY_S);
    // Counters begin at zero, after three hours.
    forecast.observe(&CounterReading::default(), 2.0 * DAY_S + 10_800.0);
    let after = forecast.advice(2.0 * DAY_S + 10_800.0);
    assert_eq!(before.engine_tokens_per_s, after.engine_tokens_per_s);
    assert!((after.arrivals.now - 4.0).abs() < 0.2, "{after:?}");
    let reading = later(&CounterReading::default(), 4.0, 60.0);
    forecast.observe(&reading, 2.0 * DAY_S + 10_860.0);
    let later = forecast.advice(2.0 * DAY_S + 10_860.0);
    assert!((later.arrivals.now - 4.0).abs() < 0.2, "{later:?}");
}

#[test]
fn sudden_silence_keeps_a_reserve_that_fades() {
    let mut forecast = forecast();
    run_days(&mut forecast, 0..3, |_| 4.0);
    let usual = forecast.advice(3.0 * DAY_S).engines_wanted.unwrap();
    let silent = |minutes: u32, forecast: &mut DemandForecast| {
        for minute in 0..minutes {
            let at_s = 3.0 * DAY_S + f64::from(minute) * 60.0;
            forecast.observe(&CounterReading::default(), at_s);
        }
        let at_s = 3.0 * DAY_S + f64::from(minutes) * 60.0;
        forecast.advice(at_s).engines_wanted.unwrap() / usual
    };
    let after_minutes = silent(15, &mut forecast);
    assert!((0.4..0.8).contains(&after_minutes), "{after_minutes}");
    let after_hours = silent(300, &mut forecast);
    assert!(after_hours < 0.05, "{after_hours}");
}

#[test]
fn errors_are_compared_when_their_time_comes() {
    let mut accuracy = Accuracy::default();
    for minute in 0..600 {
        let at_s = f64::from(minute) * 60.0;
        accuracy.observe(at_s, 60.0, 10.0);
        accuracy.predict(at_s + 300.0, 15.0);
    }
    // 5 too high, of a mean of 12.5.
    assert!(
        (accuracy.error() - 0.4).abs() < 1e-6,
        "{}",
        accuracy.error()
    );
    assert!((accuracy.bias() - 0.4).abs() < 1e-6, "{}", accuracy.bias());
}

#[test]
fn predictions_without_observations_are_bounded() {
    let mut accuracy = Accuracy::default();
    for second in 0..10 * PENDING_MAX {
        accuracy.predict(second as f64, 1.0);
    }
    assert_eq!(accuracy.pending(), PENDING_MAX);
    accuracy.observe(1e9, 60.0, 1.0);
    assert_eq!(accuracy.pending(), 0);
    assert_eq!(accuracy.error(), 0.0);
}

#[test]
fn outage_of_one_day_changes_the_profile_little() {
    let mut profile = DailyProfile::default();
    let slot_s = DAY_S / SLOTS as f64;
    let mut day = |number: usize, rate: f64| {
        for slot in 0..SLOTS {
            let at_s = number as f64 * DAY_S + (slot as f64 + 0.5) * slot_s;
            profile.observe(at_s, slot_s, rate);
        }
        profile.rate_at(DAY_S / 2.0).unwrap()
    };
    for number in 0..8 {
        day(number, 10.0);
    }
    let after = day(8, 0.0);
    assert!((8.0..9.0).contains(&after), "{after}");
}

#[test]
fn steps_of_equal_size_count_as_cost_of_tokens() {
    let mut cost = StepCost::default();
    let interval = Interval {
        middle_s: 0.0,
        seconds: 60.0,
        arrivals: 60.0,
        admitted: 60.0,
        prefill_tokens: 0.0,
        generated_tokens: 3000.0,
        steps: 3000.0,
        step_seconds: 30.0,
    };
    for _ in 0..10 {
        cost.observe(&interval);
    }
    assert!((cost.tokens_per_s(1.0, 16.0) - 100.0).abs() < 1e-6);
}
