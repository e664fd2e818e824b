//! Measures what a resource pays for refusing stale and forged tokens.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use tenure_fence::http::{FENCING_TOKEN, FenceLayer, FloorFile};
use tenure_fence::ticket::{KeySet, Resource, Tickets};
use tower::{Layer as _, Service as _};

use crate::clock::timed;
use crate::postgres;
use crate::run_results::RunResults;

/// The number of rounds of each measurement. They are short, so that other work rarely interrupts one; the result is
/// their median.
const ROUNDS: usize = 200;
/// The number of operations in a round.
const IN_ROUND: u64 = 500;
/// The number of different tickets: fewer than the cache keeps.
const TICKETS: u64 = 1_000;

/// Takes all measurements. `quick` does a hundredth of the work.
pub(crate) fn run(quick: bool) -> Result<RunResults> {
    let scale = if quick { 100 } else { 1 };
    let mut results = RunResults::default();
    let signer = Signer::new();
    let tickets: Vec<String> = (1..=TICKETS).map(|token| signer.ticket(token)).collect();
    let resource = Resource::new("ledger").exclusive().holder("ana");

    let verifier = signer.verifier()?;
    let never_seen = tickets.iter().take(usize::try_from(TICKETS / scale)?);
    let verify = |ticket: &String| timed(|| verifier.check(ticket, &resource).is_ok());
    let mut first: Vec<(bool, Duration)> = never_seen.map(verify).collect();
    ensure!(first.iter().all(|(good, _)| *good), "the tickets are good");
    first.sort_by_key(|(_, took)| *took);
    let uncached = first[first.len() / 2].1.as_secs_f64() * 1e6;
    results.add(
        "ticket_uncached_us",
        uncached,
        "µs to verify a ticket that was never seen, median (to stay below: 150)",
    );

    for ticket in &tickets {
        verifier.check(ticket, &resource)?;
    }
    let mut again = tickets.iter().cycle();
    let cached = median_us(quick, || {
        for ticket in again.by_ref().take(usize::try_from(IN_ROUND).unwrap_or(0)) {
            assert!(black_box(verifier.check(ticket, &resource)).is_ok(), "the ticket is good");
        }
    });
    results.add(
        "ticket_cached_us",
        cached,
        "µs to verify one of 1,000 that were seen before (to stay below: 2)",
    );

    let dir = tempfile::tempdir().context("a directory for the floor")?;
    let layer = |name: &str| -> Result<FenceLayer> {
        Ok(FenceLayer::new("ledger", FloorFile::open(dir.path().join(name), "ledger")?)?)
    };
    let token = TICKETS.to_string();
    let bare = requests_us(quick, None, &token)?;
    let fenced = requests_us(quick, Some(layer("bare")?), &token)?;
    results.add(
        "layer_us",
        fenced - bare,
        "µs that the layer adds to a request with a current token (to stay below: 5)",
    );
    let ticket = tickets.last().context("there are tickets")?;
    let demanding = layer("ticket")?.verify(signer.verifier()?);
    let proven = requests_us(quick, Some(demanding), ticket)?;
    results.add(
        "layer_ticket_us",
        proven - bare,
        "µs that it adds to one with a ticket that was seen before (to stay below: 5)",
    );
    postgres::run(quick, &mut results)?;
    Ok(results)
}

/// Measures sequential requests to a service that does nothing, with this text as their token.
fn requests_us(quick: bool, fence: Option<FenceLayer>, text: &str) -> Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let service = tower::service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let request = || Request::builder().uri("/pay").header(FENCING_TOKEN, text).body(());
    request().context("a text that a header can have")?;
    let took = median_us(quick, || {
        runtime.block_on(async {
            let mut plain = service;
            let mut fenced = fence.as_ref().map(|fence| fence.layer(service));
            for _ in 0..IN_ROUND {
                let request = request().expect("it could be made before");
                match &mut fenced {
                    None => {
                        let Ok(response) = plain.call(request).await;
                        drop(black_box(response.into_body().collect().await));
                    }
                    Some(fenced) => {
                        let Ok(response) = fenced.call(request).await;
                        assert!(response.status().is_success(), "the token is current");
                        drop(black_box(response.into_body().collect().await));
                    }
                }
            }
        });
    });
    Ok(took)
}

/// The median time of one operation in a round.
fn median_us(quick: bool, mut round: impl FnMut()) -> f64 {
    let rounds = if quick { 5 } else { ROUNDS };
    let mut took: Vec<Duration> = (0..rounds).map(|_| timed(&mut round).1).collect();
    took.sort();
    took[rounds / 2].as_secs_f64() * 1e6 / IN_ROUND as f64
}

/// A member that signs tickets.
struct Signer {
    pair: Ed25519KeyPair,
}

impl Signer {
    fn new() -> Self {
        Self {
            pair: Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("any 32 bytes are a seed"),
        }
    }

    fn verifier(&self) -> Result<Tickets> {
        let x = URL_SAFE_NO_PAD.encode(self.pair.public_key());
        let set = format!(
            r#"{{"cluster":"5f3a0000000000000000000000000001","epoch":0,"incarnation":"0000000000000000","keys":[
            {{"kty":"OKP","crv":"Ed25519","kid":"k","x":"{x}","epoch":0,"incarnation":"0000000000000000"}}]}}"#
        );
        let keys = KeySet::parse(&set)?;
        ensure!(keys.len() == 1, "the key is one");
        Ok(Tickets::new(keys))
    }

    fn ticket(&self, token: u64) -> String {
        let header = r#"{"alg":"EdDSA","kid":"k","typ":"tenure-ticket+jwt"}"#;
        let claims = format!(
            concat!(
                r#"{{"iss":"5f3a0000000000000000000000000001","epoch":0,"incarnation":"0000000000000000","#,
                r#""lock":"ledger","mode":"exclusive","token":"{}","lease":"6862914507731255300","holder":"ana"}}"#,
            ),
            token
        );
        let signed =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(self.pair.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}
