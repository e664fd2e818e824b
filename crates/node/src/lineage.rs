//! Distinguishes a cluster from its restored copies.
//!
//! A cluster keeps its id when it is restored from a backup, so the id alone does not distinguish its histories. The
//! epoch counts the restores, and the incarnation distinguishes two restores of one backup. Members with different
//! lineages must never connect: they have different histories.

use std::fmt;

use tenure_types::Epoch;

/// One history of one cluster: bootstrapped, or restored from a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lineage {
    /// The cluster's id, which never changes.
    pub cluster: String,
    /// The number of restores. Every token and revision begins with it.
    pub epoch: Epoch,
    /// The restore that made it.
    pub incarnation: Incarnation,
}

/// A number drawn by each restore; 0 for a cluster that was bootstrapped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Incarnation(pub u64);

impl Lineage {
    /// Why a peer with this lineage does not belong to this cluster; `None` if it does.
    pub fn objection(&self, theirs: &Lineage) -> Option<String> {
        let Self { cluster, epoch, incarnation } = self;
        if mutant!("lineage_ignored") {
            return None;
        }
        if theirs.cluster != *cluster {
            // The peer may be a stranger, so the message does not contain the id of this cluster.
            return Some(format!("this member is of another cluster than {}", theirs.cluster));
        }
        if theirs.epoch != *epoch {
            let (epoch, other) = (epoch.get(), theirs.epoch.get());
            return Some(format!(
                "the cluster was restored: it is at epoch {epoch} here, not {other}"
            ));
        }
        let other = theirs.incarnation;
        (other != *incarnation).then(|| {
            format!(
                "this is another restore of the cluster: incarnation {incarnation}, not {other}"
            )
        })
    }

    /// Encodes the lineage as lines of the members' protocol.
    pub fn lines(&self) -> [String; 3] {
        let (cluster, epoch) = (&self.cluster, self.epoch.get());
        let incarnation = self.incarnation;
        [
            format!("cluster {cluster}"),
            format!("epoch {epoch}"),
            format!("incarnation {incarnation}"),
        ]
    }

    /// Decodes the lineage from such lines, by name.
    pub fn parse<'a>(field: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        Some(Self {
            cluster: field("cluster")?.to_owned(),
            epoch: Epoch::new(field("epoch")?.parse().ok()?)?,
            incarnation: Incarnation::parse(field("incarnation")?)?,
        })
    }
}

impl Incarnation {
    /// Draws one from the caller's source of randomness.
    pub fn draw(mut random: impl FnMut() -> u64) -> Self {
        loop {
            if let drawn @ 1.. = random() {
                return Self(drawn);
            }
        }
    }

    /// Parses an incarnation in the form in which it is shown.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(text, 16).ok().filter(|_| hex).map(Self)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:016x}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Incarnation({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_life_of_the_same_cluster_is_ours() {
        let epoch = |number| Epoch::new(number).unwrap();
        let ours = Lineage { cluster: "c".into(), epoch: epoch(2), incarnation: Incarnation(7) };
        assert_eq!(ours.objection(&ours.clone()), None);
        let said = |theirs: Lineage| ours.objection(&theirs).unwrap();
        assert!(
            said(Lineage { cluster: "d".into(), ..ours.clone() })
                .contains("of another cluster than d")
        );
        assert!(
            said(Lineage { epoch: epoch(1), ..ours.clone() }).contains("at epoch 2 here, not 1")
        );
        let other = said(Lineage { incarnation: Incarnation(8), ..ours.clone() });
        assert!(other.contains("incarnation 0000000000000007, not 0000000000000008"), "{other}");
        let lines = ours.lines();
        let field = |name: &str| {
            lines
                .iter()
                .filter_map(|line| line.split_once(' '))
                .find(|(n, _)| *n == name)
                .map(|f| f.1)
        };
        assert_eq!(Lineage::parse(field), Some(ours.clone()));
    }
}
