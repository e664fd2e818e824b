//! Bounds the log lines that wait for their sink, and counts those that are dropped.
//!
//! A thread that logs never waits for the sink: a pipe that is not read, a slow disk or a stopped terminal must not
//! stop the event loop. When the queue is full, new lines are dropped until half of it is written; then one item
//! reports how many were dropped. The driver owns the lock, the writing thread and the sink:
//!
//! ```text
//! a thread logs: push(line)
//! the writer:    take() ─► write the item ─► written(), or refused(item) if the sink did not take it
//! ```

use std::collections::VecDeque;

/// The lines that wait for the sink.
#[derive(Debug)]
pub struct LogQueue {
    waiting: VecDeque<QueuedLine>,
    bytes: usize,
    bytes_max: usize,
    /// Whether lines are dropped until there is room again.
    full: bool,
    /// The number of dropped lines that no item has reported yet.
    unreported: u64,
    /// The number of lines that were ever dropped.
    dropped: u64,
    /// Whether the writer has taken an item and has not reported on it.
    writing: bool,
}

/// An item for the writer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QueuedLine {
    /// A line.
    Line(String),
    /// Reports that this many lines were dropped at this point.
    Gap(u64),
}

/// What became of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Pushed {
    /// It waits for the sink.
    Queued,
    /// There was no room for it. It was counted.
    Dropped,
    /// There is no room for it yet, and its thread waits for the sink. Only a planted bug says so.
    #[cfg(mutants)]
    Blocked(String),
}

impl LogQueue {
    /// A queue for at most so many bytes of lines.
    pub fn new(bytes_max: usize) -> Self {
        let (waiting, bytes, full) = (VecDeque::new(), 0, false);
        Self { waiting, bytes, bytes_max, full, unreported: 0, dropped: 0, writing: false }
    }

    /// Queues a line, or drops and counts it if there is no room.
    pub fn push(&mut self, line: String) -> Pushed {
        if self.full || self.bytes + line.len() > self.bytes_max {
            #[cfg(mutants)]
            if mutant!("log_line_blocks_the_loop") {
                return Pushed::Blocked(line);
            }
            // One long line alone must not shut out the short ones behind it.
            self.full = self.bytes > self.bytes_max / 2;
            self.unreported += 1;
            self.dropped += 1;
            return Pushed::Dropped;
        }
        self.report_gap();
        self.bytes += line.len();
        self.waiting.push_back(QueuedLine::Line(line));
        Pushed::Queued
    }

    /// Gives the writer the next item. Report with [`LogQueue::written`] or [`LogQueue::refused`] before the next one.
    pub fn take(&mut self) -> Option<QueuedLine> {
        let item = self.waiting.pop_front()?;
        if let QueuedLine::Line(line) = &item {
            self.bytes -= line.len();
        }
        if self.full && self.bytes <= self.bytes_max / 2 {
            self.full = false;
            // The report goes behind the lines that waited when the first line was dropped.
            self.report_gap();
        }
        self.writing = true;
        Some(item)
    }

    /// The sink has the item that was taken.
    pub fn written(&mut self) {
        self.writing = false;
    }

    /// The sink did not take the item: the reader of a pipe has gone, or a disk is full. It counts as lost.
    pub fn refused(&mut self, item: &QueuedLine) {
        self.writing = false;
        self.unreported += match item {
            QueuedLine::Line(_) => {
                self.dropped += 1;
                1
            }
            QueuedLine::Gap(lines) => *lines,
        };
    }

    /// Whether everything was written that could be: no item waits, and the writer has none.
    pub fn is_drained(&self) -> bool {
        self.waiting.is_empty() && !self.writing
    }

    /// Whether there is an item to take.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The bytes of the lines that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of lines that were ever dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The number of dropped lines that no item has reported yet.
    pub fn unreported(&self) -> u64 {
        self.unreported
    }

    fn report_gap(&mut self) {
        if self.unreported > 0 {
            self.waiting.push_back(QueuedLine::Gap(std::mem::take(&mut self.unreported)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> QueuedLine {
        QueuedLine::Line(text.to_owned())
    }

    fn push(queue: &mut LogQueue, lines: &[&str]) -> Vec<Pushed> {
        lines.iter().map(|line| queue.push((*line).to_owned())).collect()
    }

    /// The items that a writer takes if its sink accepts everything.
    fn drain(queue: &mut LogQueue) -> Vec<QueuedLine> {
        let mut found = Vec::new();
        while let Some(item) = queue.take() {
            queue.written();
            found.push(item);
        }
        found
    }

    #[test]
    fn a_sink_that_never_drains_costs_lines_and_nothing_else() {
        let mut queue = LogQueue::new(100);
        for _ in 0..1_000 {
            let _ = queue.push("x".repeat(10));
        }
        assert_eq!((queue.bytes(), queue.dropped(), queue.unreported()), (100, 990, 990));
    }

    #[test]
    fn a_gap_is_reported_once_where_lines_are_missing() {
        let mut queue = LogQueue::new(4);
        assert_eq!(push(&mut queue, &["1", "2", "3", "4"]), vec![Pushed::Queued; 4]);
        assert_eq!(push(&mut queue, &["dropped"]), [Pushed::Dropped]);
        assert_eq!(queue.take(), Some(line("1")));
        queue.written();
        assert_eq!(push(&mut queue, &["5"]), [Pushed::Dropped], "it is more than half full");
        assert_eq!(drain(&mut queue), [line("2"), line("3"), line("4"), QueuedLine::Gap(2)]);
        assert_eq!(push(&mut queue, &["6"]), [Pushed::Queued]);
        assert_eq!(drain(&mut queue), [line("6")]);
        assert!(queue.is_drained() && queue.dropped() == 2);
    }

    #[test]
    fn a_line_that_never_fits_keeps_no_other_out() {
        let mut queue = LogQueue::new(4);
        assert_eq!(push(&mut queue, &["too long", "ok"]), [Pushed::Dropped, Pushed::Queued]);
        assert_eq!(drain(&mut queue), [QueuedLine::Gap(1), line("ok")]);
    }

    #[test]
    fn what_the_sink_refuses_is_counted_and_reported_later() {
        let mut queue = LogQueue::new(100);
        let _ = push(&mut queue, &["lost"]);
        let taken = queue.take().unwrap();
        assert!(!queue.is_drained(), "the writer has it");
        queue.refused(&taken);
        assert!(queue.is_drained() && queue.dropped() == 1);
        let _ = push(&mut queue, &["kept"]);
        assert_eq!(drain(&mut queue), [QueuedLine::Gap(1), line("kept")]);
    }
}
