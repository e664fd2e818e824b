//! Keeps the samples of a run, and writes and reads them as JSON.

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::system::PeerDescription;
use crate::percentile;

/// The metrics of one sample.
#[derive(Clone, Debug, Default)]
pub struct SampleMetrics {
    pub(crate) metrics: Vec<(String, f64)>,
    /// The cores that processes of others used meanwhile, where that was measured.
    pub(crate) other_cores: Option<f64>,
    /// What a reader has to know.
    pub(crate) note: Option<String>,
}

impl SampleMetrics {
    pub(crate) fn add(&mut self, name: &str, value: f64) {
        self.metrics.push((name.to_owned(), value));
    }

    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|(it, _)| it == name).map(|(_, value)| *value)
    }

    /// Adds the latencies that 50, 99 and 99.9 of 100 operations do not exceed, in milliseconds.
    pub(crate) fn add_percentiles(&mut self, mut latencies_us: Vec<u64>) {
        latencies_us.sort_unstable();
        for (name, per_mille) in [("p50_ms", 500), ("p99_ms", 990), ("p999_ms", 999)] {
            if let Some(us) = percentile(&latencies_us, per_mille) {
                self.add(name, us as f64 / 1e3);
            }
        }
    }
}

/// What became of one workload of one system in one repetition.
#[derive(Clone, Debug)]
pub(crate) enum SampleOutcome {
    Measured(SampleMetrics),
    /// It failed.
    Failed(String),
    /// The system cannot do it.
    No(String),
}

/// One workload of one system in one repetition.
#[derive(Clone, Debug)]
pub(crate) struct PeerSample {
    pub(crate) system: String,
    pub(crate) workload: String,
    pub(crate) repetition: usize,
    pub(crate) outcome: SampleOutcome,
}

/// Everything that a run found.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerResults {
    /// The machine, in words.
    pub(crate) machine: Vec<String>,
    /// The command.
    pub(crate) command: String,
    pub(crate) repetitions: usize,
    pub(crate) seconds: f64,
    /// The systems in the order of the tables.
    pub(crate) systems: Vec<(String, PeerDescription)>,
    /// What could not be installed, and why.
    pub(crate) missing: Vec<String>,
    pub(crate) samples: Vec<PeerSample>,
}

/// The middle of several samples, and their range.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SampleSpread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) count: usize,
}

impl PeerResults {
    pub(crate) fn of<'a>(
        &'a self,
        system: &'a str,
        workload: &'a str,
    ) -> impl Iterator<Item = &'a PeerSample> {
        self.samples.iter().filter(move |it| it.system == system && it.workload == workload)
    }

    /// A metric over all repetitions. There is none if the workload failed in most of them.
    pub(crate) fn spread(
        &self,
        system: &str,
        workload: &str,
        metric: &str,
    ) -> Option<SampleSpread> {
        let all = self.of(system, workload).count();
        let mut values: Vec<f64> = self
            .of(system, workload)
            .filter_map(|it| match &it.outcome {
                SampleOutcome::Measured(metrics) => metrics.get(metric),
                _ => None,
            })
            .collect();
        values.sort_unstable_by(f64::total_cmp);
        let (min, max, count) = (*values.first()?, *values.last()?, values.len());
        let middle = f64::midpoint(values[(count - 1) / 2], values[count / 2]);
        (count * 2 > all).then_some(SampleSpread { median: middle, min, max, count })
    }

    /// The median of a metric.
    pub(crate) fn median(&self, system: &str, workload: &str, metric: &str) -> Option<f64> {
        self.spread(system, workload, metric).map(|it| it.median)
    }

    pub(crate) fn to_json(&self) -> Value {
        let systems: Vec<Value> = self.systems.iter().map(system_json).collect();
        let samples: Vec<Value> = self.samples.iter().map(sample_json).collect();
        json!({
            "machine": self.machine, "command": self.command, "repetitions": self.repetitions,
            "seconds": self.seconds, "systems": systems, "missing": self.missing, "samples": samples,
        })
    }

    pub(crate) fn from_json(value: &Value) -> Result<Self> {
        let systems = list(value, "systems")?.iter().map(system_of).collect::<Result<_>>()?;
        let samples = list(value, "samples")?.iter().map(sample_of).collect::<Result<_>>()?;
        Ok(Self {
            machine: texts(value, "machine")?,
            command: text(value, "command")?,
            repetitions: count(value, "repetitions")?,
            seconds: value["seconds"].as_f64().context("`seconds` is a number")?,
            systems,
            missing: texts(value, "missing")?,
            samples,
        })
    }
}

fn system_json((name, it): &(String, PeerDescription)) -> Value {
    json!({
        "name": name, "version": it.version, "client": it.client, "way": it.way, "settings": it.settings,
    })
}

fn system_of(value: &Value) -> Result<(String, PeerDescription)> {
    let description = PeerDescription {
        version: text(value, "version")?,
        client: text(value, "client")?,
        way: text(value, "way")?,
        settings: texts(value, "settings")?,
    };
    Ok((text(value, "name")?, description))
}

fn sample_json(it: &PeerSample) -> Value {
    let mut json = json!({
        "system": it.system, "workload": it.workload, "repetition": it.repetition,
    });
    match &it.outcome {
        SampleOutcome::Measured(metrics) => {
            let numbers = metrics.metrics.iter();
            let numbers = numbers.map(|(name, value)| (name.clone(), json!(rounded(*value))));
            json["metrics"] = Value::Object(numbers.collect::<Map<_, _>>());
            json["other_cores"] = json!(metrics.other_cores.map(rounded));
            json["note"] = json!(metrics.note);
        }
        SampleOutcome::Failed(why) => json["failed"] = json!(why),
        SampleOutcome::No(why) => json["no"] = json!(why),
    }
    json
}

fn sample_of(value: &Value) -> Result<PeerSample> {
    let outcome = if let Some(why) = value["failed"].as_str() {
        SampleOutcome::Failed(why.to_owned())
    } else if let Some(why) = value["no"].as_str() {
        SampleOutcome::No(why.to_owned())
    } else {
        let metrics = value["metrics"].as_object().context("a sample has `metrics`")?;
        let number = |(name, value): (&String, &Value)| {
            Ok((name.clone(), value.as_f64().context("a metric is a number")?))
        };
        SampleOutcome::Measured(SampleMetrics {
            metrics: metrics.iter().map(number).collect::<Result<_>>()?,
            other_cores: value["other_cores"].as_f64(),
            note: value["note"].as_str().map(str::to_owned),
        })
    };
    Ok(PeerSample {
        system: text(value, "system")?,
        workload: text(value, "workload")?,
        repetition: count(value, "repetition")?,
        outcome,
    })
}

/// Six significant digits, so that a file of results can be read and compared.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

fn text(value: &Value, key: &str) -> Result<String> {
    value[key].as_str().map(str::to_owned).with_context(|| format!("`{key}` is a text"))
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a [Value]> {
    value[key].as_array().map(Vec::as_slice).with_context(|| format!("`{key}` is a list"))
}

fn texts(value: &Value, key: &str) -> Result<Vec<String>> {
    let each = |it: &Value| it.as_str().map(str::to_owned);
    let all = list(value, key)?.iter().map(each).collect::<Option<_>>();
    all.with_context(|| format!("`{key}` has texts"))
}

fn count(value: &Value, key: &str) -> Result<usize> {
    let count = value[key].as_u64().with_context(|| format!("`{key}` is a count"))?;
    Ok(usize::try_from(count)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(repetition: usize, outcome: SampleOutcome) -> PeerSample {
        PeerSample { system: "a".into(), workload: "w".into(), repetition, outcome }
    }

    fn measured(value: f64) -> SampleOutcome {
        let mut metrics = SampleMetrics { other_cores: Some(0.5), ..Default::default() };
        metrics.add("per_s", value);
        SampleOutcome::Measured(metrics)
    }

    #[test]
    fn a_median_needs_most_repetitions() {
        let mut results = PeerResults::default();
        results.samples.extend([3.0, 1.0, 2.0].map(measured).map(|it| sample(0, it)));
        let spread = results.spread("a", "w", "per_s").unwrap();
        assert_eq!(spread, SampleSpread { median: 2.0, min: 1.0, max: 3.0, count: 3 });
        for _ in 0..3 {
            results.samples.push(sample(0, SampleOutcome::Failed("no".into())));
        }
        assert_eq!(results.spread("a", "w", "per_s"), None);
        assert_eq!(results.spread("a", "w", "other"), None);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut results = PeerResults { command: "c".into(), repetitions: 5, ..Default::default() };
        results.machine.push("two cores".into());
        results
            .systems
            .push(("a".into(), PeerDescription { version: "1".into(), ..Default::default() }));
        results.samples.push(sample(0, measured(1_234.5)));
        results.samples.push(sample(1, SampleOutcome::No("because".into())));
        results.samples.push(sample(2, SampleOutcome::Failed("why".into())));
        let json = results.to_json();
        let again = PeerResults::from_json(&json).unwrap();
        assert_eq!(again.to_json(), json);
        assert_eq!(again.samples.len(), 3);
    }

    #[test]
    fn percentiles_are_of_the_sorted_latencies() {
        let mut metrics = SampleMetrics::default();
        metrics.add_percentiles((1..=1_000).rev().map(|ms| ms * 1_000).collect());
        assert_eq!(metrics.get("p50_ms"), Some(500.0));
        assert_eq!(metrics.get("p99_ms"), Some(990.0));
        assert_eq!(metrics.get("p999_ms"), Some(999.0));
    }
}
