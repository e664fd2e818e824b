//! Measures each client: what 1,000 idle leases in one process cost, and how many locks it takes and releases in a
//! second. One cluster and one run for all languages, so that the results can be compared.

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::driver_process::Driver;
use crate::language::{DriverArgs, Language};
use crate::scenario::ClusterKind;
use crate::stage::ScenarioCluster;

/// How many requests are unanswered while the leases are made.
const AT_ONCE: usize = 32;
/// How often each client's cycles are counted, in turns with the other clients, so that what else the machine does hits
/// all of them. The best round is reported.
const ROUNDS: usize = 4;
/// How long a round is. Before the first one the client works as long: compilers of the runtimes need some time.
const ROUND_MS: u64 = 3_000;
/// How many workers take and release locks at once.
const WORKERS: [u64; 2] = [1, 32];
/// Ticks per second in `/proc/PID/stat`, the same on every Linux.
const TICKS: f64 = 100.0;

/// How much to measure, with which drivers.
#[derive(clap::Args)]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    drivers: DriverArgs,
    /// How many leases are idle in one process
    #[arg(long, default_value_t = 1_000)]
    leases: usize,
    /// For how many seconds they are idle
    #[arg(long, default_value_t = 20)]
    seconds: u64,
}

/// The measurements of one language.
struct LanguageMeasurement {
    name: String,
    /// Resident memory of the process that is connected and holds nothing, and with the leases.
    empty_kib: u64,
    full_kib: u64,
    cpu_percent: f64,
    lost: usize,
    /// Cycles per second in the best round, for each number of workers.
    cycles: [u64; WORKERS.len()],
    /// The driver, whose client `c` is connected and holds nothing.
    driver: Driver,
}

/// Measures every language, one after another.
pub(crate) fn run(args: &MeasureArgs) -> ExitCode {
    let logs =
        tempfile::Builder::new().prefix("tenure-measure-").tempdir().expect("a directory for logs");
    let stage = ScenarioCluster::found(ClusterKind::Shared);
    let (mut all, mut failed) = (Vec::new(), 0);
    for language in args.drivers.languages(logs.path()) {
        match measure(&language, &stage, args) {
            Ok(measured) => {
                println!("{:12} measured", language.name);
                all.push(measured);
            }
            Err(why) => {
                println!("{:12} FAILED: {why}", language.name);
                failed += 1;
            }
        }
    }
    if let Err(why) = count_cycles(&mut all) {
        println!("cycles       FAILED: {why}");
        failed += 1;
    }
    println!();
    let leases = args.leases;
    println!(
        "| client | connected | with {leases} leases | per lease | processor | lost | cycles/s, 1 | 32 |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for it in &all {
        let mib = |kib: u64| kib as f64 / 1_024.0;
        let each = it.full_kib.saturating_sub(it.empty_kib) as f64 / leases as f64;
        let cycles: Vec<String> = it.cycles.iter().map(u64::to_string).collect();
        println!(
            "| {} | {:.1} MiB | {:.1} MiB | {each:.1} KiB | {:.2} % | {} | {} |",
            it.name,
            mib(it.empty_kib),
            mib(it.full_kib),
            it.cpu_percent,
            it.lost,
            cycles.join(" | "),
        );
    }
    let lost: usize = all.iter().map(|it| it.lost).sum();
    println!("\nmeasured languages={} leases={leases} lost={lost} failed={failed}", all.len());
    if failed == 0 && lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure(
    language: &Language,
    stage: &ScenarioCluster,
    args: &MeasureArgs,
) -> Result<LanguageMeasurement, String> {
    let mut driver = language.take()?;
    let addresses = stage.direct_addresses();
    let open =
        json!({ "handle": "m", "name": language.name, "addrs": addresses, "timeout_ms": 60_000 });
    told(&mut driver, "open", open)?;
    // A first lock, so that what a runtime loads only once does not count for the leases.
    told(&mut driver, "cycles", json!({ "handle": "m", "ms": 500, "workers": 1 }))?;
    let empty_kib = used_kib(&mut driver)?;
    let guard = |at: usize| format!("idle/{at}");
    for some in (0..args.leases).collect::<Vec<_>>().chunks(AT_ONCE) {
        let asked = some.iter().map(|at| {
            let lock =
                json!({ "handle": "m", "guard": guard(*at), "lock": guard(*at), "ttl_ms": 15_000 });
            driver.ask("lock", fields(lock))
        });
        let asked: Vec<u64> = asked.collect::<Result<_, _>>()?;
        for id in asked {
            succeeded(&driver.answer(id)?)?;
        }
    }
    let used = processor_ticks(&driver)?;
    std::thread::sleep(Duration::from_secs(args.seconds));
    let used = processor_ticks(&driver)? - used;
    let full_kib = used_kib(&mut driver)?;
    let mut lost = 0;
    for at in 0..args.leases {
        let id = driver.ask("check", fields(json!({ "guard": guard(at) })))?;
        lost += usize::from(driver.answer(id)?.get("ok").is_none());
    }
    told(&mut driver, "close", json!({ "handle": "m", "deadline_ms": 60_000 }))?;
    let open =
        json!({ "handle": "c", "name": language.name, "addrs": addresses, "timeout_ms": 60_000 });
    told(&mut driver, "open", open)?;
    let cpu_percent = used as f64 / TICKS / args.seconds as f64 * 100.0;
    let (name, cycles) = (language.name.clone(), [0; WORKERS.len()]);
    Ok(LanguageMeasurement { name, empty_kib, full_kib, cpu_percent, lost, cycles, driver })
}

/// Lets the clients work in turns, and keeps the best round of each.
fn count_cycles(all: &mut [LanguageMeasurement]) -> Result<(), String> {
    for (at, workers) in WORKERS.into_iter().enumerate() {
        for round in 0..=ROUNDS {
            for it in &mut *all {
                let command = json!({ "handle": "c", "ms": ROUND_MS, "workers": workers });
                let answer = told(&mut it.driver, "cycles", command)?;
                let count = answer["ok"]["cycles"].as_u64().ok_or("the driver counts no cycles")?;
                // The first round warms up.
                if round > 0 {
                    it.cycles[at] = it.cycles[at].max(count * 1_000 / ROUND_MS);
                }
            }
        }
    }
    Ok(())
}

/// Sends a command, and returns its answer if it succeeded.
fn told(driver: &mut Driver, command: &str, with: Value) -> Result<Value, String> {
    let id = driver.ask(command, fields(with))?;
    let answer = driver.answer(id)?;
    succeeded(&answer)?;
    Ok(answer)
}

fn succeeded(answer: &Value) -> Result<(), String> {
    answer.get("ok").map(drop).ok_or_else(|| format!("answer: {answer}"))
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// The resident memory of a driver after it has freed what it does not use. Without that, the garbage of the first
/// cycles counts for the client that holds nothing, and leases that replace it seem to need no memory.
fn used_kib(driver: &mut Driver) -> Result<u64, String> {
    told(driver, "collect", json!({}))?;
    resident_kib(driver)
}

/// The resident memory of a driver.
fn resident_kib(driver: &Driver) -> Result<u64, String> {
    let text = proc_file(driver, "status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| "no VmRSS".to_owned())
}

/// The processor time that a driver has used.
fn processor_ticks(driver: &Driver) -> Result<u64, String> {
    let text = proc_file(driver, "stat")?;
    // The name of the program, in parentheses, may have spaces. User time and system time are the fields 14 and 15.
    let after = text.rsplit_once(')').map(|(_, after)| after.to_owned()).unwrap_or_default();
    let numbers = after.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    Ok(numbers.iter().sum())
}

fn proc_file(driver: &Driver, name: &str) -> Result<String, String> {
    let path = format!("/proc/{}/{name}", driver.pid());
    fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))
}
