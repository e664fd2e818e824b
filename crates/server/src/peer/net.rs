//! Which links does a member have, and who may begin one?

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_raft::{Input, MemberId, Membership};

use super::control::{Control, Hello, connect};
use super::forward::Forwards;
use super::frame::Frame;
use super::link::{Dialled, Link};
use crate::book::{Address, Names};
use crate::member::{Event, Member};
use crate::os;
use crate::pen::spawn;
use crate::say;

/// Pauses between two attempts to reach a member, before jitter.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Complaints remembered, so that each is said once.
const SAID_MAX: usize = 1_000;

/// The links of one member.
pub(crate) struct Net {
    /// Up to which level this member knows the machine's rules.
    pub(super) level: u16,
    pub(super) member: Member,
    pub(crate) forwards: Forwards,
    links: Mutex<BTreeMap<MemberId, Arc<Link>>>,
    said: Mutex<BTreeSet<String>>,
    /// To whom a snapshot is on its way.
    pub(super) sending: Mutex<BTreeSet<MemberId>>,
    /// One snapshot arrives at a time.
    pub(super) receiving: Mutex<()>,
    closed: AtomicBool,
}

impl Net {
    pub(crate) fn new(level: u16, member: Member) -> Arc<Self> {
        Arc::new(Self {
            level,
            member,
            forwards: Forwards::default(),
            links: Mutex::default(),
            said: Mutex::default(),
            sending: Mutex::default(),
            receiving: Mutex::default(),
            closed: AtomicBool::new(false),
        })
    }

    /// Hands frames to a link; tells whether all of them are on their way.
    pub(crate) fn send(&self, to: MemberId, frames: Vec<Frame>) -> bool {
        let link = self.links().get(&to).cloned();
        link.is_some_and(|link| link.push(frames))
    }

    /// Learns who the members are and where they live.
    pub(crate) fn learn(self: &Arc<Self>, book: &BTreeMap<MemberId, Names>, members: &Membership) {
        let all = members.all();
        let me = self.member.id();
        for id in all.iter().chain(book.keys()).filter(|id| **id != me) {
            // Before its first snapshot a member knows the others only from the book it was given.
            let wanted = all.contains(id) || all.is_empty();
            let address = book.get(id).map(|names| names.members.clone());
            if wanted {
                self.link(*id).learn(address, true);
            }
        }
        for (id, link) in &*self.links() {
            if !all.is_empty() && !all.contains(id) {
                link.learn(None, false);
            }
        }
    }

    /// Whether there is a connection to a member.
    pub(crate) fn is_linked(&self, id: MemberId) -> bool {
        self.links().get(&id).is_some_and(|link| link.is_connected())
    }

    /// Where a member lives, as far as this one knows.
    pub(crate) fn address(&self, id: MemberId) -> Option<Address> {
        self.links().get(&id).and_then(|link| link.address())
    }

    /// What a connection from here begins with.
    pub(super) fn hello(&self, to: MemberId) -> Hello {
        let lineage = self.member.lineage().clone();
        Hello { lineage, from: self.member.id(), to, level: self.level }
    }

    /// Why a connection that begins so must not go on. It is said once for each of its kind.
    pub(super) fn objection(&self, hello: &Hello) -> Option<String> {
        let why = hello.objection(self.member.lineage(), self.member.id())?;
        self.say_once("a connection was refused", hello.from, &why);
        Some(why)
    }

    /// Carries messages over a connection that another member has begun.
    pub(super) fn accept(self: &Arc<Self>, hello: &Hello, stream: TcpStream) -> io::Result<()> {
        self.hear_level(hello);
        self.link(hello.from).serve(stream, Dialled::There, self)
    }

    /// What the other end knows can change only with its process, and so with its connection.
    fn hear_level(&self, hello: &Hello) {
        let (member, level) = (hello.from, hello.level);
        self.member.tell(Event::Input(Input::Knows { member, level }));
    }

    /// Ends every link.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.links().values().for_each(|link| link.close());
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn say_once(&self, message: &str, member: MemberId, why: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() < SAID_MAX && said.insert(format!("{message} {member} {why}")) {
            say::warn(message, &[("member", &member), ("why", &why)]);
        }
    }

    fn link(self: &Arc<Self>, id: MemberId) -> Arc<Link> {
        let mut links = self.links();
        let link = links.entry(id).or_insert_with(|| {
            let link = Arc::new(Link::new(id));
            let (net, kept) = (self.clone(), link.clone());
            spawn("tenure-link", move || net.keep(&kept));
            link
        });
        if self.is_closed() {
            link.close();
        }
        link.clone()
    }

    /// Dials whenever this end has to, until the link is closed.
    fn keep(self: &Arc<Self>, link: &Arc<Link>) {
        let mut pause = PAUSE_MIN;
        while let Some(address) = link.wait_to_dial(self.member.id()) {
            match self.dial(link, &address) {
                Ok(()) => pause = PAUSE_MIN,
                Err(error) => {
                    self.say_once("cannot reach a member", link.id, &error.to_string());
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
            link.pause(os::jittered(pause));
        }
    }

    fn dial(self: &Arc<Self>, link: &Arc<Link>, address: &str) -> io::Result<()> {
        let mut stream = connect(address)?;
        Control::Hello(self.hello(link.id)).write(&mut stream)?;
        match Control::read(&mut stream)? {
            Control::Hello(hello) => {
                if let Some(why) = self.objection(&hello) {
                    return Err(io::Error::other(why));
                }
                self.hear_level(&hello);
                // How it ends says nothing that the next attempt would not.
                let _ = link.serve(stream, Dialled::Here, self);
                Ok(())
            }
            Control::Refused(why) => Err(io::Error::other(why)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn links(&self) -> MutexGuard<'_, BTreeMap<MemberId, Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
