//! Keeps the sessions of browsers that signed in to the console.
//!
//! A browser presents its credentials once and gets a cookie. The member keeps what was presented, never the secret of
//! an API key, and resolves it for every request, so a revoked key ends its sessions too. A session is of one member
//! and ends with its process. The cookie counts only with the header [`HEADER`], which no page of another origin can
//! send without being asked first, and then it is refused; a request that a link or a form makes never has it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use http::header::{AUTHORIZATION, COOKIE, HeaderName};
use http::{HeaderMap, HeaderValue, Method};
use ring::digest::{SHA256, digest};
use tenure_wire::Failure;

use super::{Presented, hex};
use crate::os;

/// The header of every request that the console makes.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("tenure-console");
/// Where a browser signs in and out. A read-only console may do that.
pub(crate) const SESSION_PATH: &str = "/v1/console/session";
/// By which a browser says what made it send a request.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// How long a session lasts at most, and how long without a request.
const LIFE: Duration = Duration::from_secs(8 * 60 * 60);
const IDLE: Duration = Duration::from_secs(30 * 60);
/// The most sessions. Beyond that, the principal that has the most of them loses the one that it used least recently.
const SESSIONS_MAX: usize = 1_000;

/// What a member serves of the console.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ConsoleMode {
    /// All of it.
    #[default]
    On,
    /// It shows everything and changes nothing.
    ReadOnly,
    /// The console is not served.
    Off,
}

impl ConsoleMode {
    /// The mode with this name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "on" => Some(Self::On),
            "read-only" => Some(Self::ReadOnly),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}

/// Names a session of this member: the hash of the secret in its cookie.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConsoleSessionId([u8; 32]);

/// How the console is served, and its sessions.
pub(crate) struct ConsoleSessions {
    settings: OnceLock<ConsoleSettings>,
    sessions: Mutex<BTreeMap<ConsoleSessionId, ConsoleSession>>,
    /// How long a session lasts at most, and how long without a request.
    life: Duration,
    idle: Duration,
}

impl Default for ConsoleSessions {
    fn default() -> Self {
        let (settings, sessions) = (OnceLock::new(), Mutex::default());
        Self { settings, sessions, life: LIFE, idle: IDLE }
    }
}

#[derive(Clone, Debug, Default)]
struct ConsoleSettings {
    mode: ConsoleMode,
    /// The name of the cookie. Browsers share cookies among the ports of a host, so each member has its own.
    cookie: String,
    /// Whether the clients' port accepts only TLS.
    is_secure: bool,
}

struct ConsoleSession {
    principal: String,
    presented: Presented,
    began_us: u64,
    used_us: u64,
}

impl ConsoleSessions {
    /// Sessions that last for so long at most, and for so long without a request.
    #[cfg(test)]
    pub(crate) fn lasting(life: Duration, idle: Duration) -> Self {
        Self { life, idle, ..Self::default() }
    }

    /// How long a session lasts if there is no other request; none if it has ended.
    pub(crate) fn left(&self, session: &ConsoleSessionId, now_us: u64) -> Option<Duration> {
        self.sessions().get(session).and_then(|session| self.left_of(session, now_us))
    }

    fn left_of(&self, session: &ConsoleSession, now_us: u64) -> Option<Duration> {
        let ends_us =
            (session.began_us + os::micros(self.life)).min(session.used_us + os::micros(self.idle));
        let left_us = ends_us.saturating_sub(now_us);
        (left_us > 0).then(|| Duration::from_micros(left_us))
    }

    /// Sets how the console is served. Before it, and in tests without a port, it is on and sets cookies for plaintext.
    pub(crate) fn configure(&self, mode: ConsoleMode, member: u64, is_secure: bool) {
        // The prefix makes the browser insist on TLS, on this very host, and on every path of it.
        let prefix = if is_secure { "__Host-" } else { "" };
        let cookie = format!("{prefix}tenure-console-{member}");
        let _ = self.settings.set(ConsoleSettings { mode, cookie, is_secure });
    }

    pub(crate) fn mode(&self) -> ConsoleMode {
        self.settings.get().map_or_else(ConsoleMode::default, |settings| settings.mode)
    }

    /// The credentials of the session that a request belongs to. The cookie counts only in a request that the
    /// console's own script made, and only if there are no other credentials.
    pub(crate) fn presented(&self, headers: &HeaderMap, now_us: u64) -> Option<Presented> {
        if headers.contains_key(AUTHORIZATION) || !is_from_console(headers) {
            return None;
        }
        let key = key(self.secret(headers)?);
        let mut sessions = self.sessions();
        let session = sessions.get_mut(&key)?;
        if self.left_of(session, now_us).is_none() {
            sessions.remove(&key);
            return None;
        }
        session.used_us = session.used_us.max(now_us);
        Some(Presented { session: Some(key), ..session.presented.clone() })
    }

    /// Refuses what a read-only console may not do.
    pub(crate) fn objection(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Option<Failure> {
        let reads = method == Method::GET || method == Method::HEAD || path == SESSION_PATH;
        let refuses = !reads && headers.contains_key(HEADER) && self.mode() != ConsoleMode::On;
        refuses.then(|| Failure::InvalidField {
            field: "tenure-console",
            problem: "cannot act: the console of this member is read-only".to_owned(),
        })
    }

    /// Begins a session of a principal with these credentials. Returns the value of the header that sets its cookie.
    pub(crate) fn begin(&self, principal: &str, presented: Presented, now_us: u64) -> HeaderValue {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).expect("the system has randomness, or nothing here is safe");
        let secret = hex(&secret);
        let mut sessions = self.sessions();
        sessions.retain(|_, session| self.left_of(session, now_us).is_some());
        if sessions.len() >= SESSIONS_MAX {
            end_one(&mut sessions);
        }
        let principal = principal.to_owned();
        let session = ConsoleSession { principal, presented, began_us: now_us, used_us: now_us };
        sessions.insert(key(&secret), session);
        self.cookie(&secret, self.life.as_secs())
    }

    /// Ends the session that a request belongs to. Returns the value of the header that removes its cookie.
    pub(crate) fn end(&self, headers: &HeaderMap) -> HeaderValue {
        if let Some(secret) = self.secret(headers) {
            self.sessions().remove(&key(secret));
        }
        self.cookie("", 0)
    }

    fn cookie(&self, secret: &str, seconds: u64) -> HeaderValue {
        let settings = self.settings.get().cloned().unwrap_or_default();
        let secure = if settings.is_secure { "; Secure" } else { "" };
        let name = settings.cookie;
        let text = format!(
            "{name}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
        );
        HeaderValue::try_from(text).expect("the parts of the cookie are ASCII")
    }

    /// The secret in the cookie of a request.
    fn secret<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let name = self.settings.get().map(|settings| settings.cookie.as_str()).unwrap_or_default();
        let lines = headers.get_all(COOKIE).into_iter().filter_map(|line| line.to_str().ok());
        let mut pairs = lines.flat_map(|line| line.split(';')).map(str::trim);
        pairs.find_map(|pair| pair.split_once('=').filter(|(it, _)| *it == name)).map(|it| it.1)
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<ConsoleSessionId, ConsoleSession>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the least recently used session of the principal that has the most.
fn end_one(sessions: &mut BTreeMap<ConsoleSessionId, ConsoleSession>) {
    let mut counts = BTreeMap::new();
    for session in sessions.values() {
        *counts.entry(session.principal.as_str()).or_insert(0) += 1;
    }
    let Some((&most, _)) = counts.iter().max_by_key(|(_, count)| **count) else { return };
    let theirs = sessions.iter().filter(|(_, session)| session.principal == most);
    let oldest = theirs.min_by_key(|(_, session)| session.used_us).map(|(key, _)| key.clone());
    oldest.map(|key| sessions.remove(&key));
}

/// Whether the console's own script made a request.
fn is_from_console(headers: &HeaderMap) -> bool {
    headers.contains_key(HEADER)
        && headers.get(FETCH_SITE).is_none_or(|site| site.as_bytes() == b"same-origin")
}

fn key(secret: &str) -> ConsoleSessionId {
    let mut key = [0; 32];
    key.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    ConsoleSessionId(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000_000;

    fn presented() -> Presented {
        let text = format!("Bearer tenure_{}_{}", "01".repeat(8), "ab".repeat(32));
        Presented::default().with_authorization(&text).unwrap()
    }

    fn sessions(is_secure: bool) -> ConsoleSessions {
        let sessions = ConsoleSessions::default();
        sessions.configure(ConsoleMode::On, 7, is_secure);
        sessions
    }

    /// The headers of a request of the console, with what a browser sends back of a cookie.
    fn headers(cookie: &HeaderValue) -> HeaderMap {
        let pair = cookie.to_str().unwrap().split_once(';').unwrap().0;
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_str(&format!("other=1; {pair}")).unwrap());
        headers.insert(HEADER, HeaderValue::from_static("1"));
        headers
    }

    #[test]
    fn a_session_stands_for_what_was_presented_until_it_ends() {
        let sessions = sessions(false);
        let headers = headers(&sessions.begin("ana", presented(), NOW));
        let found = sessions.presented(&headers, NOW).unwrap();
        assert!(found.bearer == presented().bearer && found.session.is_some());
        let removed = sessions.end(&headers);
        assert!(removed.to_str().unwrap().contains("=; Path=/; Max-Age=0"));
        assert!(sessions.presented(&headers, NOW).is_none());
    }

    #[test]
    fn the_cookie_is_out_of_reach_of_scripts_and_of_other_sites() {
        let plain = sessions(false).begin("ana", presented(), NOW);
        let plain = plain.to_str().unwrap();
        assert!(
            plain.starts_with("tenure-console-7=") && plain.contains("HttpOnly; SameSite=Strict")
        );
        assert!(!plain.contains("Secure") && !plain.contains("ab".repeat(32).as_str()));
        let secure = sessions(true).begin("ana", presented(), NOW);
        let secure = secure.to_str().unwrap();
        assert!(secure.starts_with("__Host-tenure-console-7=") && secure.ends_with("; Secure"));
    }

    #[test]
    fn without_the_header_or_from_another_site_the_cookie_does_not_count() {
        let sessions = sessions(false);
        let with = headers(&sessions.begin("ana", presented(), NOW));
        let mut without = with.clone();
        without.remove(HEADER);
        assert!(sessions.presented(&without, NOW).is_none());
        for (site, counts) in [("same-origin", true), ("same-site", false), ("cross-site", false)] {
            let mut headers = with.clone();
            headers.insert(FETCH_SITE, HeaderValue::from_static(site));
            assert_eq!(sessions.presented(&headers, NOW).is_some(), counts, "{site}");
        }
        let mut other = with.clone();
        other.insert(AUTHORIZATION, HeaderValue::from_static("Bearer x"));
        assert!(sessions.presented(&other, NOW).is_none(), "other credentials come first");
    }

    #[test]
    fn a_session_ends_without_use_and_after_its_life() {
        let sessions = sessions(false);
        let idle = os::micros(IDLE);
        let headers = headers(&sessions.begin("ana", presented(), NOW));
        assert!(sessions.presented(&headers, NOW + idle - 1).is_some());
        assert!(sessions.presented(&headers, NOW + 2 * idle - 2).is_some(), "it was used");
        let mut now_us = NOW + 2 * idle - 2;
        while now_us < NOW + os::micros(LIFE) - idle {
            now_us += idle / 2;
            assert!(sessions.presented(&headers, now_us).is_some());
        }
        assert!(sessions.presented(&headers, NOW + os::micros(LIFE)).is_none());
        assert!(sessions.sessions().is_empty());
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let sessions = sessions(false);
        let other = headers(&sessions.begin("ben", presented(), NOW));
        let first = headers(&sessions.begin("ana", presented(), NOW));
        let second = headers(&sessions.begin("ana", presented(), NOW));
        assert!(sessions.presented(&first, NOW + 1).is_some());
        for _ in 3..=SESSIONS_MAX {
            sessions.begin("ana", presented(), NOW + 1);
        }
        assert_eq!(sessions.sessions().len(), SESSIONS_MAX);
        assert!(sessions.presented(&first, NOW + 1).is_some());
        assert!(
            sessions.presented(&second, NOW + 1).is_none(),
            "the least recently used one ended"
        );
        assert!(sessions.presented(&other, NOW + 1).is_some(), "another principal's stays");
    }

    #[test]
    fn a_read_only_console_reads_and_signs_in_and_out() {
        let sessions = ConsoleSessions::default();
        sessions.configure(ConsoleMode::ReadOnly, 7, false);
        let mut headers = HeaderMap::new();
        let refuses = |method: &Method, path: &str, headers: &HeaderMap| {
            sessions.objection(method, path, headers).is_some()
        };
        assert!(!refuses(&Method::POST, "/v1/force", &headers), "another client may act");
        headers.insert(HEADER, HeaderValue::from_static("1"));
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert!(refuses(&method, "/v1/force", &headers), "{method}");
            assert!(!refuses(&method, SESSION_PATH, &headers), "{method}");
        }
        assert!(!refuses(&Method::GET, "/v1/locks", &headers));
    }
}
