//! Runs a lock service on the user's machine: `tenure dev`.

use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use clap::Args;
use serde_json::json;
use tenure_server::{RunningServer, ServerSettings, StartMode, log, os, start};

use crate::address;
use crate::data_dir::default_parent;
use crate::exit::Exit;
use crate::member_process::{
    CliError, Company, ProcessRequests, REMOVED, install_log, on_end, process_requests, shown,
    unstarted,
};
use crate::output::{self, OutputFormat};

/// Small enough that a segment is allocated while the user watches.
const SEGMENT_BYTES: u32 = 8 * 1024 * 1024;
const RESERVE_BYTES: u64 = 16 * 1024 * 1024;
/// The most members that one process runs: enough to play with.
const MEMBERS_MAX: u8 = 7;
/// The file in a directory of several members that holds their initial number.
const MEMBERS: &str = "members";
/// How long the members may take to elect a leader. A member alone elects itself in well under a second.
const READY: Duration = Duration::from_secs(15);
/// Where members with `--clients …:0` look for free ports for each other: below the range from which Linux chooses for
/// port 0, so that no member's client port takes one of them meanwhile.
const FREE_PORTS: std::ops::Range<u16> = 20_000..32_000;
/// How many ports they try before they give up: the range is nearly full then.
const FREE_PORTS_TRIES: usize = 1_000;

/// Flags of `tenure dev`.
#[derive(Args)]
pub(crate) struct DevArgs {
    /// Keep the data here [default: ~/.local/share/tenure/dev]
    #[arg(long, value_name = "DIR", conflicts_with = "fresh")]
    data: Option<PathBuf>,
    /// Start from nothing, and keep nothing
    #[arg(long)]
    fresh: bool,
    /// Listen here; several members on consecutive ports. Port 0 takes a free port for each
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7450")]
    clients: String,
    /// Run so many members in this process, for play
    #[arg(long = "size", visible_alias = "members", value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=i64::from(MEMBERS_MAX)))]
    members: u8,
    /// Output format
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputFormat,
    /// Log what is at least so important: error, warn, info or debug [env: TENURE_LOG_LEVEL] [default: warn]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

/// Runs durable members until a signal stops them.
pub(crate) fn run(flags: &DevArgs) -> Result<Exit, CliError> {
    let began_us = os::now_us();
    check(&flags.clients)?;
    install_log(None, log_level(flags)?)?;
    let requests = process_requests()?;
    os::raise_open_files();
    let data = Data::choose(flags)?;
    let running = if flags.members == 1 {
        let mut settings = settings("dev", &data.path, flags);
        settings.stop = requests.stop.clone();
        settings.on_end = on_end("dev", flags.output);
        let alone = |error| unstarted(error, &data.path, Company::Alone);
        vec![("dev".to_owned(), start(settings).map_err(alone)?)]
    } else {
        start_many(flags, &data, &requests)?
    };
    let ready = running.iter().any(|(_, one)| one.member.read(READY, |_| ()).is_ok());
    if !ready {
        let text = "no leader was elected; try again, or --fresh".to_owned();
        return Err(CliError::refused(text));
    }
    let took_ms = os::now_us().saturating_sub(began_us) / 1_000;
    greet(flags, &running, &data, took_ms);
    let (names, running): (Vec<String>, Vec<RunningServer>) = running.into_iter().unzip();
    requests.wait(&running, |name| go_on_without(flags, &data.path, name, &names, &running));
    Ok(Exit::Done)
}

/// The lowest level that is logged: the flag overrides the variable.
fn log_level(flags: &DevArgs) -> Result<log::Level, CliError> {
    let wrong = |text: &str| format!("`{text}` is no log level; try error, warn, info or debug");
    if let Some(text) = &flags.log_level {
        let level = log::Level::parse(text);
        return level.ok_or_else(|| CliError::arguments(format!("--log-level: {}", wrong(text))));
    }
    // What is usual is in the greeting.
    let Ok(text) = std::env::var("TENURE_LOG_LEVEL") else { return Ok(log::Level::Warn) };
    let level = log::Level::parse(&text);
    level.ok_or_else(|| CliError::config(format!("TENURE_LOG_LEVEL: {}", wrong(&text))))
}

/// Handles the removal of one of several members from their cluster: it stops for good, the others go on.
fn go_on_without(
    flags: &DevArgs,
    data: &Path,
    name: &str,
    names: &[String],
    running: &[RunningServer],
) {
    let removed = |one: &RunningServer| one.member.ended().is_some();
    for (_, one) in names.iter().zip(running).filter(|(of, _)| *of == name) {
        one.stop();
    }
    // Rename the directory of the removed member: the next start skips it.
    let kept = fs::rename(data.join(name), data.join(format!("{name}{REMOVED}")));
    let left = names.iter().zip(running).filter(|(_, one)| !removed(one));
    let left: Vec<&str> = left.map(|(name, _)| name.as_str()).collect();
    if flags.output == OutputFormat::Json {
        return output::object(&json!({ "event": "removed", "member": name, "left": left }));
    }
    let left = match &left[..] {
        [one] => format!("{one} goes on"),
        several => format!("{} go on", several.join(" and ")),
    };
    let kept = kept.err().map(|error| format!(" (its directory stays: {error})"));
    let kept = kept.unwrap_or_default();
    output::tell(&format!(
        "member {name} was removed from the cluster and stopped{kept}; {left}\n"
    ));
}

/// Checks that `clients` is a loopback address with a port, so that only this machine can connect.
fn check(clients: &str) -> Result<(), CliError> {
    let here = |host: &str| {
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    };
    match clients.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() && here(host) => Ok(()),
        Some((host, port)) if port.parse::<u16>().is_ok() && !host.is_empty() => {
            Err(CliError::arguments(format!(
                "`tenure dev` listens on this machine alone, not on {clients}; try 127.0.0.1:{port}, or tenure serve"
            )))
        }
        _ if address::high_port(clients).is_some() => {
            let port = address::high_port(clients).unwrap_or_default();
            Err(CliError::arguments(format!(
                "--clients {clients} is no address: port {port} is above 65535"
            )))
        }
        _ => {
            let port = clients.trim_start_matches(':').parse::<u16>().unwrap_or(7450);
            Err(CliError::arguments(format!(
                "--clients {clients} is no address; try 127.0.0.1:{port}"
            )))
        }
    }
}

fn settings(name: &str, data: &Path, flags: &DevArgs) -> ServerSettings {
    ServerSettings {
        clients: flags.clients.clone(),
        entrance: StartMode::Alone,
        segment_bytes: SEGMENT_BYTES,
        reserve_bytes: RESERVE_BYTES,
        ..ServerSettings::new(name, data)
    }
}

fn host_and_port(address: &str) -> Result<(&str, u16), CliError> {
    let parts = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    parts.ok_or_else(|| CliError::config(format!("`{address}` is no address")))
}

/// The address of the first member's port for other members. These ports follow the client ports, one per member.
fn usual_peers(flags: &DevArgs) -> Result<String, CliError> {
    let (host, port) = host_and_port(&flags.clients)?;
    if port == 0 {
        return Ok(format!("{host}:{}", free_ports(host, u16::from(flags.members))?));
    }
    let first = port.checked_add(u16::from(flags.members));
    let first = first.ok_or_else(|| CliError::arguments("--clients leaves no room for ports"))?;
    Ok(format!("{host}:{first}"))
}

/// The first of so many consecutive ports that are free.
fn free_ports(host: &str, count: u16) -> Result<u16, CliError> {
    let host = host.trim_matches(['[', ']']);
    let offset = || u16::try_from(os::random() % FREE_PORTS.len() as u64).unwrap_or_default();
    let first = |_| FREE_PORTS.start + offset();
    let is_free = |port: u16| TcpListener::bind((host, port)).is_ok();
    let mut tried = (0..FREE_PORTS_TRIES).map(first);
    let found = tried.find(|first| (0..count).all(|at| is_free(first + at)));
    found.ok_or_else(|| {
        CliError::config(format!(
            "{host} has no {count} free ports in a row; try --clients with a port"
        ))
    })
}

/// Starts several members in one process. They find each other on consecutive loopback ports.
fn start_many(
    flags: &DevArgs,
    data: &Data,
    requests: &ProcessRequests,
) -> Result<Vec<(String, RunningServer)>, CliError> {
    let (host, port) = host_and_port(&flags.clients)?;
    // The members keep the addresses of their first start, so that they find each other even if --clients changes.
    let (peer_host, peer_port) = match &data.peers {
        Some(first) => host_and_port(first)?,
        None => host_and_port(&usual_peers(flags)?).map(|(_, peers)| (host, peers))?,
    };
    let data = &*data.path;
    let number = u16::from(flags.members);
    let names: Vec<String> = (1..=number).map(|at| format!("dev-{at}")).collect();
    let above = |port: u16, at: u16| {
        port.checked_add(at)
            .ok_or_else(|| CliError::arguments("--clients leaves no room for ports"))
    };
    let listed = (0..number)
        .zip(&names)
        .map(|(at, name)| Ok((name.clone(), format!("{peer_host}:{}", above(peer_port, at)?))));
    let listed: Vec<(String, String)> = listed.collect::<Result<_, CliError>>()?;
    let mut starting = Vec::new();
    for (at, (name, members)) in (0..number).zip(&listed) {
        if data.join(format!("{name}{REMOVED}")).exists() {
            continue;
        }
        let mut settings = settings(name, &data.join(name), flags);
        settings.on_end = requests.on_end_among(name, flags.output);
        let clients = if port == 0 { 0 } else { above(port, at)? };
        settings.clients = format!("{host}:{clients}");
        settings.members = Some(members.clone());
        settings.entrance = StartMode::Bootstrap(listed.clone());
        settings.stop = requests.stop.clone();
        let failed = |error| CliError::refused(format!("cannot start member {name}: {error}"));
        let named = std::thread::Builder::new().name("tenure-start".to_owned());
        let started = named.spawn(move || start(settings)).map_err(failed)?;
        starting.push((name.clone(), started));
    }
    let mut running = Vec::new();
    for (name, one) in starting {
        let started = one.join().map_err(|_| CliError::config("a member did not start"))?;
        let others = |error| unstarted(error, &data.join(&name), Company::Others);
        running.push((name.clone(), started.map_err(others)?));
    }
    if running.is_empty() {
        let text = format!("every member in {} was removed", shown(data));
        return Err(CliError::config(format!("{text}; try another directory with --data")));
    }
    Ok(running)
}

fn greet(flags: &DevArgs, running: &[(String, RunningServer)], data: &Data, took_ms: u64) {
    if flags.output == OutputFormat::Json {
        let clients: Vec<String> = running.iter().map(|(_, one)| one.clients.to_string()).collect();
        return output::object(&json!({
            "event": "ready", "clients": clients, "data": data.path, "kept": !data.throwaway,
            "took_ms": took_ms,
        }));
    }
    let version = env!("CARGO_PKG_VERSION");
    let members = match (running.len(), usize::from(flags.members)) {
        (1, 1) => "one member".to_owned(),
        (left, all) if left < all => {
            format!("{left} of {all} members in one process, the others were removed")
        }
        (all, _) => format!("{all} members in one process"),
    };
    let mut text = format!("tenure {version}: {members}, durable, loopback only\n");
    if let Some((_, one)) = running.first() {
        text.push_str(&format!("  console  http://{}/\n", one.clients));
    }
    for (_, one) in running {
        text.push_str(&format!("  listening on {} (gRPC, HTTP, WebSocket)\n", one.clients));
    }
    if let Some((_, one)) = running.first() {
        let enabled = one.member.read(READY, |machine| machine.access().is_enabled());
        text.push_str(match enabled {
            Ok(true) => "  callers  need credentials: identity is enabled\n",
            Ok(false) | Err(_) => {
                "  callers  need no credentials: every process on this machine may do everything but \
                 change access rules\n"
            }
        });
    }
    let kept = if data.throwaway { "removed at the end" } else { "kept; --fresh for a throwaway" };
    text.push_str(&format!("  data     {} ({kept})\n", shown(&data.path)));
    if let Some((_, one)) = running.first() {
        let at = one.clients;
        let addr = if at.to_string() == crate::connection_args::LOOPBACK {
            String::new()
        } else {
            format!(" --addr {at}")
        };
        text.push_str(&format!(
            "ready in {took_ms} ms. In another terminal: tenure run deploy{addr} -- sleep 30\n"
        ));
    }
    text.push_str(match data.throwaway {
        true => "Ctrl-C stops, and nothing is kept.\n",
        false => "Ctrl-C stops. Locks survive; lease timers pause without a leader.\n",
    });
    output::tell(&text);
}

/// The data directory, and whether it outlives the process.
struct Data {
    path: PathBuf,
    throwaway: bool,
    /// The address at which the first of several members listens for the others.
    peers: Option<String>,
}

impl Data {
    fn choose(flags: &DevArgs) -> Result<Self, CliError> {
        let throwaway = flags.fresh;
        let path = match &flags.data {
            Some(path) => path.clone(),
            None if throwaway => {
                std::env::temp_dir().join(format!("tenure-dev-{:016x}", os::random()))
            }
            None => default_parent("--data DIR or --fresh")?.join(if flags.members == 1 {
                "dev"
            } else {
                "dev-cluster"
            }),
        };
        let above = if flags.members == 1 { path.parent() } else { Some(&*path) };
        let held = DirectoryContent::read(&path).map_err(|error| {
            let text = format!("cannot read {}: {error}", shown(&path));
            CliError::config(format!("{text}; try another directory with --data"))
        })?;
        held.check(&path, flags.members)?;
        if let Some(above) = above.filter(|above| *above != Path::new("")) {
            make(above)?;
        }
        let peers = match held {
            DirectoryContent::Many { peers, .. } => peers,
            DirectoryContent::Nothing if flags.members > 1 => {
                let peers = usual_peers(flags)?;
                let noted = fs::write(path.join(MEMBERS), format!("{} {peers}\n", flags.members));
                noted.map_err(|error| {
                    let text = format!("cannot write into {}: {error}", shown(&path));
                    CliError::config(format!("{text}; try another directory with --data"))
                })?;
                Some(peers)
            }
            DirectoryContent::Nothing | DirectoryContent::One => None,
        };
        Ok(Self { path, throwaway, peers })
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if self.throwaway {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// What a directory contains before any member starts in it.
#[derive(PartialEq, Eq, Debug)]
enum DirectoryContent {
    Nothing,
    One,
    /// The directories of several members side by side: their number, and the address at which the first listens for
    /// the others.
    Many {
        members: u8,
        peers: Option<String>,
    },
}

impl DirectoryContent {
    fn read(path: &Path) -> io::Result<Self> {
        let is_there = |name: &str| path.join(name).exists();
        if ["identity.toml", "log", "snapshots"].into_iter().any(is_there) {
            return Ok(Self::One);
        }
        // Directories without a log come from a failed start. They belong to no cluster and do not fix the number of
        // members.
        let begun =
            |at: &u8| is_there(&format!("dev-{at}/log")) || is_there(&format!("dev-{at}{REMOVED}"));
        let Some(members) = (1..=MEMBERS_MAX).rev().find(begun) else { return Ok(Self::Nothing) };
        match fs::read_to_string(path.join(MEMBERS)) {
            Ok(text) => {
                let (noted, peers) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
                let peers = Some(peers.to_owned()).filter(|it| host_and_port(it).is_ok());
                Ok(Self::Many { members: noted.parse().unwrap_or(members), peers })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Self::Many { members, peers: None })
            }
            Err(error) => Err(error),
        }
    }

    /// Refuses to start another number of members than the directory holds.
    fn check(&self, path: &Path, members: u8) -> Result<(), CliError> {
        let path = shown(path);
        let elsewhere = "or another directory with --data";
        match self {
            Self::One if members > 1 => {
                let text = format!("{path} holds one member, not {members}");
                Err(CliError::config(format!("{text}; try without --size, {elsewhere}")))
            }
            Self::Many { members: held, .. } if *held != members => {
                let text = format!("{path} holds a cluster of {held} members, not of {members}");
                Err(CliError::config(format!("{text}; try --size {held}, {elsewhere}")))
            }
            _ => Ok(()),
        }
    }
}

fn make(path: &Path) -> Result<(), CliError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| {
        let text = format!("cannot make directory {path:?}: {error}; try another with --data");
        CliError::config(text)
    })
}
