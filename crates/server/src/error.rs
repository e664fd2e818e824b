//! Defines the errors that keep a member from starting, with advice for each; formats errors with their causes.

use std::io;
use std::path::PathBuf;

use tenure_raft::{BootError, LoadError};
use tenure_store::{DataDirError, IdentityError, OpenError, SnapshotError};

use crate::tls::TlsError;

/// The reason a member did not start. It granted nothing, and no stored data is lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The data directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DataDirError),
    /// The identity file of the data directory cannot be used, so its member is unknown.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// The snapshots cannot be used.
    #[error(transparent)]
    Snapshots(#[from] SnapshotError),
    /// The state cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The log and the snapshot do not fit together.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// The member cannot listen on an address.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: String,
        /// The flag that sets the address.
        flag: &'static str,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// Other machines can reach the address, and no TLS protects it.
    #[error("{address} can be reached from other machines, and nothing here is encrypted")]
    Exposed {
        /// The address.
        address: String,
    },
    /// Other machines can reach the address, TLS protects it, and every caller would be served.
    #[error(
        "{address} can be reached from other machines, and callers need not identify themselves"
    )]
    Unidentified {
        /// The address.
        address: String,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A member that must be alone belongs to a cluster with other members.
    #[error("data directory belongs to cluster {cluster} of {members} members")]
    NotAlone {
        /// The member's cluster.
        cluster: String,
        /// The number of its voters.
        members: usize,
    },
    /// The data belongs to a member with another name.
    #[error("data directory is of member `{found}`, not of `{given}`")]
    OtherName {
        /// The name in the data directory.
        found: String,
        /// The name that the member was started with.
        given: String,
    },
    /// The directory has data but no identity file.
    #[error("data directory has data but no identity.toml")]
    Orphan,
    /// The directory is empty, and no flag says which cluster to bootstrap or join.
    #[error("data directory is empty and neither --bootstrap nor --join is given")]
    NoEntrance,
    /// The list of initial members does not name this member.
    #[error("--bootstrap does not list a member named `{name}`")]
    NotListed {
        /// This member's name.
        name: String,
    },
    /// A name or an address cannot be used.
    #[error("`{word}` cannot be used as a name or address")]
    Word {
        /// The rejected name or address.
        word: String,
    },
    /// The listed members already belong to a cluster that was bootstrapped without this member.
    #[error(
        "{peer} already belongs to cluster {cluster}, which was bootstrapped without this member"
    )]
    BootstrapResult {
        /// The address of the member that reported it.
        peer: String,
        /// That member's cluster.
        cluster: String,
    },
    /// The cluster refused this member.
    #[error("{peer} refused: {reason}")]
    Refused {
        /// The member that refused.
        peer: String,
        /// The reason it gave.
        reason: String,
    },
    /// The list of initial members cannot be used.
    #[error("--bootstrap cannot be used: {problem}")]
    InitialMembers {
        /// The problem with the list.
        problem: String,
    },
    /// The cluster has removed this member.
    #[error("the cluster has removed this member's id, which is never used again")]
    Retired,
    /// The cluster added no member without an invitation, and this member presented none that admits it.
    #[error("the cluster did not add this member: {why}")]
    Uninvited {
        /// The answer of the leader.
        why: String,
    },
    /// The leader refused this member for a reason that another attempt does not remove.
    #[error("the cluster did not add this member: {why}")]
    Rejected {
        /// The answer of the leader.
        why: String,
    },
    /// The file with the invitation cannot be used.
    #[error("cannot read an invitation from {path:?}: {problem}")]
    Invitation {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        problem: String,
    },
    /// No other member answered.
    #[error("no member could be asked: {tried}")]
    Unreachable {
        /// The addresses that were tried, and the results.
        tried: String,
    },
    /// The process was stopped before the member could start.
    #[error("stopped while waiting for the other members")]
    Interrupted,
    /// The operating system refused a request.
    #[error("cannot {doing}")]
    System {
        /// The attempted action.
        doing: &'static str,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl StartError {
    /// Whether durable data was lost or damaged: the member must not serve from this disk.
    pub fn is_corrupt(&self) -> bool {
        match self {
            Self::Log(error) => matches!(error, OpenError::Corrupt { .. } | OpenError::Absent),
            Self::Snapshots(error) => error.is_corrupt(),
            Self::Load(error) => error.is_corrupt(),
            Self::Boot(_) => true,
            Self::Identity(error) => matches!(error, IdentityError::Malformed { .. }),
            // Every variant is listed, here and below, so that a new one gets its answer from its author.
            Self::Directory(_)
            | Self::Listen { .. }
            | Self::Exposed { .. }
            | Self::Unidentified { .. }
            | Self::Tls(_)
            | Self::NotAlone { .. }
            | Self::OtherName { .. }
            | Self::Orphan
            | Self::NoEntrance
            | Self::NotListed { .. }
            | Self::Word { .. }
            | Self::BootstrapResult { .. }
            | Self::Refused { .. }
            | Self::InitialMembers { .. }
            | Self::Retired
            | Self::Uninvited { .. }
            | Self::Rejected { .. }
            | Self::Invitation { .. }
            | Self::Unreachable { .. }
            | Self::Interrupted
            | Self::System { .. } => false,
        }
    }

    /// Whether a change of settings would solve the problem.
    pub fn is_setting(&self) -> bool {
        match self {
            Self::Directory(_)
            | Self::Listen { .. }
            | Self::Exposed { .. }
            | Self::Unidentified { .. }
            | Self::Tls(_)
            | Self::NoEntrance
            | Self::NotListed { .. }
            | Self::InitialMembers { .. }
            | Self::Word { .. }
            | Self::BootstrapResult { .. }
            | Self::Uninvited { .. }
            | Self::Rejected { .. }
            | Self::Invitation { .. }
            | Self::NotAlone { .. }
            | Self::OtherName { .. }
            | Self::Orphan => true,
            Self::Load(error) => error.is_outgrown(),
            Self::Identity(error) => {
                !matches!(error, IdentityError::Io { .. } | IdentityError::Malformed { .. })
            }
            Self::Log(_)
            | Self::Snapshots(_)
            | Self::Boot(_)
            | Self::Refused { .. }
            | Self::Retired
            | Self::Unreachable { .. }
            | Self::Interrupted
            | Self::System { .. } => false,
        }
    }

    /// The next step for the operator, in one line.
    pub fn advice(&self) -> String {
        match self {
            Self::Directory(DataDirError::InUse { .. }) => {
                "stopping the other process, or another directory with --data".into()
            }
            Self::Directory(DataDirError::ReadOnly { .. }) => {
                "mounting it writable, or another directory with --data".into()
            }
            Self::Directory(_) => "another directory with --data".into(),
            Self::Identity(IdentityError::OtherCluster { .. }) => {
                "the directory of this cluster with --data".into()
            }
            Self::Identity(IdentityError::Format { .. })
            | Self::Log(OpenError::Format { .. })
            | Self::Snapshots(SnapshotError::Format { .. })
            | Self::Load(LoadError::Snapshot(SnapshotError::Format { .. })) => {
                "the version of tenure that wrote it, or a later one".into()
            }
            Self::Load(error) if error.is_outgrown() => {
                "the version of tenure that the other members run".into()
            }
            // Only damage is worth giving up the directory. A disk that is full or fails to read may still have it all.
            Self::Identity(_) | Self::Log(_) | Self::Snapshots(_) | Self::Load(_) | Self::Boot(_)
                if self.is_corrupt() => "moving the directory away; then, where other members run, removing \
                 the old member, an empty directory and --join; where none does, `tenure restore BACKUP \
                 --data DIR`"
                .into(),
            Self::OtherName { found, given } => format!(
                "--name {found}, another directory with --data, or --rename to call it \
                 {given} from now on"
            ),
            Self::NotAlone { .. } => {
                "tenure serve for that member, or another directory with --data".into()
            }
            Self::Orphan => "putting its identity.toml back, or an empty directory".into(),
            Self::Listen { flag, source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                format!("stopping what uses it, or another address with {flag}")
            }
            Self::Listen { flag, .. } => format!("an address of this machine with {flag}"),
            Self::Exposed { .. } => {
                "127.0.0.1; certificates with --tls-cert and --tls-key, and for clients --tls-client-ca \
                 or --require-identity; or --insecure if the network is trusted"
                    .into()
            }
            Self::Unidentified { .. } => {
                "--tls-client-ca to demand certificates of clients, --require-identity to refuse \
                 callers without credentials, or --insecure if the network is trusted"
                    .into()
            }
            Self::Tls(error) => error.advice().into(),
            Self::NoEntrance => "--bootstrap with every initial member, as name=address, for a new cluster; \
                                 --join with an invitation for one that exists"
                .into(),
            Self::NotListed { .. } => {
                "--bootstrap with every initial member, this one too, as name=address".into()
            }
            Self::InitialMembers { .. } => "--bootstrap with each initial member once, as name=address".into(),
            Self::Retired => "an empty directory, which draws a new id, and --join".into(),
            Self::Uninvited { .. } | Self::Invitation { .. } => {
                "`tenure cluster invite` at a member of the cluster, and its token with --invitation".into()
            }
            Self::Rejected { .. } => {
                "--name with a name that no member has, --advertise-members with an address that they \
                 can dial; the members so far: `tenure cluster status`"
                    .into()
            }
            Self::Word { .. } => "up to 256 bytes without spaces".into(),
            Self::BootstrapResult { peer, .. } => {
                format!(
                    "--join {peer} instead of --bootstrap, to be added under a new id; if this \
                     member lost its disk, `tenure cluster remove NAME` first"
                )
            }
            Self::Refused { .. } => "the log of that member for the reason".into(),
            Self::Unreachable { .. } => "checking the addresses, and that the members run".into(),
            Self::Interrupted => "starting it again".into(),
            Self::Identity(_)
            | Self::Log(_)
            | Self::Snapshots(_)
            | Self::Load(_)
            | Self::Boot(_)
            | Self::System { .. } => "again once the cause is gone".into(),
        }
    }
}

/// Formats an error and its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use tenure_store::{ReadError, WriteError};

    use super::*;

    #[test]
    fn only_a_damaged_directory_is_to_be_moved_away() {
        let corrupt = |name: &str| SnapshotError::Corrupt { name: name.to_owned(), offset: 0 };
        let failed = || io::Error::other("failed");
        for (error, is_corrupt) in [
            (StartError::Snapshots(corrupt("a")), true),
            (StartError::Load(corrupt("a").into()), true),
            (StartError::Load(ReadError::Corrupt { segment: 1, offset: 0, index: 1 }.into()), true),
            (StartError::Load(ReadError::Io { segment: 1, source: failed() }.into()), false),
            (StartError::Load(WriteError::NoSpace.into()), false),
            (StartError::Load(SnapshotError::NoSpace.into()), false),
        ] {
            assert_eq!(error.is_corrupt(), is_corrupt, "{error}");
            let gives_up = error.advice().starts_with("moving the directory away");
            assert_eq!(gives_up, is_corrupt, "{error}");
        }
    }
}
