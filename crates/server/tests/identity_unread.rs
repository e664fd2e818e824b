//! Tests that the end of credentials also ends a session whose client does not read.

use serde_json::json;
use tenure_wire::json::session;
use tenure_wire::v1;
use tenure_wire::v1::session_service_client::SessionServiceClient;
use tokio::sync::mpsc::channel;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use crate::bounded::{DEADLINE, wait};
use crate::identity::IdentityMember;

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_client_does_not_read_ends_with_a_revoked_key_and_its_places_are_given_up()
{
    let stage = IdentityMember::enabled();
    let (ana, bob) = (stage.key("ana", None), stage.key("bob", None));
    stage.post("/v1/locks/x", &ana, &json!({"lease": stage.lease(&ana)})).ok();
    let acquire = json!({"id": 1, "acquire": {"lock": "x", "lease": stage.lease(&bob)}});
    let acquire: session::Request = serde_json::from_value(acquire).unwrap();
    // The window has no room for the welcome.
    let endpoint = Endpoint::from_shared(format!("http://{}", stage.at())).unwrap();
    let endpoint = endpoint.initial_stream_window_size(Some(16));
    let mut sessions = SessionServiceClient::new(endpoint.connect_lazy());
    let (to, requests) = channel(4);
    let hello = Some(v1::Hello::default());
    let first = vec![v1::Request::try_from(acquire).unwrap()];
    to.send(v1::SessionRequest { hello, requests: first }).await.unwrap();
    let opening = sessions.open(bob.call(ReceiverStream::new(requests)));
    let unread = tokio::time::timeout(DEADLINE, opening).await.unwrap().unwrap();
    wait("it waits", || (stage.waiters("x", &ana) == 1).then_some(()));
    stage.revoke(&bob);
    // The member closes its connection after 3 s. A session that is only told that it is over lives for ever.
    tokio::time::timeout(DEADLINE, to.closed()).await.expect("the connection is closed");
    wait("its place is given up", || (stage.waiters("x", &ana) == 0).then_some(()));
    drop(unread);
}
