//! Opens a member's data directory, checks that it belongs to the member and the cluster, and loads its state.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tenure_raft::{Boot, MemberId, Membership};
use tenure_store::{
    CutCause, DataDir, DirectoryIdentity, Disk, Log, LogOptions, Presence, Recovered, Reserve,
    Snapshots,
};
use tenure_types::Epoch;

use crate::error::StartError;
use crate::log_writer::LogWriter;
use crate::os;
use tenure_node::directory::{self, MemberRecord};
use tenure_node::{BootstrapResult, Incarnation, Lineage};

/// The file with the members that this member was given when it joined.
const GIVEN: &str = "given";

/// The sizes of the files on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileSizes {
    pub(crate) segment_bytes: u32,
    pub(crate) reserve_bytes: u64,
}

/// A data directory that is locked and known to belong to this member.
pub(crate) struct DataHome {
    // Held for its lock.
    dir: DataDir,
    disk: Arc<dyn Disk>,
    identity: DirectoryIdentity,
    sizes: FileSizes,
}

/// Everything that the event loop needs from the disk.
pub(crate) struct Opened {
    pub(crate) dir: DataDir,
    pub(crate) log_writer: LogWriter,
    pub(crate) snapshots: Snapshots,
    pub(crate) boot: Boot,
    /// The members that this member was given when it joined.
    pub(crate) given: Vec<MemberRecord>,
}

impl DataHome {
    /// Locks the directory and reads its identity. A new directory gets a member id, which is drawn once and never
    /// changes.
    pub(crate) fn open(path: &Path, sizes: FileSizes) -> Result<Self, StartError> {
        let (dir, warnings) = DataDir::open_or_create(path)?;
        for warning in warnings {
            tracing::warn!(problem = %warning, "other users can access the data directory");
        }
        let disk = dir.disk();
        let mut identity = match DirectoryIdentity::read(&*disk)? {
            Some(identity) => identity,
            None if has_data(&*disk) => return Err(StartError::Orphan),
            None => DirectoryIdentity {
                cluster: None,
                member: draw_id(),
                starts: 0,
                epoch: 0,
                incarnation: 0,
            },
        };
        identity.starts += 1;
        identity.write(&*disk)?;
        Ok(Self { dir, disk, identity, sizes })
    }

    /// Wraps the member's disk.
    pub(crate) fn through(mut self, between: fn(Arc<dyn Disk>) -> Arc<dyn Disk>) -> Self {
        self.disk = between(self.disk);
        self
    }

    pub(crate) fn id(&self) -> MemberId {
        member_id(self.identity.member)
    }

    pub(crate) fn cluster(&self) -> Option<&str> {
        self.identity.cluster.as_deref()
    }

    /// The cluster that the directory belongs to, and its epoch and incarnation; none if it belongs to no cluster yet.
    pub(crate) fn lineage(&self) -> Option<Lineage> {
        let cluster = self.identity.cluster.clone()?;
        let incarnation = Incarnation(self.identity.incarnation);
        Some(Lineage { cluster, epoch: self.machine_epoch(), incarnation })
    }

    /// Writes the first state of a new cluster, then records that this directory belongs to it. A crash in between is
    /// repaired by another bootstrap, perhaps with other entries in the member directory: a member whose identity names
    /// no cluster has never acted on the state it wrote.
    pub(crate) fn bootstrap(&mut self, agreed: &BootstrapResult) -> Result<(), StartError> {
        let BootstrapResult { cluster, initial_members, level } = agreed;
        self.identity.check_cluster(cluster)?;
        let (mut log, _) = self.open_log(Presence::MayBeNew)?;
        let snapshots = Snapshots::open(self.disk.clone())?;
        let members = Membership::of_voters(initial_members.iter().map(|record| record.id));
        let machine = directory::first_state(initial_members, *level, self.machine_epoch());
        tenure_raft::bootstrap(&mut log, &snapshots, &machine, &members)?;
        self.belong_to(cluster.clone())
    }

    /// Records that this directory belongs to a cluster that will send its state. Until the state arrives, also after a
    /// restart, the member knows the others only from what it was given when it joined.
    pub(crate) fn join(
        &mut self,
        lineage: Lineage,
        given: &[MemberRecord],
    ) -> Result<(), StartError> {
        // Create the log before the identity says that it must exist.
        drop(self.open_log(Presence::MayBeNew)?);
        let path = self.dir.path().join(GIVEN);
        fs::write(&path, directory::records_text(given))
            .and_then(|()| fs::File::open(&path)?.sync_all())
            .map_err(|source| StartError::System { doing: "keep the list of members", source })?;
        self.enter_incarnation(lineage)
    }

    /// The members that this member was given when it joined.
    pub(crate) fn given(&self) -> Vec<MemberRecord> {
        let text = fs::read_to_string(self.dir.path().join(GIVEN)).unwrap_or_default();
        directory::parse_records(&text)
    }

    /// Writes the first state of a restored cluster, with one member, into an empty directory. The identity is written
    /// last: before that, no member starts from the directory.
    pub(crate) fn lay_down(
        dir: DataDir,
        sizes: FileSizes,
        member: MemberId,
        lineage: Lineage,
        machine: &tenure_core::Machine,
    ) -> Result<(), StartError> {
        let identity = DirectoryIdentity {
            cluster: None,
            member: member.get(),
            starts: 0,
            epoch: 0,
            incarnation: 0,
        };
        let disk = dir.disk();
        let mut home = Self { dir, disk, identity, sizes };
        let (mut log, _) = home.open_log(Presence::MayBeNew)?;
        let snapshots = Snapshots::open(home.disk.clone())?;
        let members = Membership::of_voters([member]);
        tenure_raft::bootstrap(&mut log, &snapshots, machine, &members)?;
        home.enter_incarnation(lineage)
    }

    /// Draws a member id that was never used.
    pub(crate) fn draw_member() -> MemberId {
        member_id(draw_id())
    }

    fn enter_incarnation(&mut self, lineage: Lineage) -> Result<(), StartError> {
        self.identity.epoch = u64::from(lineage.epoch.get());
        self.identity.incarnation = lineage.incarnation.0;
        self.belong_to(lineage.cluster)
    }

    /// Reads the state that the member starts from. Fails if its rules have a level above `level_known`.
    pub(crate) fn load(self, level_known: u16) -> Result<Opened, StartError> {
        let (mut log, recovered) = self.open_log(Presence::MustExist)?;
        match recovered.cut {
            Some(cut) if cut.cause == CutCause::Torn => {
                tracing::info!(%cut, "cut an unfinished write from the log");
            }
            Some(cut) => {
                tracing::warn!(%cut, "cut a damaged batch from the log; other members detect whether it was lost");
            }
            None => {}
        }
        let given = self.given();
        let snapshots = Snapshots::open(self.disk.clone())?;
        let mut joining = tenure_core::Machine::new(self.machine_epoch());
        joining.know_level(level_known);
        let mut boot = tenure_raft::load(&mut log, &snapshots, joining)?;
        boot.cut = recovered.cut;
        if boot.members.all().is_empty() {
            boot.given = given.iter().map(|record| record.id).collect();
        }
        boot.machine.reseed_names(os::random());
        let reserve = Reserve::open(self.disk.clone(), self.sizes.reserve_bytes)
            .map_err(|source| StartError::System { doing: "open the reserve", source })?;
        let log_writer = LogWriter::new(log, reserve, self.sizes.segment_bytes);
        Ok(Opened { dir: self.dir, log_writer, snapshots, boot, given })
    }

    fn open_log(&self, presence: Presence) -> Result<(Log, Recovered), StartError> {
        let segment_bytes = self.sizes.segment_bytes;
        let options =
            LogOptions { segment_bytes, salt: os::random(), presence, ..LogOptions::default() };
        Ok(Log::open(self.disk.clone(), options)?)
    }

    fn belong_to(&mut self, cluster: String) -> Result<(), StartError> {
        self.identity.check_cluster(&cluster)?;
        self.identity.cluster = Some(cluster);
        Ok(self.identity.write(&*self.disk)?)
    }

    fn machine_epoch(&self) -> Epoch {
        u16::try_from(self.identity.epoch).ok().and_then(Epoch::new).unwrap_or(Epoch::MAX)
    }
}

/// Whether a log or a snapshot exists. A directory that cannot be listed counts as absent.
fn has_data(disk: &dyn Disk) -> bool {
    ["log", "snapshots"].iter().any(|dir| disk.list(dir).is_ok_and(|names| !names.is_empty()))
}

fn member_id(number: u64) -> MemberId {
    MemberId::new(number).unwrap_or_else(|| unreachable!("ids are drawn above 0"))
}

fn draw_id() -> u64 {
    loop {
        // The random number may be zero, which is not an id.
        if let id @ 1.. = os::random() {
            return id;
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::LEVEL_MAX;
    use tenure_raft::FIRST;

    use super::*;
    use tenure_node::directory::MemberNames;

    const SIZES: FileSizes = FileSizes { segment_bytes: 64 * 1024, reserve_bytes: 4096 };

    fn agreed(initial_members: &[MemberRecord]) -> BootstrapResult {
        let (cluster, initial_members) =
            (directory::cluster_id(initial_members), initial_members.to_vec());
        BootstrapResult { cluster, initial_members, level: LEVEL_MAX }
    }

    fn record(id: MemberId) -> MemberRecord {
        let preference = tenure_node::directory::Preference::default();
        let names =
            MemberNames { name: "a".into(), members: "-".into(), clients: "-".into(), preference };
        MemberRecord { id, names }
    }

    #[test]
    fn a_directory_keeps_its_member_and_its_cluster() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("data");
        let mut home = DataHome::open(&path, SIZES).unwrap();
        let id = home.id();
        assert_eq!(home.cluster(), None);
        let initial_members = [record(id)];
        home.bootstrap(&agreed(&initial_members)).unwrap();
        drop(home);
        let mut home = DataHome::open(&path, SIZES).unwrap();
        assert_eq!(
            (home.id(), home.cluster()),
            (id, Some(&*directory::cluster_id(&initial_members)))
        );
        let other = [record(MemberId::new(7).unwrap())];
        assert!(matches!(home.bootstrap(&agreed(&other)), Err(StartError::Identity(_))));
        let opened = home.load(LEVEL_MAX).unwrap();
        assert_eq!(opened.boot.applied, FIRST);
        assert_eq!(directory::initial_members(&opened.boot.machine), initial_members);
    }

    #[test]
    fn an_interrupted_bootstrap_is_repeated_with_the_records_of_then() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("data");
        let mut home = DataHome::open(&path, SIZES).unwrap();
        let id = home.id();
        home.bootstrap(&agreed(&[record(id), record(MemberId::new(7).unwrap())])).unwrap();
        // The state after a crash before the directory named its cluster.
        home.identity.cluster = None;
        home.identity.write(&*home.disk).unwrap();
        drop(home);
        let mut home = DataHome::open(&path, SIZES).unwrap();
        let initial_members = [record(id), record(MemberId::new(8).unwrap())];
        home.bootstrap(&agreed(&initial_members)).unwrap();
        let opened = home.load(LEVEL_MAX).unwrap();
        assert_eq!(opened.boot.applied, FIRST);
        assert_eq!(directory::initial_members(&opened.boot.machine), initial_members);
    }

    #[test]
    fn data_without_an_identity_and_an_identity_without_a_log_are_refused() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("data");
        let mut home = DataHome::open(&path, SIZES).unwrap();
        let initial_members = [record(home.id())];
        home.bootstrap(&agreed(&initial_members)).unwrap();
        drop(home);
        std::fs::rename(path.join("identity.toml"), path.join("aside")).unwrap();
        assert!(matches!(DataHome::open(&path, SIZES), Err(StartError::Orphan)));
        std::fs::rename(path.join("aside"), path.join("identity.toml")).unwrap();
        std::fs::remove_dir_all(path.join("log")).unwrap();
        let home = DataHome::open(&path, SIZES).unwrap();
        assert!(matches!(home.load(LEVEL_MAX), Err(StartError::Log(_))));
    }
}
