//! Reports the health of a member to load balancers, and describes its services to tools.

use tenure_wire::{FILE_DESCRIPTOR_SET, v1};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::server::{HealthReporter, health_reporter};
use tonic_reflection::server::Builder;

use crate::dispatch::Dispatch;

/// The names of the services.
const SERVICES: [&str; 11] = [
    "",
    v1::lock_service_server::SERVICE_NAME,
    v1::lock_admin_service_server::SERVICE_NAME,
    v1::lease_service_server::SERVICE_NAME,
    v1::key_service_server::SERVICE_NAME,
    v1::election_service_server::SERVICE_NAME,
    v1::cluster_service_server::SERVICE_NAME,
    v1::maintenance_service_server::SERVICE_NAME,
    v1::session_service_server::SERVICE_NAME,
    v1::ticket_service_server::SERVICE_NAME,
    v1::access_service_server::SERVICE_NAME,
];

/// The health service. A member is healthy while it knows a leader: without one it can serve no request.
pub(super) fn health(dispatch: &Dispatch) -> HealthServer<impl Health> {
    let (reporter, server) = health_reporter();
    dispatch.runtime().spawn(report(dispatch.clone(), reporter));
    server
}

async fn report(dispatch: Dispatch, reporter: HealthReporter) {
    let mut lead = dispatch.member().lead();
    loop {
        let led = lead.borrow_and_update().by.is_some();
        let status = if led { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in SERVICES {
            reporter.set_service_status(service, status).await;
        }
        if lead.changed().await.is_err() {
            return;
        }
    }
}

/// Describes the services to tools; called once for each version of the reflection protocol.
pub(super) fn describe<'a>() -> Builder<'a> {
    Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}
