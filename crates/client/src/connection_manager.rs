//! Manages the client's connections: one session with the leader, one with another member on standby.
//!
//! One task keeps two sessions. The first is with the leader and follows it when it changes. The second is with another
//! member and stays open for renewals and for the moment the first ends. Other tasks only see the current pair.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tenure_wire::v1;
use tenure_wire::v1::cluster_service_client::ClusterServiceClient;
use tokio::sync::watch;

use crate::clock::jittered;
use crate::lease_state::LeaseState;
use crate::session::{DeniedCall, Session};
use crate::shared::ClientShared;

/// The maximum time to connect and receive the welcome. A client with many addresses and a short timeout takes less, so
/// that members that do not answer leave time for one that does; but never less than the second value, which a distant
/// member may need.
const DIAL: Duration = Duration::from_secs(2);
const DIAL_MIN: Duration = Duration::from_secs(1);
/// The pause between attempts grows from the first value to the second.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long the client does not retry a leader that it could not reach.
const SHUN: Duration = Duration::from_millis(500);
/// The maximum number of addresses to remember.
const KNOWN_MAX: usize = 64;

/// The current sessions.
#[derive(Clone, Default)]
pub(crate) struct CurrentSessions {
    /// The session with the leader, or with a member that forwards to it.
    pub(crate) first: Option<Arc<Session>>,
    /// The session with another member.
    pub(crate) second: Option<Arc<Session>>,
    /// The outcome of the last attempt at each address.
    pub(crate) tried: Arc<Vec<(String, String)>>,
    /// The refusal of the client's credentials by a member, if the last round of attempts met one and no session
    /// could be opened.
    pub(crate) denied: Option<DeniedCall>,
    /// Whether, in the last round of attempts, every address answered in time and none opened a session.
    pub(crate) refused: bool,
    /// How many rounds of attempts connected to no member.
    pub(crate) failed_rounds: u64,
}

pub(crate) struct ConnectionManager {
    shared: Weak<ClientShared>,
    known: Vec<String>,
    tried: Vec<(String, String)>,
    sessions: CurrentSessions,
    publish: watch::Sender<CurrentSessions>,
    /// The refusal of the client's credentials at the last attempt, if that was why it failed.
    denied: Option<DeniedCall>,
    /// Whether the last attempt was not answered in time.
    silent: bool,
    turn: usize,
    pause: Duration,
    /// Whether a member was connected in the last round of attempts. An outage is logged once.
    is_connected: bool,
}

impl ConnectionManager {
    pub(crate) fn new(
        shared: Weak<ClientShared>,
        known: Vec<String>,
        publish: watch::Sender<CurrentSessions>,
    ) -> Self {
        let turn = usize::try_from(crate::clock::random() % 64).unwrap_or(0);
        let (tried, sessions) = (Vec::new(), CurrentSessions::default());
        let (denied, silent, pause, is_connected) = (None, false, PAUSE_MIN, false);
        Self { shared, known, tried, sessions, publish, denied, silent, turn, pause, is_connected }
    }

    /// Runs until the client is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            let mut settled = true;
            self.tidy();
            if self.sessions.first.is_none() {
                settled = self.dial_any().await;
            }
            if self.sessions.first.is_some() {
                settled = self.follow().await;
            }
            // Open the standby session even if the leader cannot be reached.
            if self.sessions.first.is_some()
                && self.sessions.second.is_none()
                && self.known.len() > 1
            {
                settled &= self.dial_second().await;
            }
            self.publish();
            if settled {
                self.pause = PAUSE_MIN;
            }
            let pause = if settled { None } else { Some(jittered(self.pause)) };
            self.pause = (self.pause * 2).min(PAUSE_MAX);
            self.wait(pause).await;
            if self.shared.strong_count() == 0 {
                return;
            }
        }
    }

    /// Drops sessions that are over. If the first is over, the standby session takes its place.
    fn tidy(&mut self) {
        let alive = |session: &Arc<Session>| !session.is_over();
        self.sessions.first = self.sessions.first.take().filter(alive);
        self.sessions.second = self.sessions.second.take().filter(alive);
        if self.sessions.first.is_none() {
            self.sessions.first = self.sessions.second.take();
        }
        self.publish();
    }

    fn publish(&mut self) {
        self.sessions.tried = Arc::new(self.tried.clone());
        self.publish.send_replace(self.sessions.clone());
    }

    async fn dial_any(&mut self) -> bool {
        self.sessions.denied = None;
        self.sessions.refused = false;
        let (mut denied, mut refused) = (None, true);
        for _ in 0..self.known.len() {
            self.turn += 1;
            let address = self.known[self.turn % self.known.len()].clone();
            if let Some(session) = self.dial(&address).await {
                self.sessions.first = Some(session);
                self.publish();
                if !self.is_connected && self.sessions.failed_rounds > 0 {
                    tracing::info!(address, "connected again");
                }
                self.is_connected = true;
                self.meet().await;
                return true;
            }
            denied = self.denied.take().or(denied);
            refused &= !self.silent;
        }
        if denied.is_some()
            && let Some(shared) = self.shared.upgrade()
        {
            shared.held().iter().for_each(|lease| lease.with(LeaseState::credentials_refused));
        }
        self.sessions.denied = denied;
        self.sessions.refused = refused;
        self.sessions.failed_rounds += 1;
        if self.is_connected {
            self.is_connected = false;
            let tried = self.tried.iter().map(|(address, why)| format!("{address} {why}"));
            let tried = tried.collect::<Vec<_>>().join(", ");
            tracing::warn!(tried, "no member can be reached; trying again");
        }
        false
    }

    async fn dial_second(&mut self) -> bool {
        let Some(first) = self.sessions.first.clone() else { return false };
        let others: Vec<String> =
            self.known.iter().filter(|it| **it != first.address).cloned().collect();
        for _ in 0..others.len() {
            self.turn += 1;
            let address = &others[self.turn % others.len()];
            match self.dial(address).await {
                // The same member under another address is no standby.
                Some(session) if session.member == first.member => {
                    self.known.retain(|it| it != address);
                }
                Some(session) => {
                    self.sessions.second = Some(session);
                    return true;
                }
                None => {}
            }
        }
        false
    }

    /// Makes the session with the leader the first one, if the leader is known.
    async fn follow(&mut self) -> bool {
        let Some(first) = self.sessions.first.clone() else { return false };
        let Some(leader) = first.elsewhere() else { return true };
        let second = self.sessions.second.take_if(|session| session.member == leader.member);
        let session = match second {
            Some(session) => Some(session),
            None => self.dial(&leader.address).await,
        };
        // A follower forwards requests, so requests do not wait until this succeeds.
        let Some(session) = session else { return false };
        self.learn(&leader.address);
        self.sessions.first = Some(session);
        self.sessions.second = Some(first);
        true
    }

    async fn dial(&mut self, address: &str) -> Option<Arc<Session>> {
        let shared = self.shared.upgrade()?;
        let (hello, within) =
            (shared.hello(), dial_time(shared.settings.timeout, self.known.len()));
        drop(shared);
        let opened = Session::open(address, hello, within, &self.shared).await;
        let (session, word) = match opened {
            Ok(session) => (Some(session), "connected".to_owned()),
            Err(why) => {
                (self.denied, self.silent) = (why.denied, why.silent);
                (None, why.word)
            }
        };
        // A member that cannot be reached is dialled repeatedly, so only a changed outcome is logged.
        let known = self.tried.iter().find(|(it, _)| it == address);
        if known.is_none_or(|(_, before)| *before != word) {
            tracing::debug!(address, outcome = %word, "dialled a member");
        }
        self.tried.retain(|(it, _)| it != address);
        self.tried.push((address.to_owned(), word));
        session
    }

    /// Asks a member for the addresses of the others.
    async fn meet(&mut self) {
        let Some(first) = &self.sessions.first else { return };
        let mut client = ClusterServiceClient::new(first.channel.clone());
        let asked = tokio::time::timeout(DIAL, client.members(v1::MembersRequest {})).await;
        let Ok(Ok(members)) = asked else { return };
        for member in members.into_inner().members {
            self.learn(&member.client_address);
        }
    }

    fn learn(&mut self, address: &str) {
        let nowhere = address.is_empty() || address == "-";
        if !nowhere && self.known.len() < KNOWN_MAX && !self.known.iter().any(|it| it == address) {
            self.known.push(address.to_owned());
        }
    }

    /// Waits until a session ends, the leader moves, or the pause is over.
    async fn wait(&self, pause: Option<Duration>) {
        let ended = |session: Option<Arc<Session>>| async move {
            match session {
                Some(session) => {
                    let mut over = session.over();
                    drop(session);
                    // An error means that the session value itself is gone.
                    let _ = over.wait_for(|over| *over).await;
                }
                None => std::future::pending().await,
            }
        };
        let moved = |session: Option<Arc<Session>>| async move {
            match session {
                Some(session) => {
                    let (mut leader, own) = (session.leader(), session.member);
                    drop(session);
                    if leader.wait_for(|at| at.is_elsewhere(own)).await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
                None => std::future::pending().await,
            }
        };
        let (first, second) = (self.sessions.first.clone(), self.sessions.second.clone());
        // While the leader is elsewhere and cannot be reached, retry it only after `SHUN`.
        let first_elsewhere = first.as_ref().is_some_and(|session| session.elsewhere().is_some());
        let pause = match pause {
            Some(pause) if first_elsewhere => pause.max(SHUN),
            Some(pause) => pause,
            None => Duration::from_secs(3_600),
        };
        tokio::select! {
            () = ended(first.clone()) => {}
            () = ended(second) => {}
            () = moved(first.clone()), if !first_elsewhere => {}
            () = self.abandoned() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }

    /// Waits until the client no longer watches the sessions.
    async fn abandoned(&self) {
        self.publish.closed().await;
    }
}

/// How long one attempt may take: all addresses together no longer than the timeout of a request.
fn dial_time(timeout: Duration, addresses: usize) -> Duration {
    let addresses = u32::try_from(addresses).unwrap_or(u32::MAX).max(1);
    (timeout / addresses).clamp(DIAL_MIN, DIAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_share_the_timeout_within_bounds() {
        let ms = Duration::from_millis;
        assert_eq!(dial_time(ms(10_000), 3), DIAL);
        assert_eq!(dial_time(ms(6_000), 5), ms(1_200));
        assert_eq!(dial_time(ms(500), 64), DIAL_MIN);
        assert_eq!(dial_time(ms(500), 0), DIAL_MIN);
    }
}
