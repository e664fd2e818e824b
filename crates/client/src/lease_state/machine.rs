//! Models the cluster's side of one lease with one lock, for the client's schedule tests.

use tenure_types::Revision;

#[derive(Clone, Debug)]
pub(super) enum RequestSent {
    Grant,
    Renew(u64),
    Holdings,
    Release,
    Confirm,
    Revoke,
}

#[derive(Clone, Debug)]
pub(super) enum ReplySent {
    Granted,
    Renewed { number: u64, lives: bool, changed: Revision },
    Held { revision: Revision, changed: Revision, held: bool },
    Taken,
}

/// The cluster, as far as this lease is concerned. Times are of its own clock.
#[derive(Default)]
pub(super) struct ClusterScript {
    granted: bool,
    deadline: Option<u64>,
    held: bool,
    cooling: Option<u64>,
    revision: u64,
    changed: u64,
    /// When, in real time, the other client was granted the lock.
    pub(super) passed_on: Option<u64>,
}

impl ClusterScript {
    /// Ends what is due, and grants the lock to the other client.
    pub(super) fn pass_on(&mut self, clock: u64, ppm: i64) {
        let due = |deadline: Option<u64>| deadline.filter(|it| *it <= clock);
        if let Some(deadline) = due(self.deadline) {
            self.deadline = None;
            if self.held {
                self.held = false;
                self.passed_on.get_or_insert(unscale(deadline, ppm));
            }
        }
        if let Some(until) = due(self.cooling) {
            self.cooling = None;
            self.passed_on.get_or_insert(unscale(until, ppm));
        }
    }

    /// Answers a request at a moment of real time. A lease that is granted or renewed then has this deadline.
    pub(super) fn serve(
        &mut self,
        said: RequestSent,
        deadline: u64,
        now: u64,
    ) -> Option<ReplySent> {
        match said {
            RequestSent::Grant => {
                if !self.granted {
                    self.granted = true;
                    self.held = true;
                    self.revision += 1;
                    self.deadline = Some(deadline);
                }
                (self.deadline.is_some() && self.held).then_some(ReplySent::Granted)
            }
            RequestSent::Renew(number) => {
                let lives = self.deadline.is_some();
                if lives {
                    self.deadline = Some(deadline);
                }
                Some(ReplySent::Renewed { number, lives, changed: Revision(self.changed) })
            }
            RequestSent::Holdings => {
                let (revision, changed) = (Revision(self.revision), Revision(self.changed));
                Some(ReplySent::Held { revision, changed, held: self.held })
            }
            RequestSent::Release => {
                if self.held {
                    self.held = false;
                    self.passed_on.get_or_insert(now);
                }
                None
            }
            RequestSent::Confirm => {
                if self.cooling.take().is_some() {
                    self.passed_on.get_or_insert(now);
                }
                None
            }
            RequestSent::Revoke => {
                if self.deadline.take().is_some() && self.held {
                    self.held = false;
                    self.passed_on.get_or_insert(now);
                }
                None
            }
        }
    }

    /// Takes the lock away, as an operator does.
    pub(super) fn force(&mut self) -> Option<ReplySent> {
        if !self.held {
            return None;
        }
        self.held = false;
        self.revision += 1;
        self.changed = self.revision;
        self.cooling = self.deadline;
        Some(ReplySent::Taken)
    }
}

/// The real time at which a clock of this rate shows `time`, rounded up.
pub(super) fn unscale(time: u64, ppm: i64) -> u64 {
    let rate = 1_000_000 + i128::from(ppm);
    u64::try_from((i128::from(time) * 1_000_000 + rate - 1) / rate).expect("times are positive")
}
