//! Decides which packets between members arrive, and when.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::{FaultCounts, MS};

/// The quality of the network, apart from cuts.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkQuality {
    /// Chances out of 1000.
    pub(super) drop: u64,
    pub(super) duplicate: u64,
    pub(super) spike: u64,
    /// The least and the largest usual delay.
    pub(super) delay_us: (u64, u64),
}

/// The network between members.
pub(super) struct SimNetwork {
    pub(super) weather: NetworkQuality,
    /// Directions that carry nothing.
    cut: BTreeSet<(usize, usize)>,
}

impl SimNetwork {
    pub(super) fn new(weather: NetworkQuality) -> Self {
        Self { weather, cut: BTreeSet::new() }
    }

    pub(super) fn heal(&mut self) {
        self.cut.clear();
    }

    pub(super) fn calm(&mut self) {
        self.heal();
        self.weather = NetworkQuality { drop: 0, duplicate: 0, spike: 0, delay_us: (100, 2 * MS) };
    }

    pub(super) fn cut(&mut self, from: usize, to: usize) {
        self.cut.insert((from, to));
    }

    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cut.contains(&(from, to))
    }

    /// A random usual delay.
    pub(super) fn delay_us(&self, rng: &mut Rng) -> u64 {
        rng.u64(self.weather.delay_us.0..=self.weather.delay_us.1)
    }

    /// The delays after which copies of a packet arrive; none if it is lost.
    pub(super) fn send(
        &self,
        from: usize,
        to: usize,
        rng: &mut Rng,
        faults: &mut FaultCounts,
    ) -> Vec<u64> {
        let NetworkQuality { drop, duplicate, spike, delay_us } = self.weather;
        if self.is_cut(from, to) {
            return Vec::new();
        }
        if rng.u64(0..1000) < drop {
            faults.count("drop");
            return Vec::new();
        }
        let copies = if rng.u64(0..1000) < duplicate {
            faults.count("duplicate");
            2
        } else {
            1
        };
        (0..copies)
            .map(|_| {
                if rng.u64(0..1000) < spike {
                    faults.count("delay");
                    rng.u64(delay_us.1..delay_us.1 + 800 * MS)
                } else {
                    rng.u64(delay_us.0..=delay_us.1)
                }
            })
            .collect()
    }
}
