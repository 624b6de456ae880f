//! Arrivals of two weeks, second by second.

/// Seconds of a day.
pub(super) const DAY_S: usize = 86_400;
/// Days of a trace.
pub(super) const DAYS: usize = 14;

/// Deterministic random numbers.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// From 0 to 1.
    pub(super) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }

    /// A normal variate.
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// A Poisson variate.
    pub(super) fn poisson(&mut self, mean: f64) -> f64 {
        if mean > 20.0 {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0);
        }
        let (limit, mut product, mut count) = ((-mean).exp(), self.unit(), 0.0);
        while product > limit {
            product *= self.unit();
            count += 1.0;
        }
        count
    }
}

/// What happens beside the daily shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trace {
    /// Nothing.
    Days,
    /// A job at fixed times of each day, some minutes early or late.
    Jobs,
    /// Bursts of 3 to 15 minutes at random times, eight a day.
    Bursts,
    /// From the tenth day 09:30 on, 2.2 times the traffic.
    Launch,
    /// On the ninth and the twelfth day, nothing arrives for 45 minutes; then half as much again for ten minutes.
    Outage,
    /// All of these.
    All,
}

impl Trace {
    pub(super) const ALL: [Self; 6] = [
        Self::Days,
        Self::Jobs,
        Self::Bursts,
        Self::Launch,
        Self::Outage,
        Self::All,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Days => "days",
            Self::Jobs => "days and jobs",
            Self::Bursts => "days and bursts",
            Self::Launch => "days and a launch",
            Self::Outage => "days and two outages",
            Self::All => "all of these",
        }
    }

    fn has(self, part: Self) -> bool {
        self == part || self == Self::All
    }

    /// Arrivals of each second.
    pub(super) fn arrivals(self, seed: u64, peak_per_s: f64) -> Vec<u16> {
        let mut dice = Dice::new(seed);
        let mut rates = vec![0.0; DAYS * DAY_S];
        for day in 0..DAYS {
            self.add_day(day, &mut rates, &mut dice);
        }
        let arrivals = rates.iter().map(|rate| dice.poisson(peak_per_s * rate));
        arrivals.map(|count| count as u16).collect()
    }

    fn add_day(self, day: usize, rates: &mut [f64], dice: &mut Dice) {
        let weekend = day % 7 >= 5;
        let size = if weekend { 0.65 } else { 1.0 } * (1.0 + 0.08 * dice.normal()).max(0.5);
        let first = day * DAY_S;
        for second in 0..DAY_S {
            let rate = &mut rates[first + second];
            *rate = size * daily_shape(second as f64 / 3600.0);
            if self.has(Self::Launch) && first + second >= 9 * DAY_S + 34_200 {
                *rate *= 2.2;
            }
        }
        if self.has(Self::Jobs) {
            for (hour, minutes) in [(2.0, 40.0), (6.0, 20.0), (13.5, 15.0), (22.0, 30.0)] {
                let begin = hour * 3600.0 + 90.0 * dice.normal();
                add(rates, first, begin, minutes * 60.0, |rate| rate + 0.5);
            }
        }
        if self.has(Self::Bursts) {
            for _ in 0..8 {
                let (begin, factor) = (dice.unit() * DAY_S as f64, dice.between(1.3, 2.0));
                let length = dice.between(180.0, 900.0);
                add(rates, first, begin, length, |rate| rate * factor);
            }
        }
        if self.has(Self::Outage) && (day == 8 || day == 11) {
            let begin = dice.between(9.0, 20.0) * 3600.0;
            add(rates, first, begin, 2700.0, |_| 0.0);
            add(rates, first, begin + 2700.0, 600.0, |rate| rate * 1.5);
        }
    }
}

fn add(rates: &mut [f64], first: usize, begin_s: f64, length_s: f64, change: impl Fn(f64) -> f64) {
    let begin = first + begin_s.max(0.0) as usize;
    let end = (begin + length_s as usize).min(rates.len());
    for rate in rates.get_mut(begin..end).unwrap_or_default() {
        *rate = change(*rate);
    }
}

/// Share of the peak by hour.
fn daily_shape(hour: f64) -> f64 {
    const POINTS: [(f64, f64); 12] = [
        (0.0, 0.22),
        (2.0, 0.12),
        (5.0, 0.10),
        (7.5, 0.20),
        (8.5, 0.65),
        (9.5, 0.95),
        (11.5, 1.0),
        (12.5, 0.75),
        (14.0, 0.98),
        (17.0, 0.85),
        (19.0, 0.45),
        (24.0, 0.22),
    ];
    let after = POINTS.iter().position(|point| point.0 > hour);
    let after = after.unwrap_or(POINTS.len() - 1).max(1);
    let (from, to) = (POINTS[after - 1], POINTS[after]);
    from.1 + (to.1 - from.1) * (hour - from.0) / (to.0 - from.0)
}
