//! What does this member's disk hold, and is it the member's own?

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tenure_raft::{Boot, MemberId, Membership};
use tenure_store::{
    Cause, DataDir, Disk, Identity, Log, Options, Presence, Recovered, Reserve, Snapshots,
};
use tenure_types::Epoch;

use crate::error::StartError;
use crate::os;
use crate::pen::Pen;
use tenure_node::directory::{self, Card};
use tenure_node::{Founded, Incarnation, Lineage};

/// The members that a member was given when it joined, beside its data.
const GIVEN: &str = "given";

/// Sizes of what is kept on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) segment_bytes: u32,
    pub(crate) reserve_bytes: u64,
}

/// A data directory that is locked and known to be ours.
pub(crate) struct Home {
    // Held for its lock.
    dir: DataDir,
    disk: Arc<dyn Disk>,
    identity: Identity,
    sizes: Sizes,
}

/// Everything a loop needs of a disk.
pub(crate) struct Opened {
    pub(crate) dir: DataDir,
    pub(crate) pen: Pen,
    pub(crate) snapshots: Snapshots,
    pub(crate) boot: Boot,
    /// The members that it was given when it joined.
    pub(crate) given: Vec<Card>,
}

impl Home {
    /// Locks the directory and reads whose it is. A new one gets an id, drawn once and for ever.
    pub(crate) fn open(path: &Path, sizes: Sizes) -> Result<Self, StartError> {
        let (dir, warnings) = DataDir::open_or_create(path)?;
        for warning in warnings {
            tracing::warn!(problem = %warning, "data directory is open to others");
        }
        let disk = dir.disk();
        let mut identity = match Identity::read(&*disk)? {
            Some(identity) => identity,
            None if has_data(&*disk) => return Err(StartError::Orphan),
            None => {
                Identity { cluster: None, member: draw_id(), starts: 0, epoch: 0, incarnation: 0 }
            }
        };
        identity.starts += 1;
        identity.write(&*disk)?;
        Ok(Self { dir, disk, identity, sizes })
    }

    /// Puts something between the member and its disk.
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

    /// Which life of which cluster the directory is of, if it is of one.
    pub(crate) fn lineage(&self) -> Option<Lineage> {
        let cluster = self.identity.cluster.clone()?;
        let incarnation = Incarnation(self.identity.incarnation);
        Some(Lineage { cluster, epoch: self.machine_epoch(), incarnation })
    }

    /// Lays down the first state of a new cluster, then says that this directory is of it. A crash
    /// in between is repaired by doing it again, perhaps with other cards: a member that says of no
    /// cluster that it belongs to it has never acted on what it laid down.
    pub(crate) fn found(&mut self, founded: &Founded) -> Result<(), StartError> {
        let Founded { cluster, founders, level } = founded;
        self.identity.check_cluster(cluster)?;
        let (mut log, _) = self.open_log(Presence::MayBeNew)?;
        let snapshots = Snapshots::open(self.disk.clone())?;
        let members = Membership::of_voters(founders.iter().map(|card| card.id));
        let machine = directory::first_state(founders, *level, self.machine_epoch());
        tenure_raft::found(&mut log, &snapshots, &machine, &members)?;
        self.belong_to(cluster.clone())
    }

    /// Says that this directory is of a cluster that will send its state. Until it has, the member knows the others
    /// only from what it was given when it joined, also after a restart.
    pub(crate) fn join(&mut self, lineage: Lineage, given: &[Card]) -> Result<(), StartError> {
        // The log is there before the identity says that it must be.
        drop(self.open_log(Presence::MayBeNew)?);
        let path = self.dir.path().join(GIVEN);
        fs::write(&path, directory::cards_text(given))
            .and_then(|()| fs::File::open(&path)?.sync_all())
            .map_err(|source| StartError::System { doing: "keep the list of members", source })?;
        self.enter_life(lineage)
    }

    /// The members that it was given when it joined.
    pub(crate) fn given(&self) -> Vec<Card> {
        let text = fs::read_to_string(self.dir.path().join(GIVEN)).unwrap_or_default();
        directory::parse_cards(&text)
    }

    /// Lays down the first state of another life of a cluster, with one member alone in it, in a
    /// directory that is empty. Whose it is, is said last: before that, nothing starts from it.
    pub(crate) fn lay_down(
        dir: DataDir,
        sizes: Sizes,
        member: MemberId,
        lineage: Lineage,
        machine: &tenure_core::Machine,
    ) -> Result<(), StartError> {
        let identity =
            Identity { cluster: None, member: member.get(), starts: 0, epoch: 0, incarnation: 0 };
        let disk = dir.disk();
        let mut home = Self { dir, disk, identity, sizes };
        let (mut log, _) = home.open_log(Presence::MayBeNew)?;
        let snapshots = Snapshots::open(home.disk.clone())?;
        let members = Membership::of_voters([member]);
        tenure_raft::found(&mut log, &snapshots, machine, &members)?;
        home.enter_life(lineage)
    }

    /// A member id that was never used.
    pub(crate) fn draw_member() -> MemberId {
        member_id(draw_id())
    }

    fn enter_life(&mut self, lineage: Lineage) -> Result<(), StartError> {
        self.identity.epoch = u64::from(lineage.epoch.get());
        self.identity.incarnation = lineage.incarnation.0;
        self.belong_to(lineage.cluster)
    }

    /// Reads what the member starts from, if its rules are among those known.
    pub(crate) fn load(self, level_known: u16) -> Result<Opened, StartError> {
        let (mut log, recovered) = self.open_log(Presence::MustExist)?;
        match recovered.cut {
            Some(cut) if cut.cause == Cause::Torn => {
                tracing::info!(%cut, "cut an unfinished write from the log");
            }
            Some(cut) => {
                tracing::warn!(%cut, "cut a damaged batch from the log; the other members know what it held");
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
            boot.given = given.iter().map(|card| card.id).collect();
        }
        boot.machine.reseed_names(os::random());
        let reserve = Reserve::open(self.disk.clone(), self.sizes.reserve_bytes)
            .map_err(|source| StartError::System { doing: "open the reserve", source })?;
        let pen = Pen::new(log, reserve, self.sizes.segment_bytes);
        Ok(Opened { dir: self.dir, pen, snapshots, boot, given })
    }

    fn open_log(&self, presence: Presence) -> Result<(Log, Recovered), StartError> {
        let segment_bytes = self.sizes.segment_bytes;
        let options = Options { segment_bytes, salt: os::random(), presence, ..Options::default() };
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

/// Whether a log or a snapshot is there. A directory that cannot be listed is not there.
fn has_data(disk: &dyn Disk) -> bool {
    ["log", "snapshots"].iter().any(|dir| disk.list(dir).is_ok_and(|names| !names.is_empty()))
}

fn member_id(number: u64) -> MemberId {
    MemberId::new(number).unwrap_or_else(|| unreachable!("ids are drawn above 0"))
}

fn draw_id() -> u64 {
    loop {
        // Chance has no reason to give zero, and no promise not to.
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
    use tenure_node::directory::Names;

    const SIZES: Sizes = Sizes { segment_bytes: 64 * 1024, reserve_bytes: 4096 };

    fn founded(founders: &[Card]) -> Founded {
        let (cluster, founders) = (directory::cluster_id(founders), founders.to_vec());
        Founded { cluster, founders, level: LEVEL_MAX }
    }

    fn card(id: MemberId) -> Card {
        let preference = tenure_node::directory::Preference::default();
        let names =
            Names { name: "a".into(), members: "-".into(), clients: "-".into(), preference };
        Card { id, names }
    }

    #[test]
    fn a_directory_keeps_its_member_and_its_cluster() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("data");
        let mut home = Home::open(&path, SIZES).unwrap();
        let id = home.id();
        assert_eq!(home.cluster(), None);
        let founders = [card(id)];
        home.found(&founded(&founders)).unwrap();
        drop(home);
        let mut home = Home::open(&path, SIZES).unwrap();
        assert_eq!((home.id(), home.cluster()), (id, Some(&*directory::cluster_id(&founders))));
        let other = [card(MemberId::new(7).unwrap())];
        assert!(matches!(home.found(&founded(&other)), Err(StartError::Identity(_))));
        let opened = home.load(LEVEL_MAX).unwrap();
        assert_eq!(opened.boot.applied, FIRST);
        assert_eq!(directory::founders(&opened.boot.machine), founders);
    }

    #[test]
    fn a_founding_that_was_cut_short_is_done_again_with_what_holds_then() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("data");
        let mut home = Home::open(&path, SIZES).unwrap();
        let id = home.id();
        home.found(&founded(&[card(id), card(MemberId::new(7).unwrap())])).unwrap();
        // As if the process had died before the directory said which cluster it is of.
        home.identity.cluster = None;
        home.identity.write(&*home.disk).unwrap();
        drop(home);
        let mut home = Home::open(&path, SIZES).unwrap();
        let founders = [card(id), card(MemberId::new(8).unwrap())];
        home.found(&founded(&founders)).unwrap();
        let opened = home.load(LEVEL_MAX).unwrap();
        assert_eq!(opened.boot.applied, FIRST);
        assert_eq!(directory::founders(&opened.boot.machine), founders);
    }

    #[test]
    fn data_without_an_identity_and_an_identity_without_a_log_are_refused() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("data");
        let mut home = Home::open(&path, SIZES).unwrap();
        let founders = [card(home.id())];
        home.found(&founded(&founders)).unwrap();
        drop(home);
        std::fs::rename(path.join("identity.toml"), path.join("aside")).unwrap();
        assert!(matches!(Home::open(&path, SIZES), Err(StartError::Orphan)));
        std::fs::rename(path.join("aside"), path.join("identity.toml")).unwrap();
        std::fs::remove_dir_all(path.join("log")).unwrap();
        let home = Home::open(&path, SIZES).unwrap();
        assert!(matches!(home.load(LEVEL_MAX), Err(StartError::Log(_))));
    }
}
