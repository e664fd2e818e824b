//! Estimates how long contended locks have no holder between release and next grant.
//!
//! The events cannot tell: a release and the next grant are one revision. The leader measures the time from the
//! arrival of the release, by the first segment of lock names, as `tenure_handover_seconds` in its `/metrics`.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::time::Duration;

use tenure::MemberChannel;
use tenure_server::os;
use tonic::body::Body;
use tonic::codegen::{Body as _, Service, http};

use crate::connection_args::ConnectionTarget;

/// The metric in the leader's page.
const METRIC: &str = "tenure_handover_seconds_bucket";
/// The window of the median, in microseconds. If it contains no hand-over, the median is over all since the leader
/// started.
const WINDOW_US: u64 = 60_000_000;
/// How long fetching the page may take.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The longest page that is read: a hundred prefixes with all their buckets are well below it.
const PAGE_MAX: usize = 4 * 1024 * 1024;

/// By prefix, the cumulative buckets in ascending order: an upper bound in seconds, and how many hand-overs took at
/// most that long.
type GapCounts = BTreeMap<String, Vec<(f64, u64)>>;

/// The leader's counts of the last minute.
#[derive(Default)]
pub(super) struct HandoverGaps {
    leader: Option<(String, MemberChannel)>,
    seen: VecDeque<(u64, GapCounts)>,
}

impl HandoverGaps {
    /// Fetches the counts from the leader, if it is known. Without an answer nothing is added.
    pub(super) async fn fetch(&mut self, place: &ConnectionTarget, leader: Option<&str>) {
        let known = self.leader.as_ref().map(|(address, _)| address.as_str());
        if known != leader {
            self.seen.clear();
            self.leader = leader.and_then(|it| Some((it.to_owned(), place.channel(it).ok()?)));
        }
        let Some((address, channel)) = &self.leader else { return };
        let scheme = if place.tls.is_some() { "https" } else { "http" };
        let asked = page(channel.clone(), format!("{scheme}://{address}/metrics"));
        if let Ok(Some(text)) = tokio::time::timeout(TIMEOUT, asked).await {
            self.add(os::now_us(), parse(&text));
        }
    }

    fn add(&mut self, now_us: u64, counts: GapCounts) {
        self.seen.push_back((now_us, counts));
        while self.seen.front().is_some_and(|(at_us, _)| at_us + WINDOW_US < now_us) {
            self.seen.pop_front();
        }
    }

    /// The median for locks with the same first segment as this one.
    pub(super) fn p50(&self, lock: &str) -> Option<Duration> {
        let prefix = lock.split('/').next()?;
        let (_, newest) = self.seen.back()?;
        let all = newest.get(prefix)?;
        let before = self.seen.front().and_then(|(_, oldest)| oldest.get(prefix));
        let recent: Vec<(f64, u64)> = match before {
            // The difference is the histogram of the window. A count that shrank belongs to a restarted process and
            // counts as 0.
            Some(before) if before.len() == all.len() => {
                let both = all.iter().zip(before);
                both.map(|(now, then)| (now.0, now.1.saturating_sub(then.1))).collect()
            }
            _ => Vec::new(),
        };
        median(&recent).or_else(|| median(all))
    }
}

/// The median of cumulative counts, interpolated within its bucket.
fn median(counts: &[(f64, u64)]) -> Option<Duration> {
    let all = counts.last()?.1;
    if all == 0 {
        return None;
    }
    let half = all as f64 / 2.0;
    let at = counts.iter().position(|(_, count)| *count as f64 >= half)?;
    let (low, below) = at.checked_sub(1).map_or((0.0, 0), |before| counts[before]);
    let (high, count) = counts[at];
    let seconds = match high.is_finite() {
        true => low + (high - low) * (half - below as f64) / (count - below) as f64,
        false => low,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// Parses the counts from a page of metrics.
fn parse(page: &str) -> GapCounts {
    let mut counts = GapCounts::new();
    for line in page.lines() {
        let Some((labels, value)) =
            line.strip_prefix(METRIC).and_then(|rest| rest.strip_prefix('{')?.rsplit_once("} "))
        else {
            continue;
        };
        let bound = label(labels, "le").and_then(|bound| match bound.as_str() {
            "+Inf" => Some(f64::INFINITY),
            bound => bound.parse().ok(),
        });
        let value = value.split(' ').next().and_then(|value| value.parse().ok());
        if let (Some(prefix), Some(bound), Some(value)) = (label(labels, "prefix"), bound, value) {
            counts.entry(prefix).or_default().push((bound, value));
        }
    }
    counts.values_mut().for_each(|steps| steps.sort_by(|a, b| a.0.total_cmp(&b.0)));
    counts
}

/// A label's value, unescaped.
fn label(labels: &str, name: &str) -> Option<String> {
    let mut rest = labels;
    loop {
        let (key, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next()? {
                (at, '"') => break at,
                (_, '\\') => match letters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, letter) => value.push(letter),
            }
        };
        if key.trim_start_matches(',') == name {
            return Some(value);
        }
        rest = &after[end + 1..];
    }
}

/// Fetches a page of text over the same connection as gRPC calls.
async fn page(mut channel: MemberChannel, address: String) -> Option<String> {
    let request = http::Request::get(address).body(Body::empty()).ok()?;
    poll_fn(|context| Service::poll_ready(&mut channel, context)).await.ok()?;
    let response = Service::call(&mut channel, request).await.ok()?;
    if response.status() != http::StatusCode::OK {
        return None;
    }
    let mut body = Box::pin(response.into_body());
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        if let Ok(data) = frame.ok()?.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > PAGE_MAX {
            return None;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(jobs: [u64; 3]) -> String {
        let [a, b, c] = jobs;
        format!(
            "# TYPE tenure_handover_seconds histogram\n\
             tenure_handover_seconds_sum{{prefix=\"jobs\"}} 0.1\n\
             tenure_handover_seconds_bucket{{le=\"0.001\",prefix=\"jobs\"}} {a}\n\
             tenure_handover_seconds_bucket{{le=\"0.002\",prefix=\"jobs\"}} {b}\n\
             tenure_handover_seconds_bucket{{le=\"+Inf\",prefix=\"jobs\"}} {c}\n\
             tenure_handover_seconds_bucket{{prefix=\"a\\\"b,c\",le=\"+Inf\"}} 0\n"
        )
    }

    #[test]
    fn half_were_quicker_than_this_in_the_last_minute_or_ever() {
        let mut gaps = HandoverGaps::default();
        assert_eq!(gaps.p50("jobs/import"), None);
        gaps.add(1, parse(&page([10, 10, 10])));
        assert_eq!(gaps.p50("jobs/import"), Some(Duration::from_micros(500)));
        assert_eq!(gaps.p50("other"), None);
        assert_eq!(gaps.p50("a\"b,c"), None, "nothing was handed over");
        // Eight more, all of them slower.
        gaps.add(2, parse(&page([10, 18, 18])));
        assert_eq!(gaps.p50("jobs"), Some(Duration::from_micros(1_500)));
        // Beyond the last finite bucket the duration is unknown.
        gaps.add(3, parse(&page([10, 18, 90])));
        assert_eq!(gaps.p50("jobs"), Some(Duration::from_micros(2_000)));
        gaps.add(3 + WINDOW_US, parse(&page([10, 18, 90])));
        assert_eq!(gaps.seen.len(), 2, "older than a minute");
    }
}
