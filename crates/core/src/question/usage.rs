//! Tells how much of the state belongs to a principal.

use tenure_types::Quota;

use crate::machine::Machine;

impl Machine {
    /// How much the leases and keys of a principal use of what a quota bounds. Quotas that each member counts for
    /// itself are no part of the state, and 0 here.
    pub fn used(&self, principal: &str, quota: Quota) -> u64 {
        let owner = self.owners.find(principal.as_bytes()).and_then(|id| self.owners.get(id));
        owner.map_or(0, |owner| owner.used.of(quota))
    }
}

#[cfg(test)]
mod tests {
    use tenure_types::Epoch;

    use super::*;

    #[test]
    fn a_principal_that_owns_nothing_uses_nothing() {
        let machine = Machine::new(Epoch::default());
        for quota in Quota::ALL {
            assert_eq!(machine.used("ana", quota), 0);
        }
    }
}
