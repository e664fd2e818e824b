//! Shows how full the queues and budgets of a member are, what its process uses, and when its certificates expire.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};

use super::Number;
use crate::member::MemberHandle;
use crate::metrics::{ProcessUse, certificate_expiry};
use crate::tls::ServerTls;

/// The gauges. They are read whenever the metrics are requested.
#[derive(Default)]
pub(super) struct Resources {
    inbox: Number,
    inbox_max: Number,
    queued: Number,
    queued_sources: Number,
    commands_max: Number,
    bytes: Number,
    bytes_max: Number,
    outbox: Number,
    mail: Number,
    resident: Number,
    files: Number,
    files_max: Number,
    certificates: Family<OfCertificate, Number>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfCertificate {
    r#use: &'static str,
}

impl Resources {
    pub(super) fn register(&self, to: &mut Registry) {
        let help = "Events that wait for the member's loop";
        to.register("inbox_events", help, self.inbox.clone());
        to.register("inbox_events_max", "The most that may wait", self.inbox_max.clone());
        let help = "Commands and reads that wait for their turn among other sources";
        to.register("queued_requests", help, self.queued.clone());
        let help = "Principals and addresses whose commands and reads wait for their turn";
        to.register("queued_sources", help, self.queued_sources.clone());
        let help = "The most commands that may be on their way";
        to.register("commands_in_flight_max", help, self.commands_max.clone());
        let help = "Bytes of commands on their way";
        to.register("command_bytes_in_flight", help, self.bytes.clone());
        let help = "The most bytes of commands that may be on their way";
        to.register("command_bytes_in_flight_max", help, self.bytes_max.clone());
        let help = "Answers and notices that wait to be given to sessions";
        to.register("outbox_messages", help, self.outbox.clone());
        let help = "Answers and notices in the mailboxes of all sessions";
        to.register("mailbox_messages", help, self.mail.clone());
        let help = "Memory of the process that is in RAM";
        to.register("process_resident_bytes", help, self.resident.clone());
        let help = "Open files of the process, sockets among them";
        to.register("process_open_files", help, self.files.clone());
        let help = "The most files that the process may open";
        to.register("process_open_files_max", help, self.files_max.clone());
        let help = "When a certificate expires, in seconds since 1970, by what it is used for";
        to.register_with_unit(
            "certificate_expiry_timestamp",
            help,
            Unit::Seconds,
            self.certificates.clone(),
        );
    }

    pub(super) fn fill(&self, member: &MemberHandle) {
        let (meters, admission) = (member.meters(), member.admission());
        self.inbox.set(meters.inbox_len());
        self.inbox_max.set(tenure_node::INBOX_MAX as u64);
        let (sources, queued) = member.inbox().waiting();
        self.queued.set(queued as u64);
        self.queued_sources.set(sources as u64);
        let (commands_max, bytes_max) = admission.limits();
        self.commands_max.set(commands_max);
        self.bytes.set(admission.bytes());
        self.bytes_max.set(bytes_max);
        let (outbox, mail) = member.outbox().waiting();
        self.outbox.set(outbox);
        self.mail.set(mail);
        let used = ProcessUse::read();
        self.resident.set(used.resident_bytes.unwrap_or_default());
        self.files.set(used.open_files.unwrap_or_default());
        self.files_max.set(used.open_files_max.unwrap_or_default());
        self.certificates.clear();
        let certificates = meters.certificates().into_iter();
        for (used, path) in certificates.flat_map(ServerTls::certificate_files) {
            if let Some(expiry) = certificate_expiry(path) {
                self.certificates.get_or_create(&OfCertificate { r#use: used }).set(expiry);
            }
        }
    }
}
