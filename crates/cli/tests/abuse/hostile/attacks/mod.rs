//! Lists the attacks. Each one runs until its round is over, and connects again when a member has cut it off.

mod frames;
mod members;
mod reads;
mod sessions;
mod slow;
mod sockets;
mod state;
mod strangers;
mod watches;

use super::flood::Round;

/// One way to harm other clients.
#[derive(Clone, Copy)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Round<'_>),
}

macro_rules! attacks {
    ($($name:literal $file:ident :: $run:ident;)+) => {
        &[$(Attack { name: $name, run: $file::$run }),+]
    };
}

pub(crate) const ATTACKS: &[Attack] = attacks! {
    "settings frames" frames::settings;
    "ping frames" frames::pings;
    "ping frames, answers not read" frames::unread_pings;
    "window update frames" frames::window_updates;
    "priority frames" frames::priorities;
    "unknown frames" frames::unknown_frames;
    "goaway frames" frames::goaways;
    "forbidden frames" frames::forbidden_frames;
    "rapid reset" frames::rapid_resets;
    "continuation frames" frames::continuations;
    "empty data frames" frames::empty_data;
    "header bombs" frames::header_bombs;
    "slow headers" slow::slow_headers;
    "slow bodies" slow::slow_bodies;
    "half header blocks" slow::half_header_blocks;
    "connections" slow::connections;
    "tls at a plain port" slow::tls_hellos;
    "noise" slow::noise;
    "http answers not read" reads::unread_answers;
    "long lists" reads::long_lists;
    "long histories" reads::long_histories;
    "searches of the archive" reads::archive_searches;
    "metrics" reads::metrics;
    "deep json" reads::deep_json;
    "long json" reads::long_json;
    "foreign pages" reads::foreign_pages;
    "large socket frames" sockets::large_frames;
    "socket pings" sockets::pings;
    "socket pings, answers not read" sockets::unread_pings;
    "socket fragments" sockets::fragments;
    "socket answers not read" sockets::unread_answers;
    "json bombs in sockets" sockets::bombs;
    "plain locks" sockets::plain_locks;
    "tiny requests" sessions::tiny_requests;
    "one session without a pause" sessions::one_session;
    "session answers not read" sessions::unread_answers;
    "partial messages" sessions::partial_messages;
    "expired deadlines" sessions::expired_deadlines;
    "expired calls" sessions::expired_calls;
    "nonsense in the reserve" sessions::nonsense_in_the_reserve;
    "forwarded writes" sessions::forwarded_writes;
    "rings of waits" state::rings;
    "a full queue" state::full_queue;
    "many keys" state::many_keys;
    "many leases" state::many_leases;
    "leases of others" state::leases_of_others;
    "idempotency keys" state::idempotency_keys;
    "nested watches" watches::nested;
    "watches not read" watches::unread;
    "restarted watches" watches::restarted;
    "backups not read" watches::unread_backups;
    "joins of strangers" members::joins;
    "forged frames of members" members::forged_frames;
    "endless frames of members" members::endless_frames;
    "a stuck log" members::stuck_log;
};

/// Attacks of callers that no member knows.
pub(crate) const OF_STRANGERS: &[Attack] = attacks! {
    "guessed keys" strangers::guessed_keys;
    "one wrong key" strangers::one_wrong_key;
    "wrong tokens" strangers::wrong_tokens;
    "calls as other methods" strangers::other_methods;
    "probes" strangers::probes;
    "sessions without credentials" strangers::sessions;
    "sockets without credentials" strangers::sockets;
};
