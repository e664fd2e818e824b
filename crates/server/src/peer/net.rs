//! Keeps the links of a member and decides which members may open one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_node::{Control, Input, Join, JoinId, PeerHello, PeerName};
use tenure_raft::{MemberId, Membership};
use tenure_wire::v1;

use super::control;
use super::frame::Frame;
use super::link::{DialledBy, LinkHandle};
use super::stream::PeerStream;
use super::wire::Wire;
use crate::log::Limiter;
use crate::log_writer::{spawn, spawn_for};
use crate::member::{LoopEvent, MemberHandle};
use crate::os;
use tenure_node::directory::{Address, MemberNames, MemberRecord};

/// Pauses between two attempts to reach a member, before jitter.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How long the link of a removed member stays open, so that the member learns of its removal.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long the links of a member that ends have to deliver what is queued. Much longer than a round trip between
/// members, and short enough for a member that stops while another one does not answer.
const DRAIN: Duration = Duration::from_millis(500);
/// How long the cluster may take to agree on a new member.
const AGREE: Duration = Duration::from_secs(8);
/// The most links to members that this member does not know to belong to the cluster. Members may have been added while
/// it was away, but not that many.
const STRANGERS_MAX: usize = 16;

/// The links of one member.
pub(crate) struct Net {
    /// The highest level of the machine's rules that this member knows.
    pub(super) level: u16,
    pub(super) member: MemberHandle,
    links: Mutex<BTreeMap<MemberId, Arc<LinkHandle>>>,
    /// The directory's names and addresses of each member. Its certificate must have the member's name.
    names: Mutex<BTreeMap<MemberId, MemberNames>>,
    /// The ids whose messages are accepted.
    known: Mutex<LinkedIds>,
    pub(super) wire: Wire,
    limiter: Limiter,
    /// The members to which a snapshot is being sent.
    pub(super) sending: Mutex<BTreeSet<MemberId>>,
    /// Held while a snapshot is received: one arrives at a time.
    pub(super) receiving: Mutex<()>,
    /// Held while a part of the event archive is read for another member: one at a time.
    pub(super) reading_archive: Mutex<()>,
    /// The members that are asked about this member's standing just now.
    asked_standing: Mutex<BTreeSet<MemberId>>,
    closed: AtomicBool,
}

/// Closes the link of a removed member after the member has had time to learn of its removal. Its messages are no
/// longer accepted.
fn close_later(link: Arc<LinkHandle>) {
    spawn("tenure-link-close", move || {
        std::thread::sleep(FAREWELL);
        link.close();
    });
}

/// The ids that get a link.
#[derive(Default)]
struct LinkedIds {
    members: Membership,
    /// Other ids that a member, or the list that this member got when it joined, vouches for.
    vouched: BTreeSet<MemberId>,
}

impl Net {
    pub(crate) fn new(level: u16, member: MemberHandle, wire: Wire) -> Arc<Self> {
        Arc::new(Self {
            level,
            member,
            links: Mutex::default(),
            names: Mutex::default(),
            known: Mutex::default(),
            wire,
            limiter: Limiter::default(),
            sending: Mutex::default(),
            receiving: Mutex::default(),
            reading_archive: Mutex::default(),
            asked_standing: Mutex::default(),
            closed: AtomicBool::new(false),
        })
    }

    /// Hands frames to a link. Returns whether the link queued them, see [`LinkHandle::push`]; false if there is none.
    pub(crate) fn send(&self, to: MemberId, frames: Vec<Frame>) -> bool {
        let link = self.links().get(&to).cloned();
        link.is_some_and(|link| link.push(frames))
    }

    /// Takes over the members and their addresses: opens links to them and closes those of removed members.
    pub(crate) fn learn(
        self: &Arc<Self>,
        directory: &BTreeMap<MemberId, MemberNames>,
        members: &Membership,
        vouched: BTreeSet<MemberId>,
    ) {
        self.learn_names(directory);
        *self.known() = LinkedIds { members: members.clone(), vouched };
        let all = members.all();
        let me = self.member.id();
        for id in all.iter().chain(directory.keys()).filter(|id| **id != me) {
            // Before its first snapshot a member knows the others only from the directory that it got when it joined.
            let wanted = all.contains(id) || all.is_empty();
            let address = directory.get(id).map(|names| names.members.clone());
            if wanted {
                self.link(*id).learn(address, true);
            }
        }
        self.links().retain(|id, link| {
            if self.stranger(*id).is_some() {
                close_later(link.clone());
                return false;
            }
            if !all.is_empty() && !all.contains(id) {
                link.learn(None, false);
            }
            true
        });
    }

    /// The address of a member's members' port, if this member knows it.
    pub(crate) fn address(&self, id: MemberId) -> Option<Address> {
        self.links().get(&id).and_then(|link| link.address())
    }

    /// The other members of the cluster whose addresses are known.
    pub(super) fn others(&self) -> Vec<MemberId> {
        let links = self.links();
        let known = links.values().filter(|link| link.is_wanted() && link.address().is_some());
        known.map(|link| link.id).collect()
    }

    /// Why this id gets no link; none if it does. Without TLS nothing proves that the other end has the id that it
    /// claims. With TLS its certificate must name the member.
    fn stranger(&self, id: MemberId) -> Option<String> {
        let known = self.known();
        if known.members.retired.contains(&id) {
            return Some(format!("member {id} was removed from the cluster"));
        }
        let belongs = known.members.contains(id) || known.vouched.contains(&id);
        (!belongs).then(|| format!("{id} is no member of the cluster, as far as this one knows"))
    }

    /// Why the other end of a connection may not learn about the cluster; none if it may. With TLS its certificate must
    /// name a member.
    pub(super) fn unnamed(&self, stream: &PeerStream) -> Option<String> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = |names: &MemberNames| stream.objection(&names.name).is_some();
        (!names.is_empty() && names.values().all(refused)).then(|| {
            "this member belongs to a cluster in which no member has the name of your certificate".to_owned()
        })
    }

    /// Passes a join to the node and returns its answer. The member asks to be added, or its address has changed.
    pub(super) fn join(&self, join: Join, peer_name: PeerName) -> Control {
        let (done, answer) = channel();
        let done = Box::new(move |control| {
            let _ = done.send(control);
        });
        self.member.tell(LoopEvent::Join { request: Box::new(join), peer_name, done });
        let late = || Control::Refused("the cluster did not agree in time".to_owned());
        answer.recv_timeout(AGREE).unwrap_or_else(|_| late())
    }

    /// Asks a member that wants to be added who it is, on behalf of the node, on a new thread. Returns whether the
    /// thread could be started.
    pub(crate) fn call_back(self: &Arc<Self>, join: JoinId, record: MemberRecord) -> bool {
        let net = self.clone();
        spawn_for(self.member.inbox(), "tenure-call-back", move || {
            let MemberNames { name, members, .. } = &record.names;
            let answer = net.wire.ask(members, Some(name), &Control::Who);
            let answer = answer.map(Box::new).map_err(|error| error.to_string());
            net.member.tell(LoopEvent::Input(Input::CalledBack { join, answer }));
        })
    }

    /// Sends a question about this member's standing to another member, on behalf of the node, on a new thread.
    /// Drops the question while that member has not answered another one: the node asks again.
    pub(crate) fn ask_standing(
        self: &Arc<Self>,
        of: MemberId,
        address: String,
        name: String,
        question: Control,
    ) {
        // Side by side: one that does not answer must not delay the others.
        if !self.asked_standing().insert(of) {
            return;
        }
        let net = self.clone();
        let started = spawn_for(self.member.inbox(), "tenure-standing", move || {
            if let Ok(answer) = net.wire.ask(&address, Some(&name), &question) {
                let answer = Box::new(answer);
                net.member.tell(LoopEvent::Input(Input::StandingAnswer { from: of, answer }));
            }
            net.asked_standing().remove(&of);
        });
        if !started {
            self.asked_standing().remove(&of);
        }
    }

    fn asked_standing(&self) -> MutexGuard<'_, BTreeSet<MemberId>> {
        self.asked_standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, LinkedIds> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first message on a connection from this member.
    pub(super) fn hello(&self, to: MemberId) -> PeerHello {
        let lineage = self.member.lineage().clone();
        PeerHello { lineage, from: self.member.id(), to, level: self.level }
    }

    /// Why a connection with this hello is refused; none if it is accepted. Logs each reason once per member.
    pub(super) fn objection(&self, hello: &PeerHello, stream: &PeerStream) -> Option<String> {
        let why = hello
            .objection(self.member.lineage(), self.member.id())
            .or_else(|| self.stranger(hello.from))
            .or_else(|| stream.objection(&self.name(hello.from)?))?;
        self.log_once("a connection was refused", hello.from, &why);
        Some(why)
    }

    /// Serves a connection that another member has dialled, until it breaks.
    pub(super) fn accept(
        self: &Arc<Self>,
        hello: &PeerHello,
        stream: PeerStream,
    ) -> io::Result<()> {
        if !self.has_room(hello.from) {
            let why = "too many unknown members have links";
            self.log_once("a connection was refused", hello.from, why);
            return Err(io::Error::other(why));
        }
        self.link(hello.from).serve(stream, DialledBy::There, hello.level, self)
    }

    /// Closes every link after the other end has read what is queued, or after [`DRAIN`].
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let links: Vec<Arc<LinkHandle>> = self.links().values().cloned().collect();
        links.iter().for_each(|link| link.finish());
        let until_us = os::now_us().saturating_add(os::micros(DRAIN));
        for link in links {
            link.wait_for_end(until_us);
            link.close();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn log_once(&self, message: &'static str, member: MemberId, why: &str) {
        if let Some(pass) = self.limiter.pass(message, member, why) {
            tracing::warn!(%member, why, suppressed = pass.suppressed, "{message}");
        }
    }

    /// Whether a link to this member may be added. Each link has a thread, so unconnected links to unknown members are
    /// closed first.
    fn has_room(&self, id: MemberId) -> bool {
        let mut links = self.links();
        if links.contains_key(&id) {
            return true;
        }
        if links.values().filter(|link| !link.is_wanted()).count() >= STRANGERS_MAX {
            links.retain(|_, link| {
                let kept = link.is_wanted() || link.is_connected();
                if !kept {
                    link.close();
                }
                kept
            });
        }
        links.values().filter(|link| !link.is_wanted()).count() < STRANGERS_MAX
    }

    fn link(self: &Arc<Self>, id: MemberId) -> Arc<LinkHandle> {
        let mut links = self.links();
        let link = links.entry(id).or_insert_with(|| {
            let link = Arc::new(LinkHandle::new(id));
            let (net, kept) = (self.clone(), link.clone());
            spawn_for(self.member.inbox(), "tenure-link", move || net.keep(&kept));
            link
        });
        if self.is_closed() {
            link.close();
        }
        link.clone()
    }

    /// Dials whenever it is this end's part, until the link is closed.
    fn keep(self: &Arc<Self>, link: &Arc<LinkHandle>) {
        let mut pause = PAUSE_MIN;
        while let Some(address) = link.wait_to_dial(self.member.id()) {
            match self.dial(link, &address) {
                Ok(()) => pause = PAUSE_MIN,
                Err(error) => {
                    self.log_once("cannot reach a member", link.id, &error.to_string());
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
            link.pause(os::jittered(pause));
        }
    }

    fn dial(self: &Arc<Self>, link: &Arc<LinkHandle>, address: &str) -> io::Result<()> {
        let mut stream = self.wire.dial(address, self.name(link.id).as_deref())?;
        control::write(&mut stream, &Control::Hello(self.hello(link.id)))?;
        match control::read(&mut stream)? {
            Control::Hello(hello) => {
                if let Some(why) = self.objection(&hello, &stream) {
                    return Err(io::Error::other(why));
                }
                // The error is ignored: if it persists, the next attempt reports it.
                let _ = link.serve(stream, DialledBy::Here, hello.level, self);
                Ok(())
            }
            Control::Refused(why) => Err(io::Error::other(why)),
            Control::Retired => Err(io::Error::other("this member was removed from the cluster")),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The name that a member's certificate must have; none if the directory does not say. A member that was away for
    /// long has to accept messages from members that it does not know, trusting the authority that signed their
    /// certificates.
    pub(super) fn name(&self, id: MemberId) -> Option<String> {
        self.named(id).map(|names| names.name)
    }

    /// The name and client address of a member, as far as this member knows them.
    pub(crate) fn hint(&self, id: MemberId) -> v1::LeaderHint {
        let known = self.named(id).map(|names| (names.name, names.clients));
        let (name, address) = known.unwrap_or_default();
        v1::LeaderHint { member_id: id.get(), name, address }
    }

    fn named(&self, id: MemberId) -> Option<MemberNames> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// Takes over the names and client addresses of members.
    pub(crate) fn learn_names(&self, directory: &BTreeMap<MemberId, MemberNames>) {
        // A member that was added by hand has its id as its name until it announces its name.
        let told = directory.iter().filter(|(id, names)| names.name != id.to_string());
        let told = told.map(|(id, names)| (*id, names.clone()));
        self.names.lock().unwrap_or_else(PoisonError::into_inner).extend(told);
    }

    fn links(&self) -> MutexGuard<'_, BTreeMap<MemberId, Arc<LinkHandle>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
