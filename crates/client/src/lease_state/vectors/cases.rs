//! Traces of one situation each, for several ttls: each name says what happens.

use super::super::Cause;
use super::record::{RecordedTimes, Trace};

const TTLS_MS: [u64; 4] = [24_000, 15_000, 1_000, 10_007];
/// A token and a revision of a restored cluster: larger than a double can hold exactly.
const LARGE: u64 = (3 << 48) + (1 << 54) + 1;

/// Records a situation for each ttl, and for one longer window.
fn each(name: &str, record: impl Fn(&mut Trace, u64)) -> Vec<Trace> {
    let mut traces = Vec::new();
    for ttl_ms in TTLS_MS {
        let mut trace =
            Trace::new(format!("{name}, ttl {ttl_ms}ms"), RecordedTimes::of(ttl_ms * 1_000));
        record(&mut trace, ttl_ms * 1_000);
        traces.push(trace);
    }
    let times = RecordedTimes { window_us: Some(15_000_000), ..RecordedTimes::of(24_000_000) };
    let mut trace = Trace::new(format!("{name}, ttl 24000ms, window 15000ms"), times);
    record(&mut trace, 24_000_000);
    traces.push(trace);
    traces
}

fn join(cases: Vec<Vec<Trace>>) -> Vec<Trace> {
    cases.into_iter().flatten().collect()
}

/// A lease that was asked for at 0, granted after a hundredth of the ttl, and holds one lock.
fn granted(trace: &mut Trace, ttl: u64) -> &mut Trace {
    trace.send_grant().after(ttl / 100).grant().lock(1, 5)
}

/// Goes to the moment when a renewal is due, polls, and sends one. Returns its number.
fn renew_when_due(trace: &mut Trace) -> u64 {
    let due = trace.due();
    trace.to(due);
    assert!(trace.poll(), "a renewal is due");
    trace.renewing()
}

pub(super) fn renewals() -> Vec<Trace> {
    join(vec![
        each("renewed on time three times", |trace, ttl| {
            granted(trace, ttl);
            for _ in 0..3 {
                let number = renew_when_due(trace);
                trace.after(ttl / 500).renewed(number, true, 0);
            }
            trace.after(ttl / 10).check();
        }),
        each("polled too early", |trace, ttl| {
            granted(trace, ttl);
            let due = trace.due();
            trace.to(due - 1).poll();
            trace.to(due).poll();
        }),
        each("an unanswered renewal is sent again", |trace, ttl| {
            granted(trace, ttl);
            renew_when_due(trace);
            let due = trace.due();
            trace.to(due - 1).poll();
            trace.to(due).poll();
            let second = trace.renewing();
            trace.after(ttl / 100).renewed(second, true, 0);
        }),
        each("a failed renewal is sent again at its time", |trace, ttl| {
            granted(trace, ttl);
            let first = renew_when_due(trace);
            trace.after(1_000).not_renewed(first);
            let second = renew_when_due(trace);
            trace.after(ttl / 100).renewed(second, true, 0);
        }),
        each("retries until a late answer", |trace, ttl| {
            granted(trace, ttl);
            let mut numbers = vec![renew_when_due(trace)];
            for _ in 0..2 {
                let due = trace.due();
                trace.to(due);
                if trace.poll() {
                    numbers.push(trace.renewing());
                }
            }
            trace.after(ttl / 1_000).renewed(numbers[0], true, 0);
        }),
        each("renewed early", |trace, ttl| {
            granted(trace, ttl);
            trace.after(ttl / 20);
            let number = trace.renewing();
            trace.after(ttl / 100).renewed(number, true, 0);
            trace.poll();
        }),
        each("the request was repeated: the first sending counts", |trace, ttl| {
            trace.send_grant().after(ttl / 10).send_grant().after(ttl / 10).grant();
            let due = trace.due();
            trace.to(due).poll();
        }),
        each("the grant comes when a renewal is due already", |trace, ttl| {
            trace.send_grant().after(ttl * 2 / 5).grant();
            trace.poll();
            let number = trace.renewing();
            trace.after(ttl / 100).renewed(number, true, 0);
        }),
        each("the grant comes too late", |trace, ttl| {
            trace.send_grant();
            let window = u64::try_from(trace.timing().window().as_micros()).unwrap();
            trace.to(window).grant().after(ttl).grant();
        }),
        each("the grant comes in the last microsecond", |trace, _| {
            trace.send_grant();
            let window = u64::try_from(trace.timing().window().as_micros()).unwrap();
            trace.to(window - 1).grant().after(1).check();
        }),
    ])
}

pub(super) fn acknowledgements() -> Vec<Trace> {
    join(vec![
        each("duplicate answers", |trace, ttl| {
            granted(trace, ttl);
            let number = renew_when_due(trace);
            trace.after(ttl / 100).renewed(number, true, 0);
            trace.after(ttl / 100).renewed(number, true, 0);
            trace.after(ttl / 100).renewed(number, false, 9);
        }),
        each("answers out of order", |trace, ttl| {
            granted(trace, ttl);
            let first = renew_when_due(trace);
            let second = renew_when_due(trace);
            trace.after(ttl / 100).renewed(second, true, 0);
            trace.after(ttl / 100).renewed(first, true, 0);
        }),
        each("answers in order, each counted from its own sending", |trace, ttl| {
            granted(trace, ttl);
            let first = renew_when_due(trace);
            let second = renew_when_due(trace);
            trace.after(ttl / 100).renewed(first, true, 0);
            trace.after(ttl / 100).renewed(second, true, 0);
        }),
        each("an old answer that the lease is gone, after a newer that it lives", |trace, ttl| {
            granted(trace, ttl);
            let first = renew_when_due(trace);
            let second = renew_when_due(trace);
            trace.after(ttl / 100).renewed(second, true, 0);
            trace.after(ttl / 100).renewed(first, false, 0);
        }),
        each("an answer after the loss revives nothing", |trace, ttl| {
            granted(trace, ttl);
            let number = renew_when_due(trace);
            let lost_at = trace.lost_at();
            trace.to(lost_at).check_lock(1).after(1).renewed(number, true, 0);
            trace.check_lock(1).after(ttl).check();
        }),
        each("an answer is the first to notice the loss", |trace, ttl| {
            granted(trace, ttl);
            let number = renew_when_due(trace);
            let lost_at = trace.lost_at();
            trace.to(lost_at + ttl / 50).renewed(number, true, 0);
            trace.check_lock(1);
        }),
        each("an answer in the last microsecond", |trace, ttl| {
            granted(trace, ttl);
            let number = renew_when_due(trace);
            let lost_at = trace.lost_at();
            trace.to(lost_at - 1).renewed(number, true, 0);
            trace.after(1).check();
        }),
        each("an answer to a number that was never sent", |trace, ttl| {
            granted(trace, ttl);
            renew_when_due(trace);
            trace.after(ttl / 100).renewed(77, true, 0);
            trace.renewed(0, false, 0);
        }),
        each("an answer to a renewal that counted as failed", |trace, ttl| {
            granted(trace, ttl);
            let number = renew_when_due(trace);
            trace.after(ttl / 100).not_renewed(number).after(1).renewed(number, true, 0);
        }),
    ])
}

pub(super) fn losses() -> Vec<Trace> {
    join(vec![
        each("lost by silence", |trace, ttl| {
            granted(trace, ttl);
            while trace.is_held() {
                let due = trace.due();
                trace.to(due);
                if trace.poll() {
                    trace.renewing();
                }
            }
            trace.check_lock(1).after(ttl).poll();
        }),
        each("every renewal fails", |trace, ttl| {
            granted(trace, ttl);
            while trace.is_held() {
                let due = trace.due();
                trace.to(due);
                if trace.poll() {
                    let number = trace.renewing();
                    trace.not_renewed(number);
                }
            }
            trace.check_lock(1);
        }),
        each("the lease is gone, says a renewal", |trace, ttl| {
            granted(trace, ttl);
            let number = renew_when_due(trace);
            trace.after(ttl / 100).renewed(number, false, 0);
            trace.check_lock(1).after(ttl / 100).poll();
        }),
        each("the cluster says that the lease ended", |trace, ttl| {
            granted(trace, ttl).after(ttl / 10).ended(Cause::Revoked).ended(Cause::Expired);
            trace.check_lock(1);
        }),
        each("the local clock knows first", |trace, ttl| {
            granted(trace, ttl);
            renew_when_due(trace);
            let lost_at = trace.lost_at();
            trace.to(lost_at + 1).ended(Cause::Expired).check_lock(1);
        }),
        each("the credentials are refused until the end", |trace, ttl| {
            granted(trace, ttl);
            let number = renew_when_due(trace);
            trace.after(1_000).not_renewed(number).credentials_refused();
            let lost_at = trace.lost_at();
            trace.to(lost_at).check();
        }),
        each("the credentials are accepted again", |trace, ttl| {
            granted(trace, ttl);
            let number = renew_when_due(trace);
            trace.after(1_000).not_renewed(number).credentials_refused();
            let number = renew_when_due(trace);
            trace.after(1_000).renewed(number, true, 0);
            renew_when_due(trace);
            let lost_at = trace.lost_at();
            trace.to(lost_at).check();
        }),
        each("the process did not run", |trace, ttl| {
            granted(trace, ttl).after(ttl).poll();
            trace.check_lock(1);
        }),
        each("the process did not run, noticed by a check", |trace, ttl| {
            granted(trace, ttl).after(ttl).check_lock(1).poll();
        }),
        each("a short stall costs nothing", |trace, ttl| {
            granted(trace, ttl);
            let due = trace.due();
            trace.to(due + ttl / 12);
            trace.poll();
            let number = trace.renewing();
            trace.after(ttl / 1_000).renewed(number, true, 0);
            trace.after(ttl / 4).check();
        }),
        each("an unanswered renewal, then a stall", |trace, ttl| {
            granted(trace, ttl);
            renew_when_due(trace);
            trace.after(ttl).poll();
        }),
        each("overdue, then renewed", |trace, ttl| {
            granted(trace, ttl);
            let number = renew_when_due(trace);
            let overdue = u64::try_from(trace.timing().doubtful_after().as_micros()).unwrap();
            trace.to(overdue - 1).check().to(overdue).check();
            trace.renewed(number, true, 0);
            trace.check();
        }),
    ])
}

pub(super) fn suspends() -> Vec<Trace> {
    join(vec![
        each("suspended for longer than the window", |trace, ttl| {
            granted(trace, ttl).after(ttl / 20).suspend(ttl).poll();
            trace.check_lock(1);
        }),
        each("suspended, noticed by a check before a poll", |trace, ttl| {
            granted(trace, ttl).after(ttl / 20).suspend(ttl).check_lock(1).poll();
        }),
        each("suspended for less than the window", |trace, ttl| {
            granted(trace, ttl).after(ttl / 20).suspend(ttl * 3 / 8).poll();
            let number = trace.renewing();
            trace.after(ttl / 100).renewed(number, true, 0);
            trace.check_lock(1);
        }),
        each("suspended twice, together too long", |trace, ttl| {
            granted(trace, ttl).suspend(ttl / 5).poll();
            trace.after(1_000).suspend(ttl * 3 / 4).poll();
        }),
        each("fifty milliseconds of difference are no suspend", |trace, ttl| {
            granted(trace, ttl).suspend(50_000).poll();
            trace.after(ttl).poll();
        }),
        each("suspended with a renewal under way", |trace, ttl| {
            granted(trace, ttl);
            let number = renew_when_due(trace);
            trace.suspend(ttl).renewed(number, true, 0);
            trace.check_lock(1);
        }),
        each("renewals failed before the suspend", |trace, ttl| {
            granted(trace, ttl);
            let number = renew_when_due(trace);
            trace.not_renewed(number).suspend(ttl).poll();
        }),
        each("suspended before the grant", |trace, ttl| {
            trace.send_grant().suspend(ttl / 4).grant().lock(1, 5);
            let lost_at = trace.lost_at();
            trace.to(lost_at).check();
        }),
    ])
}

pub(super) fn changed() -> Vec<Trace> {
    join(vec![
        each("a loss that was not told: the renewal counts after the reading", |trace, ttl| {
            granted(trace, ttl).lock(2, 6);
            let number = renew_when_due(trace);
            trace.after(ttl / 100).renewed(number, true, 7);
            trace.check().after(ttl / 100).holdings(8, 7, &[2]);
            trace.check_lock(1).check_lock(2);
        }),
        each("the holdings are never read", |trace, ttl| {
            granted(trace, ttl);
            let number = renew_when_due(trace);
            trace.after(ttl / 100).renewed(number, true, 7);
            let lost_at = trace.lost_at();
            trace.to(lost_at).check();
        }),
        each("the holdings come too late", |trace, ttl| {
            granted(trace, ttl);
            let number = renew_when_due(trace);
            trace.after(ttl / 100).renewed(number, true, 7);
            let lost_at = trace.lost_at();
            trace.to(lost_at).holdings(8, 7, &[1]).check_lock(1);
        }),
        each("holdings older than the loss prove nothing", |trace, ttl| {
            granted(trace, ttl);
            let number = renew_when_due(trace);
            trace.after(ttl / 100).renewed(number, true, 9);
            trace.after(1_000).holdings(8, 7, &[1]);
            trace.after(1_000).holdings(9, 9, &[1]).check_lock(1);
        }),
        each("a lock granted after the reading is rightly missing", |trace, ttl| {
            granted(trace, ttl);
            let number = renew_when_due(trace);
            trace.after(ttl / 100).renewed(number, true, 7);
            trace.lock(2, 9).holdings(8, 7, &[1]).check_lock(2);
        }),
        each("a grant older than a loss that was read becomes no guard", |trace, ttl| {
            granted(trace, ttl);
            let number = renew_when_due(trace);
            trace.after(ttl / 100).renewed(number, true, 9);
            trace.holdings(9, 9, &[1]).lock(2, 6).lock(3, 9).check_lock(2).check_lock(3);
        }),
        each("a second renewal while the holdings are read", |trace, ttl| {
            granted(trace, ttl);
            let first = renew_when_due(trace);
            trace.after(ttl / 200).renewed(first, true, 7);
            let second = renew_when_due(trace);
            trace.after(ttl / 200).renewed(second, true, 9);
            trace.holdings(8, 7, &[1]).after(1_000).holdings(9, 9, &[1]);
        }),
        each("a change that is known already", |trace, ttl| {
            granted(trace, ttl);
            let first = renew_when_due(trace);
            trace.after(ttl / 200).renewed(first, true, 7);
            trace.holdings(8, 7, &[1]);
            let second = renew_when_due(trace);
            trace.after(ttl / 200).renewed(second, true, 7);
        }),
        each("revisions of a restored cluster", |trace, ttl| {
            granted(trace, ttl).lock(LARGE, LARGE).lock(LARGE + 1, LARGE + 2);
            let number = renew_when_due(trace);
            trace.after(ttl / 200).renewed(number, true, LARGE + 1);
            trace.holdings(LARGE + 1, LARGE + 1, &[1]).check_lock(LARGE).check_lock(LARGE + 1);
        }),
    ])
}

pub(super) fn locks() -> Vec<Trace> {
    join(vec![
        each("given back", |trace, ttl| {
            granted(trace, ttl).after(ttl / 10).give_back(1).check_lock(1).give_back(1).farewells();
        }),
        each("the work stops, then the release is said once", |trace, ttl| {
            granted(trace, ttl).after(ttl / 10).farewells().stopped(1).farewells().farewells();
            trace.check_lock(1);
        }),
        each("forced: stopped is said only after the work", |trace, ttl| {
            granted(trace, ttl).lock(2, 6).after(ttl / 10).taken(1, Cause::Forced).farewells();
            trace.check_lock(1).check_lock(2).give_back(1);
            trace.after(ttl / 20).stopped(1).farewells().stopped(2).farewells();
        }),
        each("held as long as it may be", |trace, ttl| {
            granted(trace, ttl).after(ttl / 10).taken(1, Cause::MaxHold).taken(1, Cause::Forced);
            trace.check_lock(1).stopped(1).farewells();
        }),
        each("the lease is lost, then the work stops", |trace, ttl| {
            granted(trace, ttl).lock(2, 6).taken(2, Cause::Forced);
            let lost_at = trace.lost_at();
            trace.to(lost_at).give_back(1).farewells().stopped(1).stopped(2).farewells();
            trace.end_if_idle();
        }),
        each("no grant after the lease was ended for its revocation", |trace, ttl| {
            granted(trace, ttl).end_if_idle().stopped(1).end_if_idle().lock(2, 9);
            trace.check_lock(2);
        }),
        each("a grant that comes when the lease is lost", |trace, ttl| {
            granted(trace, ttl);
            let lost_at = trace.lost_at();
            trace.to(lost_at).lock(2, 9).check_lock(2);
        }),
        each("a grant for an unknown token", |trace, ttl| {
            granted(trace, ttl).check_lock(9).taken(9, Cause::Forced).stopped(9).give_back(9);
            trace.farewells();
        }),
        each("farewells are sorted by token", |trace, ttl| {
            granted(trace, ttl).lock(10, 9).lock(9, 10).lock(LARGE + 1, 11).lock(LARGE, 12);
            trace.taken(10, Cause::Forced);
            trace.stopped(LARGE + 1).stopped(10).stopped(9).stopped(LARGE).farewells();
        }),
    ])
}
