//! Decides which new member an invitation admits: the token that an operator gives to a joiner, and its record in the
//! replicated state.
//!
//! An operator has an invitation written ([`Reconfiguration::Invite`](crate::Reconfiguration::Invite)): a key with the
//! hash of a secret and a deadline by the machine's clock. The joiner presents the secret. The leader writes the
//! joiner's id into the record before it adds the joiner, on condition that the record is as the leader read it. So an
//! invitation admits one id, whichever member leads, and that id may repeat its join when the answer was lost.
//!
//! The machine's clock advances with entries, so the leader compares the deadline once more after that write.

use std::fmt;

use ring::digest::{SHA256, digest};
use tenure_core::Machine;
use tenure_core::request::{Command, Expect, Put};
use tenure_raft::{MemberId, ReplicaInput as RaftInput};
use tenure_types::Revision;

use crate::directory;
use crate::lineage::Incarnation;
use crate::node::{NO_CALLER, Node};

/// The prefix of each invitation's key.
pub const PREFIX: &str = "tenure/invitations/";
/// How long an invitation lasts if the operator does not say: long enough to start a machine.
pub const EXPIRES_DEFAULT_MS: u64 = 60 * 60 * 1_000;
/// How long an invitation may last: a forgotten one must not stay valid.
pub const EXPIRES_MAX_MS: u64 = 24 * 60 * 60 * 1_000;

/// The first word of a token's text, by which people and scanners for secrets recognise it.
const WORD: &str = "tenure-invitation";
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;
const HASH_BYTES: usize = 32;
/// The random bytes that a token is made of.
pub const TOKEN_BYTES: usize = ID_BYTES + SECRET_BYTES;
/// The most invitations that the leader reads at a time, to find expired ones.
const READ_MAX: usize = 1_024;
/// Expired invitations that the leader deletes at a time.
const SWEPT_MAX: usize = 64;
/// What stands in a record for a member that is not named.
const NONE: &str = "-";

/// The text that an operator gives to a member that is to join: `tenure-invitation_<id>_<secret>`. Its `Debug` form
/// has no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct InvitationToken {
    id: [u8; ID_BYTES],
    secret: [u8; SECRET_BYTES],
}

/// An invitation that an operator wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewInvitation {
    /// The token. Only the hash of its secret is stored.
    pub token: InvitationToken,
    /// How long it lasts, by the machine's clock.
    pub expires_ms: u64,
    /// The only member that it admits; none to admit the first member that presents it.
    pub member: Option<MemberId>,
    /// The restore of the cluster. After another restore the invitation admits no member.
    pub incarnation: Incarnation,
}

/// An invitation as the replicated state has it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct InvitationRecord {
    hash: [u8; HASH_BYTES],
    deadline_ms: u64,
    incarnation: Incarnation,
    member: Option<MemberId>,
    used_by: Option<MemberId>,
}

/// What may be shown of an invitation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvitationView {
    /// The part of the token that is not secret.
    pub id: String,
    /// When it expires, by the machine's clock.
    pub deadline_ms: u64,
    /// The only member that it admits.
    pub member: Option<MemberId>,
    /// The member that has used it.
    pub used_by: Option<MemberId>,
}

/// A valid invitation, to be written before its member is added.
#[derive(Debug)]
pub(crate) struct InvitationUse {
    key: String,
    record: InvitationRecord,
    modified: Revision,
}

impl InvitationToken {
    /// A token made of random bytes.
    pub fn new(random: [u8; TOKEN_BYTES]) -> Self {
        let mut token = Self { id: [0; ID_BYTES], secret: [0; SECRET_BYTES] };
        token.id.copy_from_slice(&random[..ID_BYTES]);
        token.secret.copy_from_slice(&random[ID_BYTES..]);
        token
    }

    /// Reads a token.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(WORD)?.strip_prefix('_')?.split_once('_')?;
        Some(Self { id: from_hex(id)?, secret: from_hex(secret)? })
    }

    /// The part of the token that is not secret.
    pub fn id(&self) -> String {
        hex(&self.id)
    }

    fn hash(&self) -> [u8; HASH_BYTES] {
        let mut hash = [0; HASH_BYTES];
        hash.copy_from_slice(digest(&SHA256, hex(&self.secret).as_bytes()).as_ref());
        hash
    }
}

impl fmt::Display for InvitationToken {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{WORD}_{}_{}", self.id(), hex(&self.secret))
    }
}

impl fmt::Debug for InvitationToken {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{WORD}_{}_…", self.id())
    }
}

impl NewInvitation {
    /// A command that changes nothing. Applied, it brings the machine's clock up to date, from which the deadline is
    /// counted.
    pub(crate) fn touch(&self) -> Vec<u8> {
        let key = key(&self.token);
        directory::encode(Command::Delete { key: &key, expect: Expect::Absent, guard: None })
    }

    /// The command that writes the invitation.
    pub(crate) fn put(&self, clock_ms: u64) -> Vec<u8> {
        let record = InvitationRecord {
            hash: self.token.hash(),
            deadline_ms: clock_ms.saturating_add(self.expires_ms.min(EXPIRES_MAX_MS)),
            incarnation: self.incarnation,
            member: self.member,
            used_by: None,
        };
        put(&key(&self.token), &record, Expect::Absent)
    }
}

impl InvitationRecord {
    fn parse(value: &[u8]) -> Option<Self> {
        let mut words = str::from_utf8(value).ok()?.split(' ');
        let mut next = || words.next();
        let hash = from_hex(next()?)?;
        let deadline_ms = next()?.parse().ok()?;
        let incarnation = Incarnation::parse(next()?)?;
        let member = |word: &str| match word {
            NONE => Some(None),
            id => directory::parse_id(id).map(Some),
        };
        let (invited, used_by) = (member(next()?)?, member(next()?)?);
        let record = Self { hash, deadline_ms, incarnation, member: invited, used_by };
        words.next().is_none().then_some(record)
    }
}

impl fmt::Display for InvitationRecord {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let member = |id: Option<MemberId>| id.map_or(NONE.to_owned(), |id| id.to_string());
        let Self { hash, deadline_ms, incarnation, .. } = self;
        let (invited, used_by) = (member(self.member), member(self.used_by));
        write!(to, "{} {deadline_ms} {incarnation} {invited} {used_by}", hex(hash))
    }
}

impl InvitationUse {
    /// Checks the invitation that a joiner presents. Returns why it admits no such member as an error.
    pub(crate) fn check(
        machine: &Machine,
        incarnation: Incarnation,
        joiner: MemberId,
        presented: Option<&InvitationToken>,
    ) -> Result<Self, &'static str> {
        let Some(token) = presented else {
            return Err("joining needs an invitation, which `tenure cluster invite` makes");
        };
        let key = key(token);
        let Some(found) = machine.key(&key) else {
            return Err("there is no such invitation, or it has expired");
        };
        let record = InvitationRecord::parse(&found.value);
        let Some(record) = record.filter(|record| is_same(&record.hash, &token.hash())) else {
            return Err("there is no such invitation, or it has expired");
        };
        if record.incarnation != incarnation {
            return Err("the invitation is from before the cluster was restored");
        }
        if record.deadline_ms <= machine.clock_ms() {
            return Err("the invitation has expired");
        }
        if record.member.is_some_and(|member| member != joiner) {
            return Err("the invitation is for another member");
        }
        if record.used_by.is_some_and(|by| by != joiner) && !mutant!("invitation_used_twice") {
            return Err("another member has used the invitation");
        }
        Ok(Self { key, record, modified: found.modified })
    }

    /// The command that uses the invitation up for a member.
    pub(crate) fn put(&self, joiner: MemberId) -> Vec<u8> {
        let record = InvitationRecord { used_by: Some(joiner), ..self.record.clone() };
        put(&self.key, &record, Expect::Modified(self.modified))
    }

    /// Whether the invitation has expired, by the clock of a state that has applied its use.
    pub(crate) fn has_expired(&self, machine: &Machine) -> bool {
        self.record.deadline_ms <= machine.clock_ms()
    }
}

impl Node {
    /// Deletes the invitations that have expired, if this member leads.
    pub(crate) fn sweep_invitations(&mut self) {
        if !self.replica.status().serving {
            return;
        }
        let machine = self.replica.machine();
        let incarnation =
            self.config.identity.as_ref().map(|identity| identity.lineage.incarnation);
        let is_live = |value: &[u8]| {
            InvitationRecord::parse(value).is_some_and(|record| {
                record.deadline_ms > machine.clock_ms() && Some(record.incarnation) == incarnation
            })
        };
        let keys = machine.keys(PREFIX, None, READ_MAX).into_iter();
        let delete = |key: tenure_core::view::KeyView| {
            let expect = Expect::Modified(key.modified);
            directory::encode(Command::Delete { key: key.key.as_str(), expect, guard: None }).into()
        };
        let requests: Vec<_> =
            keys.filter(|key| !is_live(&key.value)).take(SWEPT_MAX).map(delete).collect();
        if requests.is_empty() {
            return;
        }
        self.replica.handle(RaftInput::Submit {
            proposal: NO_CALLER,
            requests: requests.into(),
            linger_us: 0,
            deadline_us: u64::MAX,
        });
        self.again = true;
    }
}

/// The key of an invitation.
pub fn key(token: &InvitationToken) -> String {
    format!("{PREFIX}{}", token.id())
}

/// The key of the invitation with this id; `None` if no invitation can have it.
pub fn key_of(id: &str) -> Option<String> {
    from_hex::<ID_BYTES>(id).map(|_| format!("{PREFIX}{id}"))
}

/// The invitation in a key; `None` if the key holds none.
pub fn view(key: &str, value: &[u8]) -> Option<InvitationView> {
    let InvitationRecord { deadline_ms, member, used_by, .. } = InvitationRecord::parse(value)?;
    Some(InvitationView { id: key.strip_prefix(PREFIX)?.to_owned(), deadline_ms, member, used_by })
}

/// The invitations that can still be used, and those that were used and have not expired.
pub fn live(machine: &Machine, incarnation: Incarnation) -> Vec<InvitationView> {
    let is_live = |value: &[u8]| {
        InvitationRecord::parse(value).is_some_and(|record| {
            record.deadline_ms > machine.clock_ms() && record.incarnation == incarnation
        })
    };
    let keys = machine.keys(PREFIX, None, READ_MAX).into_iter();
    keys.filter(|key| is_live(&key.value)).filter_map(|key| view(&key.key, &key.value)).collect()
}

/// The member that has used an invitation, by the value of its key.
pub fn used_by(value: &[u8]) -> Option<MemberId> {
    InvitationRecord::parse(value)?.used_by
}

fn put(key: &str, record: &InvitationRecord, expect: Expect<'_>) -> Vec<u8> {
    let value = record.to_string();
    let put = Put { key, value: value.as_bytes(), lease: None, expect, guard: None };
    directory::encode(Command::Put(put))
}

/// Compares in a time that does not depend on where the bytes differ.
fn is_same(a: &[u8; HASH_BYTES], b: &[u8; HASH_BYTES]) -> bool {
    a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let bytes = text.as_bytes();
    if bytes.len() != 2 * N {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(bytes.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(seed: u8) -> InvitationToken {
        InvitationToken::new([seed; TOKEN_BYTES])
    }

    #[test]
    fn a_token_reads_back_and_shows_no_secret() {
        let token = token(0xa5);
        let text = token.to_string();
        assert_eq!(text, format!("tenure-invitation_{}_{}", "a5".repeat(8), "a5".repeat(32)));
        assert_eq!(InvitationToken::parse(&text), Some(token.clone()));
        assert!(!format!("{token:?}").contains(&"a5".repeat(9)), "{token:?}");
        let (short, upper) = (&text[..text.len() - 1], text.to_uppercase());
        let swapped = text.replace("invitation", "key");
        for bad in ["", "tenure-invitation__", short, &upper, &swapped, &format!("{text}0")] {
            assert_eq!(InvitationToken::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_state_has_the_hash_of_the_secret_and_not_the_secret() {
        // The SHA-256 of 64 times the digit 0.
        let hash = hex(&token(0).hash());
        assert_eq!(hash, "60e05bd1b195af2f94112fa7197a5c88289058840ce7c6df9693756bc6250f55");
        let record = InvitationRecord {
            hash: token(0).hash(),
            deadline_ms: 7,
            incarnation: Incarnation(9),
            member: None,
            used_by: MemberId::new(0xfe),
        };
        let text = record.to_string();
        assert_eq!(InvitationRecord::parse(text.as_bytes()), Some(record));
        for bad in ["", "x", &text[1..], &format!("{text} x"), &text.replace("fe", "0")] {
            assert_eq!(InvitationRecord::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
