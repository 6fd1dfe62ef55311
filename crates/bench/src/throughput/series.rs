//! What was measured: a point for each round, a series for each contestant, a phase for each question.
//!
//! Pure. Invariant: the points of one phase belong together, the first of everybody to the first round: a ratio of two
//! contestants has as many pairs as there were rounds.

use std::time::Duration;

use crate::driver::{Cpu, Slice, Tally};

/// One contestant in one round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Answered requests per second.
    pub per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// CPU time of each request by process; none where it was not looked at.
    pub cpu: Option<CpuMicros>,
}

/// Microseconds of CPU time for each request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuMicros {
    pub service: f64,
    pub postgresql: Option<f64>,
    pub redis: Option<f64>,
}

/// All rounds of one contestant.
#[derive(Debug, Clone)]
pub struct Series {
    pub label: String,
    pub points: Vec<Point>,
}

/// Middle, least and greatest of all rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub greatest: f64,
}

/// One question, answered for several contestants in turn.
#[derive(Debug, Clone)]
pub struct Phase {
    /// In names of measures and in JSON: `fresh_real_16`.
    pub id: String,
    /// For people.
    pub title: String,
    pub series: Vec<Series>,
}

impl Point {
    pub fn of_tally(tally: &Tally) -> Self {
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        Self {
            per_second: tally.per_second(),
            p50_ms: ms(tally.latencies.quantile(0.5)),
            p99_ms: ms(tally.latencies.quantile(0.99)),
            max_ms: ms(tally.latencies.max()),
            cpu: None,
        }
    }

    pub fn of_slice(slice: &Slice) -> Self {
        let requests = slice.tally.latencies.len() as f64;
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / requests;
        let Cpu { service, postgresql, redis } = slice.cpu;
        let cpu = CpuMicros {
            service: micros(service),
            postgresql: postgresql.map(micros),
            redis: redis.map(micros),
        };
        Self { cpu: Some(cpu), ..Self::of_tally(&slice.tally) }
    }
}

impl Spread {
    /// Of nothing: no bound is met by it.
    pub const UNKNOWN: Self = Self { median: f64::NAN, least: f64::NAN, greatest: f64::NAN };

    /// Of at least one value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, greatest) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Self { median, least, greatest })
    }
}

impl Series {
    /// One figure over all rounds. A series that was run has points.
    pub fn spread(&self, figure: impl Fn(&Point) -> f64) -> Spread {
        Spread::of(self.points.iter().map(figure)).unwrap_or(Spread::UNKNOWN)
    }

    /// The middle of what one process used for each request, if that is known.
    pub fn cpu(&self, process: impl Fn(&CpuMicros) -> Option<f64>) -> Option<f64> {
        let used = self.points.iter().filter_map(|point| process(&point.cpu?));
        Spread::of(used).map(|spread| spread.median)
    }
}

impl Phase {
    pub fn series(&self, label: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.label == label)
    }

    /// The median of one against the median of the other, and the least and greatest ratio of a round.
    pub fn ratio(&self, ours: &str, theirs: &str, figure: fn(&Point) -> f64) -> Option<Spread> {
        let (ours, theirs) = (self.series(ours)?, self.series(theirs)?);
        let rounds =
            ours.points.iter().zip(&theirs.points).map(|(ours, theirs)| figure(ours) / figure(theirs));
        let rounds = Spread::of(rounds)?;
        Some(Spread { median: ours.spread(figure).median / theirs.spread(figure).median, ..rounds })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A series whose rounds had these throughputs.
    pub fn series(label: &str, per_second: &[f64]) -> Series {
        let cpu = Some(CpuMicros { service: 100.0, postgresql: Some(300.0), redis: None });
        let point = |rate: &f64| Point {
            per_second: *rate,
            p50_ms: 1000.0 / rate,
            p99_ms: 3000.0 / rate,
            max_ms: 9000.0 / rate,
            cpu,
        };
        Series { label: label.to_owned(), points: per_second.iter().map(point).collect() }
    }

    #[test]
    fn a_ratio_is_of_medians_and_its_spread_of_rounds() {
        let phase = Phase {
            id: "p".to_owned(),
            title: "P".to_owned(),
            series: vec![series("a", &[80.0, 100.0, 300.0]), series("b", &[100.0, 200.0, 200.0])],
        };
        let ratio = phase.ratio("a", "b", |point| point.per_second).unwrap();
        assert_eq!(ratio, Spread { median: 0.5, least: 0.5, greatest: 1.5 });
        assert_eq!(phase.ratio("a", "c", |point| point.per_second), None);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), Some(Spread { median: 2.5, least: 1.0, greatest: 4.0 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn cpu_time_is_that_of_one_request() {
        let mut tally = Tally::over(Duration::from_secs(1));
        (0..200).for_each(|_| tally.expected(201, Duration::from_millis(2)));
        let cpu = Cpu {
            service: Duration::from_millis(20),
            postgresql: Some(Duration::from_millis(60)),
            redis: None,
        };
        let point = Point::of_slice(&Slice { tally, cpu });
        assert_eq!(point.cpu, Some(CpuMicros { service: 100.0, postgresql: Some(300.0), redis: None }));
        assert!((point.per_second - 200.0).abs() < 1e-9 && (point.p50_ms - 2.0).abs() < 0.02, "{point:?}");
        let series = Series { label: String::new(), points: vec![point] };
        assert_eq!((series.cpu(|cpu| cpu.postgresql), series.cpu(|cpu| cpu.redis)), (Some(300.0), None));
    }
}
