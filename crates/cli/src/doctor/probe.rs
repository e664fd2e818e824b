//! Probes the given addresses at the same time: whether a process listens there, and whether it answers.

use std::io::ErrorKind;
use std::time::Duration;

use tenure::MemberChannel;
use tenure_server::os;
use tenure_wire::v1;
use tokio::net::TcpStream;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;
use v1::cluster_service_client::ClusterServiceClient;

use super::Finding;
use crate::connection_args::ConnectionTarget;
use crate::duration;

/// How long connecting to a port may take.
const PORT: Duration = Duration::from_secs(2);

/// What was found at one address.
pub(super) struct DoctorProbe {
    pub(super) address: String,
    pub(super) finding: Finding,
    /// Whether the address accepts connections, and nothing else happens there.
    pub(super) is_hung: bool,
}

/// Probes every address, and sends those of members that answer, as soon as they do. The results are in the order of
/// the addresses.
pub(super) async fn every(place: &ConnectionTarget, answering: Sender<String>) -> Vec<DoctorProbe> {
    let mut probes = JoinSet::new();
    for (at, address) in place.addresses.iter().cloned().enumerate() {
        let (channel, limit) = (place.channel(&address).ok(), place.timeout);
        let answering = answering.clone();
        probes.spawn(async move {
            let (finding, is_hung) = one(&address, channel, limit, &answering).await;
            (at, DoctorProbe { address, finding, is_hung })
        });
    }
    let mut found = probes.join_all().await;
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, probe)| probe).collect()
}

/// Probes one address. Returns what it found, and whether the address hangs.
async fn one(
    address: &str,
    channel: Option<MemberChannel>,
    limit: Duration,
    answering: &Sender<String>,
) -> (Finding, bool) {
    let away = match port(address, limit).await {
        Ok(away) => away,
        Err(finding) => return (finding, false),
    };
    let open = format!("{address} is open, {} away", duration::shown(away));
    let Some(channel) = channel else { return (Finding::ok("port", open), false) };
    let mut member = ClusterServiceClient::new(channel);
    match tokio::time::timeout(limit, member.status(v1::StatusRequest {})).await {
        Ok(Ok(_)) => {
            // The receiver needs only the first.
            let _ = answering.try_send(address.to_owned());
            (Finding::ok("port", open), false)
        }
        // The checks that follow say what it means.
        Ok(Err(_)) => (Finding::ok("port", open), false),
        Err(_) => {
            let limit = duration::shown(limit);
            let detail = format!("{address} is open, but does not answer within {limit}");
            let next = "look at the process there: it is stopped, overloaded, or no member";
            (Finding::bad("port", detail, next), true)
        }
    }
}

/// Checks whether a process listens at an address, and how far away it is.
async fn port(address: &str, limit: Duration) -> Result<Duration, Finding> {
    let (began_us, limit) = (os::now_us(), PORT.min(limit));
    let start = "start the member there (tenure dev, tenure serve), or correct --addr";
    match tokio::time::timeout(limit, TcpStream::connect(address)).await {
        Ok(Ok(_)) => Ok(Duration::from_micros(os::now_us().saturating_sub(began_us))),
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
            Err(Finding::bad("port", format!("{address} refused: no process listens there"), start))
        }
        Ok(Err(error)) => Err(Finding::bad("port", format!("{address}: {error}"), start)),
        Err(_) => Err(Finding::bad(
            "port",
            format!("{address} does not answer within {}", duration::shown(limit)),
            "look at firewalls on the way, and whether the machine is up",
        )),
    }
}
