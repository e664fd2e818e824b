//! Turns the events of our own crates into lines, and skips everything else.
//!
//! It supports no spans and no filter except one level, so it is smaller than `tracing-subscriber`, and it keeps the
//! line formats that operators already read.

use std::fmt;
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata};

use super::level::LevelCell;
use super::line::{self, LineForm};
use super::queue::LineQueue;

/// The target prefix of our crates. Events of other targets are skipped: the libraries below report every frame of
/// every connection.
const TARGETS: &str = "tenure";

/// Writes each event of at least one level to a queue.
pub(super) struct Subscriber {
    queue: Arc<LineQueue>,
    form: LineForm,
    level: Arc<LevelCell>,
}

impl Subscriber {
    pub(super) fn new(queue: Arc<LineQueue>, form: LineForm, level: Arc<LevelCell>) -> Self {
        Self { queue, form, level }
    }
}

impl tracing::Subscriber for Subscriber {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && metadata.target().starts_with(TARGETS)
            && *metadata.level() <= self.level.get().to_tracing()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::from_level(self.level.get().to_tracing()))
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = LogFields::default();
        event.record(&mut fields);
        let level = *event.metadata().level();
        self.queue.push(line::format(self.form, level, &fields.message, &fields.pairs));
    }

    // Spans are never enabled, so the methods below are never called.

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message and the other fields of one event, in their order.
#[derive(Default)]
struct LogFields {
    message: String,
    pairs: Vec<line::Pair>,
}

impl LogFields {
    fn put(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            name => self.pairs.push((name, value)),
        }
    }
}

impl Visit for LogFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }

    /// Every other type arrives here: numbers and flags as they are, `%value` by its `Display`.
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::Mutex;
    use std::time::Duration;

    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[derive(Clone, Default)]
    struct FormattedFields(Arc<Mutex<Vec<u8>>>);

    impl Write for FormattedFields {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log_twice() {
        tracing::debug!("details");
        tracing::info!("news");
    }

    #[test]
    fn events_of_our_crates_are_lines_with_their_fields_in_order() {
        let queue = Arc::new(LineQueue::new(LineForm::Json, Counter::default()));
        let (writer, written) = (queue.clone(), FormattedFields::default());
        let to = written.clone();
        std::thread::spawn(move || writer.write_to(to));
        let level_cell = Arc::new(LevelCell::new(super::super::Level::Info));
        let subscriber = Subscriber::new(queue.clone(), LineForm::Json, level_cell.clone());
        tracing::subscriber::with_default(subscriber, || {
            let (member, absent) = ("m 1", None::<u64>);
            tracing::info!(index = 7_u64, %member, ok = true, absent, "snapshot saved");
            tracing::debug!("too detailed");
            tracing::info!(target: "h2::frame", "of a library");
            let _span = tracing::info_span!("span").entered();
            tracing::warn!(cause = %io::Error::other("x\"y"), "cannot {}", "send");
            // A change takes effect also for lines that were skipped or written before.
            for level in [super::super::Level::Debug, super::super::Level::Warn] {
                level_cell.set(level);
                log_twice();
            }
        });
        assert!(queue.flush(Duration::from_secs(10)));
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().map(|line| line.split_once(',').unwrap().1).collect();
        assert_eq!(
            lines,
            [
                r#""level":"info","message":"snapshot saved","index":"7","member":"m 1","ok":"true"}"#,
                r#""level":"warn","message":"cannot send","cause":"x\"y"}"#,
                r#""level":"debug","message":"details"}"#,
                r#""level":"info","message":"news"}"#,
            ]
        );
    }
}
