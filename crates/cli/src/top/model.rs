//! Holds the current state of the cluster and its rates of change.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tenure::RawBatch as Batch;
use tenure_server::os;
use tenure_wire::v1;

use super::gaps::HandoverGaps;
use crate::cluster::each;
use crate::connection_args::ConnectedCluster;
use crate::failure::CliError;
use crate::inspect;
use crate::output;

/// The window of the rates, in microseconds.
const WINDOW_US: u64 = 5_000_000;
/// The most locks that are fetched.
const LOCKS: u32 = 1_000;

/// The order of the locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sort {
    Waiting,
    Rate,
    Name,
}

/// A lock, how often it is granted, and the median time of a hand-over.
#[derive(Clone)]
pub(super) struct LockRow {
    pub(super) view: v1::LockView,
    pub(super) grants_per_s: f64,
    pub(super) gap: Option<Duration>,
}

/// Everything on the screen.
pub(super) struct TopModel {
    prefix: String,
    pub(super) filter: String,
    pub(super) sort: Sort,
    status: v1::StatusResponse,
    locks: Vec<v1::LockView>,
    /// The recent grants: when, and of which lock.
    grants: VecDeque<(u64, String)>,
    gaps: HandoverGaps,
    began_us: u64,
    pub(super) last: String,
    pub(super) at: usize,
}

impl TopModel {
    pub(super) fn new(prefix: String) -> Self {
        Self {
            prefix,
            filter: String::new(),
            sort: Sort::Waiting,
            status: v1::StatusResponse::default(),
            locks: Vec::new(),
            grants: VecDeque::new(),
            gaps: HandoverGaps::default(),
            began_us: os::now_us(),
            last: "none yet".to_owned(),
            at: 0,
        }
    }

    /// Fetches the current state.
    pub(super) async fn fetch(&mut self, cluster: &ConnectedCluster) -> Result<(), CliError> {
        self.status = cluster.client.status_raw().await?;
        each::by_name(&mut self.status);
        self.locks = inspect::page(cluster, &self.prefix, "", LOCKS).await?.locks;
        let leader = self.status.leader.as_ref().map_or(0, |leader| leader.member_id);
        let mut members = self.status.members.iter().filter_map(|it| it.member.as_ref());
        let leader = members.find(|it| it.member_id == leader).map(|it| it.client_address.as_str());
        self.gaps.fetch(&cluster.place, leader).await;
        self.forget();
        Ok(())
    }

    /// Shows an error in place of the last event.
    pub(super) fn trouble(&mut self, text: &str) {
        self.last = format!("cannot read the cluster: {text}");
    }

    /// Counts the events of a batch.
    pub(super) fn apply_batch(&mut self, batch: &Batch) {
        for event in &batch.events {
            // A key may have the same name as a lock.
            if matches!(event.cause(), v1::Cause::KeyPut | v1::Cause::KeyDeleted) {
                continue;
            }
            let name = event.kv.as_ref().map_or("", |kv| kv.key.as_str());
            if event.cause() == v1::Cause::Granted {
                self.grants.push_back((os::now_us(), name.to_owned()));
            }
            let mut words = format!("{} {}", output::cause(event.cause()), output::clean(name));
            if !event.client.is_empty() {
                words.push_str(&format!(" → {}", output::clean(&event.client)));
            }
            if event.token > 0 {
                words.push_str(&format!(", token {}", event.token));
            }
            self.last = words;
        }
        self.forget();
    }

    fn forget(&mut self) {
        let since_us = os::now_us().saturating_sub(WINDOW_US);
        while self.grants.front().is_some_and(|(at_us, _)| *at_us < since_us) {
            self.grants.pop_front();
        }
    }

    /// The length of the window that the rates cover, in seconds.
    fn seconds(&self) -> f64 {
        let us = os::now_us().saturating_sub(self.began_us).clamp(1, WINDOW_US);
        Duration::from_micros(us).as_secs_f64()
    }

    pub(super) fn grants_per_s(&self) -> f64 {
        self.grants.len() as f64 / self.seconds()
    }

    /// The locks that pass the filter, sorted.
    pub(super) fn rows(&self) -> Vec<LockRow> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, lock) in &self.grants {
            *counts.entry(lock).or_default() += 1;
        }
        let seconds = self.seconds();
        let passing = self.locks.iter().filter(|it| it.lock.contains(&self.filter));
        let mut rows: Vec<LockRow> = passing
            .map(|view| {
                let count = counts.get(view.lock.as_str()).copied().unwrap_or(0);
                let gap = self.gaps.p50(&view.lock);
                LockRow { view: view.clone(), grants_per_s: count as f64 / seconds, gap }
            })
            .collect();
        match self.sort {
            Sort::Name => {}
            Sort::Waiting => rows.sort_by_key(|row| std::cmp::Reverse(row.view.waiting)),
            Sort::Rate => rows.sort_by(|a, b| b.grants_per_s.total_cmp(&a.grants_per_s)),
        }
        rows
    }

    pub(super) fn move_up(&mut self) {
        self.at = self.at.saturating_sub(1);
    }

    pub(super) fn move_down(&mut self) {
        self.at = (self.at + 1).min(self.rows().len().saturating_sub(1));
    }

    /// The lock under the cursor.
    pub(super) fn chosen(&self) -> Option<String> {
        let rows = self.rows();
        let at = self.at.min(rows.len().checked_sub(1)?);
        rows.get(at).map(|row| row.view.lock.clone())
    }

    pub(super) fn members(&self) -> &[v1::MemberStatus] {
        &self.status.members
    }

    pub(super) fn up(&self) -> usize {
        self.status.members.iter().filter(|it| it.up).count()
    }

    pub(super) fn leader(&self) -> Option<String> {
        let leader = self.status.leader.as_ref().filter(|it| it.member_id != 0)?;
        Some(output::clean(&leader.name))
    }

    pub(super) fn cluster(&self) -> &str {
        if self.status.cluster.is_empty() { "cluster" } else { &self.status.cluster }
    }

    pub(super) fn revision(&self) -> i64 {
        self.status.header.map_or(0, |header| header.revision)
    }

    pub(super) fn leases(&self) -> u64 {
        self.status.counts.map_or(0, |counts| counts.leases)
    }

    #[cfg(test)]
    pub(super) fn sample(locks: Vec<v1::LockView>) -> Self {
        let leader =
            Some(v1::LeaderHint { member_id: 1, name: "b".to_owned(), ..Default::default() });
        let member = v1::Member { name: "b".to_owned(), role: 3, ..Default::default() };
        let member = v1::MemberStatus { member: Some(member), up: true, ..Default::default() };
        let mut model = Self::new(String::new());
        model.status = v1::StatusResponse { leader, members: vec![member], ..Default::default() };
        model.locks = locks;
        model
    }
}
