//! Sets how many slots a semaphore has.

use clap::Args;
use serde_json::json;
use tenure_wire::v1;
use v1::answer::Result as Answer;
use v1::request::Command;

use super::wait::strange;
use crate::connection_args::{self, request_id};
use crate::exit::Exit;
use crate::failure::{CliError, quoted};
use crate::output::{self, OutputFormat};
use crate::print_args::QuietArgs;

/// Set how many slots a semaphore has
///
///   tenure resize runners 12          from now on, whatever --slots says
///   tenure resize runners --unset     --slots decides again, once nobody uses it
///
/// More slots are granted at once, in the order of the queue. With fewer, holders keep theirs, and none is granted
/// until enough were given back; who waits for more slots than there are is told. Needs `operate` for the name.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ResizeArgs {
    /// Which semaphore
    #[arg(value_parser = output::name)]
    lock: String,
    /// How many slots
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(required_unless_present = "unset", conflicts_with = "unset")]
    slots: Option<u32>,
    /// Leave the number to those who acquire slots
    #[arg(long)]
    unset: bool,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Sets the number of slots.
pub(crate) fn resize(flags: &ResizeArgs) -> Result<Exit, CliError> {
    flags.connection.with(async |cluster| {
        let (lock, slots) = (&flags.lock, flags.slots.unwrap_or(0));
        let by = connection_args::actor_name(&cluster.client);
        let ask = v1::ResizeRequest { lock: lock.clone(), slots, by };
        let asked = cluster.client.ask(Command::Resize(ask), Some(&request_id(None))).await;
        let (answer, revision) = asked.map_err(|error| {
            let failure = CliError::from(error);
            let what = flags.slots.map_or("--unset".to_owned(), |slots| slots.to_string());
            match failure.exit {
                Exit::Unknown => failure.next(format!("tenure resize {} {what}", quoted(lock))),
                _ => failure,
            }
        })?;
        let Answer::Resized(_) = answer else { return Err(strange()) };
        match cluster.output {
            OutputFormat::Json => output::object(&json!({
                "event": "resized", "lock": lock, "slots": flags.slots,
                "revision": revision.to_string(),
            })),
            OutputFormat::Text if cluster.quiet => {}
            OutputFormat::Text => {
                let name = output::shortened(lock);
                output::out(&match flags.slots {
                    Some(slots) => {
                        let slots = output::count(u64::from(slots), "slot");
                        format!("semaphore `{name}` has {slots} from revision {revision} on\n")
                    }
                    None => format!("semaphore `{name}` has the slots that the next ask for\n"),
                });
            }
        }
        Ok(Exit::Done)
    })
}
