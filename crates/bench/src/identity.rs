//! Measures what identity and permissions cost: the same cycles without credentials and with an API key.
//!
//! One cluster of three members serves all measurements, and identity is switched between them. Each pair measures both
//! modes one after the other, in alternating order, so that other load on the machine affects both alike.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tenure_server::NewApiKey;
use tenure_types::{Quota, Verb};

use crate::apis::cpu::CpuUsed;
use crate::apis::http::HttpConnection;
use crate::apis::session::AcquireForm;
use crate::apis::{ApiStage, BenchCaller, MeasureTimes, http, session, unary};
use crate::run_results::{RunResults, median};

/// The number of connections that the clients of single gRPC calls and of sessions share.
const CONNECTIONS: usize = 16;
/// The verbs of the clients, below the names that they use.
const VERBS: &str = r#"["acquire","read"]"#;

/// The API that a measurement uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum MeasuredApi {
    Http,
    Unary,
    Session,
}

/// The arguments of the measurement.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct IdentityArguments {
    /// Half a second for each measurement, to see that it runs
    #[arg(long)]
    quick: bool,
    /// Number of pairs of measurements
    #[arg(long, default_value_t = 10)]
    pairs: usize,
    /// Number of clients
    #[arg(long, default_value_t = 256)]
    clients: usize,
    /// Only this API
    #[arg(long, value_enum)]
    only: Option<MeasuredApi>,
}

/// The results of one measurement, or of both modes in one pair.
#[derive(Clone, Copy)]
struct IdentityMeasurement {
    /// CPU time of all members for one cycle, in microseconds.
    cpu_us: f64,
    cycles_per_s: f64,
}

/// Takes all pairs, and reports the median of each result and of the ratios within the pairs.
pub(crate) fn run(arguments: IdentityArguments) -> Result<RunResults> {
    let IdentityArguments { quick, pairs, clients, only } = arguments;
    let mut stage = ApiStage::set(quick)?;
    if !quick {
        let (warm_up, measure) = (Duration::from_millis(500), Duration::from_secs(2));
        stage.times = MeasureTimes { warm_up, measure };
    }
    let admin = Administrator::of(&stage)?;
    let key = admin.prepare(&stage)?;
    let apis = [MeasuredApi::Http, MeasuredApi::Unary, MeasuredApi::Session];
    let apis = apis.into_iter().filter(|api| only.is_none_or(|only| only == *api));
    let mut results = RunResults::default();
    for api in apis {
        let (mut off, mut on) = (Vec::new(), Vec::new());
        for pair in 0..pairs.max(1) {
            let order = if pair % 2 == 0 { [false, true] } else { [true, false] };
            for enabled in order {
                admin.set_identity(&stage, enabled)?;
                let bearer = enabled.then(|| key.clone());
                let measurement = 2 * pair + usize::from(enabled);
                let measured = measure(&stage, api, clients, &BenchCaller { bearer, measurement })?;
                note(pair, api, enabled, measured);
                if enabled { on.push(measured) } else { off.push(measured) }
            }
        }
        report(api, clients, &off, &on, &mut results);
    }
    admin.set_identity(&stage, false)?;
    Ok(results)
}

fn measure(
    stage: &ApiStage,
    api: MeasuredApi,
    clients: usize,
    caller: &BenchCaller,
) -> Result<IdentityMeasurement> {
    let ApiStage { cluster, runtime, times } = stage;
    let (address, times, shape) = (cluster.clients(), *times, shape(api, clients));
    let before = CpuUsed::now(cluster)?;
    let measured = match api {
        MeasuredApi::Http => runtime.block_on(http::measure(address, clients, caller, times)),
        MeasuredApi::Unary => runtime.block_on(unary::measure(address, shape, caller, times)),
        MeasuredApi::Session => {
            let form = AcquireForm::Once;
            runtime.block_on(session::measure(address, shape, form, caller, times))
        }
    }?;
    let used = CpuUsed::now(cluster)?.since(&before);
    let members = used.per(measured.cycles_in_all).filter(|(stage, _)| *stage != "clients");
    let cycles_per_s = measured.latencies_us.len() as f64 / measured.took.as_secs_f64();
    Ok(IdentityMeasurement { cpu_us: members.map(|(_, us)| us).sum(), cycles_per_s })
}

fn shape(api: MeasuredApi, clients: usize) -> (usize, usize) {
    let connections = if api == MeasuredApi::Http { clients } else { CONNECTIONS.min(clients) };
    (clients, connections)
}

/// Prints one measurement. Not inlined: a profiler can cut its output here.
#[inline(never)]
fn note(pair: usize, api: MeasuredApi, enabled: bool, measured: IdentityMeasurement) {
    let mode = if enabled { "on" } else { "off" };
    let IdentityMeasurement { cpu_us, cycles_per_s } = measured;
    eprintln!("  pair {pair} {api:?} {mode}: {cpu_us:.2} µs of CPU, {cycles_per_s:.0} cycles/s");
}

fn report(
    api: MeasuredApi,
    clients: usize,
    off: &[IdentityMeasurement],
    on: &[IdentityMeasurement],
    results: &mut RunResults,
) {
    let (clients, connections) = shape(api, clients);
    let of = format!("{api:?}_{clients}x{connections}").to_lowercase();
    let cpu = |all: &[IdentityMeasurement]| median(all.iter().map(|it| it.cpu_us).collect());
    let meaning = "µs of the members' CPU per cycle, without identity";
    results.add(format!("cpu_us_off_{of}"), cpu(off), meaning);
    let meaning = "µs of the members' CPU per cycle, with identity and an API key";
    results.add(format!("cpu_us_on_{of}"), cpu(on), meaning);
    let ratios = |value: fn(&IdentityMeasurement) -> f64| {
        median(on.iter().zip(off).map(|(on, off)| value(on) / value(off)).collect())
    };
    let meaning = "times the CPU per cycle, median of the pairs (to stay below: 1.03)";
    results.add(format!("identity_cpu_ratio_{of}"), ratios(|it| it.cpu_us), meaning);
    let meaning = "times the cycles per second, median of the pairs";
    results.add(format!("identity_cycles_ratio_{of}"), ratios(|it| it.cycles_per_s), meaning);
}

/// The local administrator of the member in this process.
struct Administrator {
    key: String,
}

impl Administrator {
    fn of(stage: &ApiStage) -> Result<Self> {
        let file: &Path = &stage.cluster.leader_data().join("admin.key");
        let key = std::fs::read_to_string(file).with_context(|| format!("reading {file:?}"))?;
        Ok(Self { key: key.trim().to_owned() })
    }

    /// Makes an administrator, without which identity cannot be enabled, and the principal of the clients. Returns the
    /// API key of the latter.
    fn prepare(&self, stage: &ApiStage) -> Result<String> {
        let all: Vec<String> =
            Verb::ALL.iter().map(|verb| format!("\"{}\"", verb.name())).collect();
        let all = format!("[{}]", all.join(","));
        for (name, verbs, prefix) in [("operator", &*all, ""), ("bench", VERBS, "bench/")] {
            let rules = format!(r#"{{"rules":[{{"verbs":{verbs},"prefix":"{prefix}"}}]}}"#);
            self.put(stage, &format!("/v1/access/roles/{name}"), &rules)?;
            let roles = format!(r#"{{"roles":["{name}"]}}"#);
            self.put(stage, &format!("/v1/access/principals/{name}"), &roles)?;
        }
        // All clients have one principal and one address. Every quota is set, and none of them bounds the clients.
        let quotas: Vec<String> =
            Quota::ALL.iter().map(|quota| format!("\"{}\":10000000000", quota.name())).collect();
        self.put(stage, "/v1/access/quotas", &format!("{{{}}}", quotas.join(",")))?;
        self.new_key(stage, "operator")?;
        self.new_key(stage, "bench")
    }

    fn new_key(&self, stage: &ApiStage, principal: &str) -> Result<String> {
        let NewApiKey { text, id, hash } = NewApiKey::random();
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let body = format!(r#"{{"principal":"{principal}","hash":"{hash}"}}"#);
        self.put(stage, &format!("/v1/access/keys/{id}"), &body)?;
        Ok(text)
    }

    fn set_identity(&self, stage: &ApiStage, enabled: bool) -> Result<()> {
        self.put(stage, "/v1/access/identity", &format!(r#"{{"enabled":{enabled}}}"#))
    }

    fn put(&self, stage: &ApiStage, path: &str, body: &str) -> Result<()> {
        stage.runtime.block_on(async {
            let mut connection =
                HttpConnection::open(stage.cluster.clients(), Some(&self.key)).await?;
            connection.ask("PUT", path, body).await.map(drop)
        })
    }
}
