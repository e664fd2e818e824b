//! Lets the routers of members forget leases that have ended without a notice.
//!
//! The router asks for it on its own thread, the member's loop looks later, and the router hears of it later still, as
//! in the server. None of this draws from the seed.

use tenure_core::request::LeaseRef;
use tenure_node::Router;
use tenure_types::Handle;

use super::MS;
use super::event::SimEvent;
use super::session_host::Routed;
use super::world::SimCluster;

impl SimCluster {
    /// The router has nothing to route, and may ask which leases are gone.
    pub(super) fn begin_sweep(&mut self, member: usize) {
        let boot = self.sim_members[member].boot;
        let Some(process) = &mut self.sim_members[member].process else { return };
        let Some(leases) = process.host.router.sweep() else { return };
        let at_us = self.now_us + 10 + self.now_us % (5 * MS);
        self.queue.push(at_us, SimEvent::Sweep { member, boot, leases });
    }

    /// The loop looks which of these leases are gone.
    pub(super) fn sweep(&mut self, member: usize, boot: u64, leases: Vec<Handle>) {
        let target = &mut self.sim_members[member];
        if target.boot != boot || !target.is_up() {
            return;
        }
        let at_us = target.paused_until_us;
        if at_us > self.now_us {
            return self.queue.push(at_us, SimEvent::Sweep { member, boot, leases });
        }
        let process = target.process.as_mut().expect("it is up");
        let gone = Router::gone(process.node.machine(), leases);
        self.faults.count("router_swept");
        process.host.backlog.put(Routed::Ended(gone), 0);
        if !std::mem::replace(&mut process.host.routing, true) {
            self.queue.push(self.now_us + 100, SimEvent::Route { member, boot });
        }
    }

    /// The router forgets these leases. The sessions do so only if the leases have really ended: N5 shows the
    /// difference with the next notice.
    pub(super) fn forget_routes(&mut self, member: usize, leases: &[Handle]) {
        let host = &mut self.sim_members[member].process.as_mut().expect("it routes").host;
        for lease in leases {
            host.router.forget(*lease);
            if self.oracle.has_lease(LeaseRef::Handle(*lease)) {
                continue;
            }
            self.faults.count("route_forgotten");
            host.sessions.values_mut().for_each(|(_, attached)| {
                attached.remove(lease);
            });
        }
    }
}
