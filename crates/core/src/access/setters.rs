//! Remembers who set each quota, so that a refusal can name them.

use alloc::collections::BTreeMap;
use tenure_types::{Quota, QuotaSetter, Quotas};

/// Who set each quota of a principal, or each default. A quota without a value has no setter, and neither has one that
/// was set below [`LEVEL_SETTERS`](crate::request::LEVEL_SETTERS).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QuotaSetters(BTreeMap<Quota, QuotaSetter>);

/// What a setter weighs, without the name.
const SETTER_BYTES: u64 = 32;

impl QuotaSetters {
    /// Who set a quota.
    pub fn get(&self, quota: Quota) -> Option<&QuotaSetter> {
        self.0.get(&quota)
    }

    /// All setters, in the order of the quotas.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (Quota, &QuotaSetter)> {
        self.0.iter().map(|(quota, setter)| (*quota, setter))
    }

    /// Adds a setter that was read.
    pub(crate) fn insert(&mut self, quota: Quota, setter: QuotaSetter) {
        self.0.insert(quota, setter);
    }

    /// The setters after the quotas were changed. A quota that keeps its value keeps its setter.
    pub(super) fn after(&self, old: &Quotas, new: &Quotas, setter: Option<&QuotaSetter>) -> Self {
        let setter_of = |quota: Quota| {
            new.get(quota)?;
            if old.get(quota) == new.get(quota) { self.get(quota) } else { setter }
        };
        let all = Quota::ALL.into_iter();
        Self(all.filter_map(|quota| Some((quota, setter_of(quota)?.clone()))).collect())
    }

    pub(super) fn weight(&self) -> u64 {
        let name = |setter: &QuotaSetter| {
            setter.principal.as_ref().map_or(0, |principal| principal.as_bytes().len() as u64)
        };
        self.0.values().map(|setter| SETTER_BYTES + name(setter)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_types::Name;

    #[test]
    fn a_quota_that_keeps_its_value_keeps_its_setter() {
        let setter = |name: &str| QuotaSetter { principal: Name::new(name).ok(), unix_ms: None };
        let quotas = |leases, keys| {
            let mut quotas = Quotas::default();
            quotas.set(Quota::Leases, leases);
            quotas.set(Quota::Keys, keys);
            quotas
        };
        let (none, both) = (quotas(None, None), quotas(Some(5), Some(6)));
        let first = QuotaSetters::default().after(&none, &both, Some(&setter("ana")));
        let second = first.after(&both, &quotas(Some(5), Some(7)), Some(&setter("bob")));
        assert_eq!(second.get(Quota::Leases), Some(&setter("ana")));
        assert_eq!(second.get(Quota::Keys), Some(&setter("bob")));
        assert_eq!(first.after(&both, &none, Some(&setter("bob"))), QuotaSetters::default());
        // A change below the level has no setter, and does not leave the old one.
        assert_eq!(first.after(&both, &quotas(Some(1), Some(6)), None).get(Quota::Leases), None);
    }
}
