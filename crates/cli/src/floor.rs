//! Shows and repairs the floors of a store or a proxy that is stopped: `tenure store floor` and `tenure fence floor`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use serde_json::json;
use tenure_gate::{FloorRepair, LockSlot, RepairRequest, proxy, store};
use tenure_types::Token;

use crate::data_dir;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::fence::dir_of;
use crate::output::{self, OutputFormat};
use crate::wall_time;

/// What can be typed after `tenure store floor` and `tenure fence floor`.
#[derive(Subcommand)]
pub(crate) enum FloorCommand {
    /// Set the floor (the highest token seen) after a wrong token raised it
    ///
    ///   tenure explain ledger                            the token of the present holder
    ///   tenure store floor set ledger 34 --reason 'script sent a wrong number'
    ///
    /// Stop the store or the proxy first. From then on token 34 and larger ones are accepted: choose the token of the
    /// present holder, because a smaller one lets late writers in. Who did it, when and why is kept with it.
    #[command(verbatim_doc_comment)]
    Set(SetArgs),
    /// Show the floor (the highest token seen) of each lock, and the repairs that were made
    ///
    ///   tenure store floor list
    ///
    /// Stop the store or the proxy first.
    #[command(verbatim_doc_comment)]
    List(FloorListArgs),
}

/// Flags of `floor set`.
#[derive(Args)]
pub(crate) struct SetArgs {
    /// Which lock
    #[arg(value_parser = output::name)]
    lock: String,
    /// The smallest token to accept from now on
    token: u64,
    /// Which slot of it, if it is a semaphore
    #[arg(long, value_name = "N")]
    slot: Option<u32>,
    /// Why; kept with the repair
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    place: PlaceArgs,
    /// Print nothing on success
    #[arg(long, short)]
    quiet: bool,
}

/// Flags of `floor list`.
#[derive(Args)]
pub(crate) struct FloorListArgs {
    /// Which lock; a proxy has one directory per lock, so it needs the name [default: all locks of the store]
    #[arg(value_parser = output::name)]
    lock: Option<String>,
    /// Which slot of it, if it is a semaphore
    #[arg(long, value_name = "N", requires = "lock")]
    slot: Option<u32>,
    #[command(flatten)]
    place: PlaceArgs,
    /// Print only the names of locks, one per line
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Args)]
struct PlaceArgs {
    /// Where the store or the proxy keeps its data [default: where it does without --data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Output format
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    output: OutputFormat,
}

/// Which service the floors belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FloorOf {
    Store,
    Proxy,
}

impl FloorCommand {
    pub(crate) fn output(&self) -> OutputFormat {
        match self {
            Self::Set(flags) => flags.place.output,
            Self::List(flags) => flags.place.output,
        }
    }

    pub(crate) fn run(&self, of: FloorOf) -> Result<Exit, CliError> {
        match self {
            Self::Set(flags) => set(of, flags),
            Self::List(flags) => list(of, flags),
        }
    }
}

fn set(of: FloorOf, flags: &SetArgs) -> Result<Exit, CliError> {
    let data = of.data(&flags.place, Some(&flags.lock), flags.slot)?;
    let token = Token::from_u64(flags.token).filter(|token| token.epoch().is_some());
    let token = token.ok_or_else(|| CliError::arguments(format!("{} is no token", flags.token)))?;
    let at = LockSlot { lock: &flags.lock, slot: flags.slot };
    let by = operator();
    let ask = RepairRequest { at, token, by: &by, reason: &flags.reason, at_unix_ms: wall_clock() };
    let made = match of {
        FloorOf::Store => store::repair_floor(&data, &ask)?,
        FloorOf::Proxy => proxy::repair_floor(&data, &ask)?,
    };
    match flags.place.output {
        OutputFormat::Json => output::object(&made),
        OutputFormat::Text if flags.quiet => {}
        OutputFormat::Text => output::tell(&words(&made)),
    }
    Ok(Exit::Done)
}

fn list(of: FloorOf, flags: &FloorListArgs) -> Result<Exit, CliError> {
    let data = of.data(&flags.place, flags.lock.as_deref(), flags.slot)?;
    let (floors, repairs) = match (of, &flags.lock) {
        (FloorOf::Proxy, Some(lock)) => {
            let floor = proxy::floor(&data, LockSlot { lock, slot: flags.slot })?;
            (vec![(lock.clone(), flags.slot, floor)], proxy::repairs(&data)?)
        }
        _ => {
            let all =
                store::floors(&data)?.into_iter().map(|kept| (kept.lock, kept.slot, kept.floor));
            (all.collect(), store::repairs(&data)?)
        }
    };
    let wanted = |lock: &str, slot: Option<u32>| {
        flags.lock.as_deref().is_none_or(|named| named == lock)
            && (flags.slot.is_none() || flags.slot == slot)
    };
    if flags.quiet {
        let locks = floors.iter().filter(|(lock, slot, _)| wanted(lock, *slot));
        // A semaphore has a floor for each of its slots.
        let names: BTreeSet<&str> = locks.map(|(lock, ..)| lock.as_str()).collect();
        names.into_iter().for_each(|name| output::out(&format!("{}\n", output::clean(name))));
        return Ok(Exit::Done);
    }
    for (lock, slot, floor) in floors.iter().filter(|(lock, slot, _)| wanted(lock, *slot)) {
        let lowest = floor.exclusive.max(floor.shared).map_or(0, Token::get);
        match flags.place.output {
            OutputFormat::Json => {
                output::object(&json!({ "lock": lock, "slot": slot, "floor": lowest.to_string() }));
            }
            OutputFormat::Text => output::out(&format!("{lowest}  {}\n", named(lock, *slot))),
        }
    }
    for made in repairs.iter().filter(|made| wanted(&made.lock, made.slot)) {
        match flags.place.output {
            OutputFormat::Json => output::object(&json!({ "repair": made })),
            OutputFormat::Text => output::out(&words(made)),
        }
    }
    Ok(Exit::Done)
}

impl FloorOf {
    fn data(
        self,
        place: &PlaceArgs,
        lock: Option<&str>,
        slot: Option<u32>,
    ) -> Result<PathBuf, CliError> {
        if let Some(data) = &place.data {
            return Ok(data.clone());
        }
        let parent = || data_dir::default_parent("--data DIR");
        match (self, lock) {
            (Self::Store, _) => Ok(parent()?.join("store")),
            (Self::Proxy, Some(lock)) => Ok(parent()?.join("fence").join(dir_of(lock, slot))),
            (Self::Proxy, None) => {
                Err(CliError::arguments("a proxy keeps one directory per lock: which lock?")
                    .with("try", "tenure fence floor list LOCK"))
            }
        }
    }
}

fn words(made: &FloorRepair) -> String {
    let FloorRepair { at_unix_ms, by, from, to, reason, .. } = made;
    let at = named(&made.lock, made.slot);
    format!(
        "repaired {at}: from {from} to {to}, at {}, by {}, because {:?}\n",
        wall_time::local(*at_unix_ms),
        output::clean(by),
        output::clean(reason)
    )
}

fn named(lock: &str, slot: Option<u32>) -> String {
    let lock = output::clean(lock);
    slot.map_or(format!("`{lock}`"), |slot| format!("slot {slot} of `{lock}`"))
}

/// Who runs the command: the user's number, which the system vouches for, and the name in the environment.
fn operator() -> String {
    let uid = rustix::process::getuid().as_raw();
    let name = |variable| std::env::var(variable).ok().filter(|name| !name.is_empty());
    let user = name("USER").map_or(String::new(), |user| format!(" ({user})"));
    let behind = name("SUDO_USER").map_or(String::new(), |user| format!(", sudo by {user}"));
    format!("uid {uid}{user}{behind}")
}

#[expect(
    clippy::disallowed_methods,
    reason = "the record names the time; nothing is decided by it"
)]
fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
