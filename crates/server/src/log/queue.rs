//! Shares the bounded queue of log lines between the threads that log and the one that writes.
//!
//! [`LogQueue`] decides what waits and what is dropped. The lock is held for a push or a pop and never while a line is
//! written, so [`LineQueue::push`] does not wait for the sink.

use std::io::{self, ErrorKind, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tenure_node::{LogQueue, Pushed, QueuedLine};

use super::line::{self, LineForm};

/// The most bytes that wait: some 5,000 lines, more than any burst measured, and small beside a member.
const BYTES_MAX: usize = 1024 * 1024;

/// How long the writer waits before it retries a non-blocking sink that is full.
const PAUSE: Duration = Duration::from_millis(20);

/// The lines that wait for the sink.
pub(super) struct LineQueue {
    state: Mutex<LogQueue>,
    /// Signals that a line was pushed.
    pushed: Condvar,
    /// Signals that everything is written.
    drained: Condvar,
    form: LineForm,
    dropped: Counter,
}

impl LineQueue {
    pub(super) fn new(form: LineForm, dropped: Counter) -> Self {
        Self::with_room(form, dropped, BYTES_MAX)
    }

    fn with_room(form: LineForm, dropped: Counter, bytes_max: usize) -> Self {
        let (pushed, drained) = Default::default();
        Self { state: Mutex::new(LogQueue::new(bytes_max)), pushed, drained, form, dropped }
    }

    /// Queues a line, or drops and counts it if there is no room. Never waits for the sink.
    pub(super) fn push(&self, line: String) {
        let mut state = self.state();
        if mutant!("log_line_blocks_the_loop") {
            let full = |state: &mut LogQueue| state.bytes() > BYTES_MAX / 2;
            let waited = self.drained.wait_while(state, full);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let pushed = state.push(line);
        drop(state);
        match pushed {
            Pushed::Queued => self.pushed.notify_one(),
            Pushed::Dropped => {
                self.dropped.inc();
            }
            #[cfg(mutants)]
            Pushed::Blocked(_) => {
                self.dropped.inc();
            }
        }
    }

    /// Waits until everything is written, for at most `within`; returns whether it is.
    pub(super) fn flush(&self, within: Duration) -> bool {
        let busy = |state: &mut LogQueue| !state.is_drained();
        let waited = self.drained.wait_timeout_while(self.state(), within, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Writes every line from now on and never returns: the work of the log writer thread.
    pub(super) fn write_to(&self, mut sink: impl Write) {
        loop {
            let item = self.take();
            let written = match &item {
                QueuedLine::Line(line) => write(&mut sink, line),
                QueuedLine::Gap(lines) => {
                    let pairs = [("lines", lines.to_string())];
                    let message = "log lines were dropped: stderr was not read fast enough";
                    write(
                        &mut sink,
                        &line::format(self.form, tracing::Level::WARN, message, &pairs),
                    )
                }
            };
            let mut state = self.state();
            if written.is_ok() {
                state.written();
                continue;
            }
            state.refused(&item);
            if matches!(item, QueuedLine::Line(_)) {
                self.dropped.inc();
            }
        }
    }

    /// Waits for the next item.
    fn take(&self) -> QueuedLine {
        let mut state = self.state();
        loop {
            if let Some(item) = state.take() {
                return item;
            }
            self.drained.notify_all();
            state = self.pushed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, LogQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a whole line, also to a pipe that another process has made non-blocking.
fn write(sink: &mut impl Write, line: &str) -> io::Result<()> {
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        match sink.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
    }
    sink.flush()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);

    /// A sink that takes a line only when the test allows it, like a pipe that is read by hand.
    struct Pipe {
        allowed: Receiver<io::Result<()>>,
        written: Sender<String>,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.allowed.recv().unwrap_or_else(|_| Err(ErrorKind::BrokenPipe.into()))?;
            let _ = self.written.send(String::from_utf8(bytes.to_vec()).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Bench {
        queue: Arc<LineQueue>,
        dropped: Counter,
        allow: Sender<io::Result<()>>,
        written: Receiver<String>,
    }

    fn bench(bytes_max: usize) -> Bench {
        let dropped = Counter::default();
        let queue = Arc::new(LineQueue::with_room(LineForm::Text, dropped.clone(), bytes_max));
        let ((allow, allowed), (write, written)) = (channel(), channel());
        let writer = queue.clone();
        std::thread::spawn(move || writer.write_to(Pipe { allowed, written: write }));
        Bench { queue, dropped, allow, written }
    }

    impl Bench {
        fn push(&self, lines: &[&str]) {
            lines.iter().for_each(|line| self.queue.push((*line).to_owned()));
        }

        /// Waits until the writer has taken a line and blocks in the sink.
        fn hangs(&self) {
            while self.queue.state().is_drained() || !self.queue.state().is_empty() {
                std::thread::yield_now();
            }
        }

        fn reads(&self) -> String {
            self.allow.send(Ok(())).unwrap();
            self.written.recv_timeout(DEADLINE).unwrap()
        }
    }

    /// Pushes far more than there is room for, on a thread as the event loop is. Whether that ends in this time
    /// although the sink takes nothing.
    fn pushes_end(it: &Bench, planted: Option<&'static str>, within: Duration) -> bool {
        let (queue, (ended, ends)) = (it.queue.clone(), channel());
        std::thread::spawn(move || {
            let push = || (0..100_000).for_each(|_| queue.push("x".repeat(100)));
            match planted {
                Some(name) => crate::plant::with(name, push),
                None => push(),
            }
            let _ = ended.send(());
        });
        ends.recv_timeout(within).is_ok()
    }

    #[test]
    fn a_line_that_waits_for_the_sink_is_caught() {
        let it = bench(BYTES_MAX);
        let planted = Some("log_line_blocks_the_loop");
        assert!(
            !pushes_end(&it, planted, Duration::from_secs(1)),
            "the planted bug is not noticed"
        );
    }

    #[test]
    fn a_sink_that_never_drains_blocks_no_thread() {
        let it = bench(BYTES_MAX);
        assert!(pushes_end(&it, None, DEADLINE), "a line waits for the sink");
        let room = (BYTES_MAX / 100 + 1) as u64;
        let dropped = it.dropped.get();
        assert!((100_000 - room..100_000).contains(&dropped), "{dropped}");
        assert!(!it.queue.flush(Duration::from_millis(10)), "a flush ends in time");
    }

    #[test]
    fn what_was_dropped_is_counted_and_said_once_where_it_is_missing() {
        let it = bench(4);
        it.push(&["0"]);
        it.hangs();
        it.push(&["1", "2", "3", "4", "dropped", "dropped too"]);
        assert_eq!(it.dropped.get(), 2);
        assert_eq!(it.reads(), "0");
        it.push(&["5"]);
        assert_eq!(it.dropped.get(), 3, "it is more than half full");
        assert_eq!(it.reads(), "1");
        assert_eq!(it.reads(), "2");
        assert_eq!(it.reads(), "3");
        assert_eq!(it.reads(), "4");
        let gap = it.reads();
        assert!(
            gap.contains(" WARN  log lines were dropped") && gap.ends_with(" lines=3\n"),
            "{gap}"
        );
        it.push(&["6"]);
        assert_eq!(it.reads(), "6");
        assert!(it.queue.flush(DEADLINE));
        assert_eq!(it.dropped.get(), 3);
    }

    #[test]
    fn a_line_that_never_fits_keeps_no_other_out() {
        let it = bench(4);
        it.push(&["too long", "ok"]);
        assert_eq!(it.dropped.get(), 1);
        assert!(it.reads().ends_with(" lines=1\n"));
        assert_eq!(it.reads(), "ok");
    }

    #[test]
    fn lines_that_the_sink_refuses_are_counted_and_said_when_it_takes_some_again() {
        let it = bench(100);
        it.push(&["lost"]);
        it.allow.send(Err(ErrorKind::StorageFull.into())).unwrap();
        assert!(it.queue.flush(DEADLINE));
        assert_eq!(it.dropped.get(), 1);
        it.push(&["kept"]);
        assert!(it.reads().ends_with(" lines=1\n"));
        assert_eq!(it.reads(), "kept");
    }

    #[test]
    fn a_sink_that_would_block_gets_the_whole_line_later() {
        let it = bench(100);
        it.push(&["line"]);
        it.allow.send(Err(ErrorKind::WouldBlock.into())).unwrap();
        assert_eq!(it.reads(), "line");
        assert_eq!(it.dropped.get(), 0);
    }
}
