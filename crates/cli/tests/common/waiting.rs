//! Waits for conditions, with a deadline.

use std::time::Duration;

use tenure_server::os;

/// How long a wait may take before the test fails. A machine that others share can stand still for a minute.
const DEADLINE: Duration = Duration::from_secs(120);

/// Waits until the condition returns a value, at the longest for [`DEADLINE`].
pub(crate) fn wait<T>(what: &str, is_so: impl FnMut() -> Option<T>) -> T {
    wait_within(DEADLINE, what, is_so)
}

/// Waits until the condition returns a value, at the longest for `time`.
pub(crate) fn wait_within<T>(time: Duration, what: &str, is_so: impl FnMut() -> Option<T>) -> T {
    let found = try_wait_within(time, is_so);
    found.unwrap_or_else(|| panic!("waited too long: {what}, not within {time:?}"))
}

/// Waits until the condition returns a value, at the longest for [`DEADLINE`]; `None` if it never does.
pub(crate) fn try_wait<T>(is_so: impl FnMut() -> Option<T>) -> Option<T> {
    try_wait_within(DEADLINE, is_so)
}

fn try_wait_within<T>(time: Duration, mut is_so: impl FnMut() -> Option<T>) -> Option<T> {
    let until_us = os::now_us() + os::micros(time);
    loop {
        let found = is_so();
        if found.is_some() || os::now_us() >= until_us {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
