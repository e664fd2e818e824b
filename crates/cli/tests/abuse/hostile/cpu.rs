//! Reads the processor time and the memory of threads and processes, and burns processor time.

use std::fs;
use std::time::Duration;

use tenure_server::os;

/// How long a thread spins before it looks at the time that it has used.
const SPIN_US: u64 = 200;

/// The processor time of this thread so far.
pub(crate) fn thread_us() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ran_ns: u64 = text.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0);
    ran_ns / 1_000
}

/// The most memory that a process has needed so far; 0 once it has ended.
pub(crate) fn memory_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// The processor time of a process so far; 0 once it has ended.
pub(crate) fn process_us(pid: u32) -> u64 {
    /// The system counts in hundredths of a second.
    const TICK_US: u64 = 10_000;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program is in parentheses. After it, user and system time are the 12th and 13th word.
    let words = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    words.skip(11).take(2).filter_map(|it| it.parse::<u64>().ok()).sum::<u64>() * TICK_US
}

/// Uses this much processor time in sum, by equal parts of some threads and evenly over a time. Returns how much it
/// was: on a busy machine it may be less.
pub(crate) fn burn(all_us: u64, threads: u64, time: Duration) -> u64 {
    let (began_us, time_us) = (os::now_us(), os::micros(time).max(1));
    let each_us = all_us / threads.max(1);
    std::thread::scope(|scope| {
        let burners = (0..threads).map(|_| {
            scope.spawn(|| {
                let first_us = thread_us();
                loop {
                    let elapsed_us = os::now_us() - began_us;
                    if elapsed_us >= time_us {
                        return thread_us() - first_us;
                    }
                    let due_us = each_us.saturating_mul(elapsed_us) / time_us;
                    if thread_us() - first_us < due_us {
                        let until_us = os::now_us() + SPIN_US;
                        while os::now_us() < until_us {
                            std::hint::spin_loop();
                        }
                    } else {
                        std::thread::sleep(Duration::from_micros(SPIN_US));
                    }
                }
            })
        });
        let burners: Vec<_> = burners.collect();
        burners.into_iter().map(|it| it.join().unwrap()).sum()
    })
}
