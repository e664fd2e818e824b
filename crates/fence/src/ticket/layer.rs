//! Lets the HTTP layer require tickets.

use std::sync::Arc;

use super::{Forged, Resource, Tickets};
use crate::claim::{Claim, LockSlot};
use crate::http::{Unproven, Verify};

impl Verify for Tickets {
    /// Accepts tickets only: a bare number is refused with 403 as well.
    fn verify(&self, text: &str, at: LockSlot<'_>) -> Result<Claim, Unproven> {
        let ticket = self.check(text, &Resource::new(at)).map_err(unproven)?;
        Ok(ticket.claim())
    }
}

/// Shared, so that another task can update the keys.
impl Verify for Arc<Tickets> {
    fn verify(&self, text: &str, at: LockSlot<'_>) -> Result<Claim, Unproven> {
        (**self).verify(text, at)
    }
}

fn unproven(forged: Forged) -> Unproven {
    Unproven::Forged(format!("{}: {forged}", forged.reason()))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io;

    use http::{Request, Response, StatusCode};
    use http_body_util::{BodyExt as _, Empty};
    use tower::{Layer as _, ServiceExt as _};

    use super::super::tests::{a_ticket_and_its_keys, forged_tickets};
    use super::*;
    use crate::http::{FENCING_TOKEN, FenceLayer, Keep};
    use crate::rule::Floor;

    struct VerifiedTickets;

    impl Keep for VerifiedTickets {
        fn load(&mut self) -> io::Result<Floor> {
            Ok(Floor::default())
        }

        fn keep(&mut self, _: Floor) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_service_that_demands_tickets_lets_no_forgery_in() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .unwrap();
        let (good, keys) = a_ticket_and_its_keys();
        let fence = FenceLayer::new("ledger", VerifiedTickets)
            .unwrap()
            .verify(Arc::new(Tickets::new(keys)));
        let ask = |text: &str| {
            let service = tower::service_fn(|_: Request<()>| async {
                Ok::<_, Infallible>(Response::new(Empty::<bytes::Bytes>::new()))
            });
            let request = Request::builder().header(FENCING_TOKEN, text).body(()).unwrap();
            runtime.block_on(async {
                let response = fence.layer(service).oneshot(request).await.unwrap();
                let status = response.status();
                let body = response.into_body().collect().await.unwrap().to_bytes();
                (status, String::from_utf8(body.to_vec()).unwrap())
            })
        };
        assert_eq!(ask(&good).0, StatusCode::OK);
        for (name, text, reason) in forged_tickets() {
            let (status, body) = ask(&text);
            assert_eq!(status, StatusCode::FORBIDDEN, "{name}");
            assert!(body.contains("FORGED_TOKEN") && body.contains(reason), "{name}: {body}");
        }
        assert_eq!(ask(&good).0, StatusCode::OK);
    }
}
