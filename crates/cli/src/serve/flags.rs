//! Reads the settings of a member from the flags of its command line.

use super::ServeFlags;
use super::config::INVITATION;

/// Each setting that a flag gives: its name in the file, its value, the flag.
pub(super) fn from_flags(flags: &ServeFlags) -> Vec<(&'static str, String, &'static str)> {
    let join = |list: &Option<Vec<String>>| list.as_ref().map(|list| list.join(","));
    let values = [
        ("member.name", flags.name.clone(), "--name"),
        ("member.data", flags.data.clone(), "--data"),
        ("member.preference", flags.preference.clone(), "--preference"),
        ("member.snapshot_entries", flags.snapshot_entries.clone(), "--snapshot-entries"),
        ("member.archive_bytes", flags.archive_bytes.clone(), "--archive-bytes"),
        ("member.archive_hours", flags.archive_hours.clone(), "--archive-hours"),
        ("listen.clients", flags.clients.clone(), "--clients"),
        ("listen.members", flags.members.clone(), "--members"),
        ("listen.health", flags.health.clone(), "--health"),
        ("listen.advertise_clients", flags.advertise_clients.clone(), "--advertise-clients"),
        ("listen.advertise_members", flags.advertise_members.clone(), "--advertise-members"),
        ("listen.hosts", join(&flags.hosts), "--hosts"),
        ("listen.allowed_origins", join(&flags.allowed_origins), "--allowed-origins"),
        ("listen.console", flags.console.clone(), "--console"),
        ("listen.insecure", flags.insecure.then(|| "true".to_owned()), "--insecure"),
        (
            "listen.require_identity",
            flags.require_identity.then(|| "true".to_owned()),
            "--require-identity",
        ),
        ("cluster.bootstrap", join(&flags.bootstrap), "--bootstrap"),
        ("cluster.join", join(&flags.join), "--join"),
        (INVITATION, flags.invitation.clone(), "--invitation"),
        ("cluster.invitation_file", flags.invitation_file.clone(), "--invitation-file"),
        ("tls.cert", flags.tls_cert.clone(), "--tls-cert"),
        ("tls.key", flags.tls_key.clone(), "--tls-key"),
        ("tls.member_ca", flags.tls_member_ca.clone(), "--tls-member-ca"),
        ("tls.client_ca", flags.tls_client_ca.clone(), "--tls-client-ca"),
        ("tls.issuer_ca", flags.tls_issuer_ca.clone(), "--tls-issuer-ca"),
        ("log.level", flags.log_level.clone(), "--log-level"),
        ("log.slow_ms", flags.log_slow_ms.clone(), "--log-slow-ms"),
        ("log.audit_file", flags.audit_file.clone(), "--audit-file"),
        ("traces.otlp_ca", flags.otlp_ca.clone(), "--otlp-ca"),
        ("traces.otlp_endpoint", flags.otlp_endpoint.clone(), "--otlp-endpoint"),
        ("traces.ratio", flags.trace_ratio.clone(), "--trace-ratio"),
    ];
    values.into_iter().filter_map(|(name, value, flag)| Some((name, value?, flag))).collect()
}
