//! Reads parts of other members' event archives, and sends them parts of this member's.
//!
//! A question has a connection of its own. The answer is one message of the text protocol and one frame with the
//! events.

use std::io;
use std::sync::Arc;

use tenure_node::{Control, PeerHello};
use tenure_raft::MemberId;
use tenure_types::Revision;

use super::control;
use super::frame;
use super::net::Net;
use super::stream::PeerStream;
use super::wire::ANSWER_US;
use crate::archive::{ArchivePart, OtherArchives, PART_BYTES_MAX, RevisionRange};
use crate::os;

impl Net {
    /// Answers what this member's archive has of some revisions. Only one part is read at a time, so other members
    /// cannot keep the disk busy.
    pub(super) fn send_archive(
        &self,
        asked_by: &PeerHello,
        first: Revision,
        before: Revision,
        stream: &mut PeerStream,
    ) -> io::Result<()> {
        let refuse = |stream: &mut PeerStream, why: &str| {
            control::write(stream, &Control::Refused(why.to_owned()))
        };
        let Ok(_reading) = self.reading_archive.try_lock() else {
            return refuse(stream, "another member reads this archive");
        };
        if first >= before {
            return refuse(stream, "no revisions were asked for");
        }
        let part = match self.member.archive().part(RevisionRange { from: first, next: before }) {
            Ok(part) => part,
            Err(error) => return refuse(stream, &format!("cannot read the archive: {error}")),
        };
        let answer = Control::Archived(self.hello(asked_by.from), part.range().next);
        stream.limit(Some(os::now_us() + ANSWER_US))?;
        control::write(stream, &answer)?;
        frame::write(stream, &part.encode())
    }
}

impl OtherArchives for Arc<Net> {
    fn members(&self) -> Vec<MemberId> {
        self.others()
    }

    fn ask(&self, member: MemberId, range: RevisionRange) -> io::Result<ArchivePart> {
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let nowhere = || io::Error::new(io::ErrorKind::NotFound, "its address is not known");
        let address = self.address(member).ok_or_else(nowhere)?;
        let mut stream = self.wire.dial(&address, self.name(member).as_deref())?;
        let question = Control::Archive(self.hello(member), range.from, range.next);
        control::write(&mut stream, &question)?;
        let next = match control::read(&mut stream)? {
            Control::Archived(hello, _) if hello.from != member => {
                return Err(wrong("another member answered"));
            }
            Control::Archived(hello, next) => match self.objection(&hello, &stream) {
                Some(why) => return Err(io::Error::other(why)),
                None => next,
            },
            Control::Refused(why) => return Err(io::Error::other(why)),
            _ => return Err(wrong("not the answer to a question about the archive")),
        };
        stream.limit(Some(os::now_us() + ANSWER_US))?;
        let bytes = frame::read(&mut stream, PART_BYTES_MAX)?;
        if next < range.from || next > range.next {
            return Err(wrong("other revisions than those asked for"));
        }
        let part = ArchivePart::decode(RevisionRange { from: range.from, next }, &bytes);
        part.ok_or_else(|| wrong("the events do not fit the revisions asked for"))
    }
}
