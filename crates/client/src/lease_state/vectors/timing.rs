//! Traces of the times of a lease: the defaults of many ttls, and windows and graces at the edges of what fits.

use super::record::{RecordedTimes, Trace};

const TTLS_MS: [u64; 15] = [
    100, 101, 250, 999, 1_000, 1_001, 2_000, 7_777, 10_000, 15_000, 30_000, 60_000, 600_000,
    3_599_999, 3_600_000,
];

pub(super) fn all() -> Vec<Trace> {
    let mut traces = Vec::new();
    for ttl_ms in [0, 1, 99, 3_600_001, 86_400_000] {
        traces.push(Trace::new(format!("ttl {ttl_ms}ms"), RecordedTimes::of(ttl_ms * 1_000)));
    }
    for ttl_ms in TTLS_MS {
        let times = RecordedTimes::of(ttl_ms * 1_000);
        traces.push(lived(Trace::new(format!("ttl {ttl_ms}ms"), times)));
        let (least, most) = (times.ttl_us / 3, longest(times.ttl_us));
        for (edge, window) in [
            ("no window", 0),
            ("a third", least),
            ("just above a third", least + 1),
            ("the longest", most),
            ("too long", most + 1),
            ("the ttl", times.ttl_us),
        ] {
            let times = RecordedTimes { window_us: Some(window), ..times };
            traces.push(lived(Trace::new(format!("window {edge} of ttl {ttl_ms}ms"), times)));
        }
        let half = times.ttl_us / 2;
        for (edge, window, grace) in [
            ("that just fits", None, most - half),
            ("one too long", None, most - half + 1),
            ("with a window", Some(least + 1), most - least - 1),
            ("with a window, one too long", Some(least + 1), most - least),
            ("beside the longest window", Some(most), 1),
        ] {
            let times = RecordedTimes { window_us: window, grace_us: Some(grace), ..times };
            traces.push(lived(Trace::new(format!("grace {edge} in ttl {ttl_ms}ms"), times)));
        }
    }
    traces
}

/// Goes over each moment at which such a lease changes, if its times fit.
fn lived(mut trace: Trace) -> Trace {
    if !trace.fits() {
        return trace;
    }
    trace.send_grant().after(1).grant();
    let (mut polls, lost_at) = (0, trace.lost_at());
    while polls < 4 && trace.due() < lost_at {
        let due = trace.due();
        trace.to(due).poll();
        polls += 1;
        if polls == 1 {
            trace.renewing();
        }
    }
    trace.to(lost_at - 1).check().to(lost_at).check();
    trace
}

/// The longest window, by the rule of the format page: clocks differ by at most one percent.
fn longest(ttl_us: u64) -> u64 {
    ttl_us * 990_000 / 1_010_000
}
