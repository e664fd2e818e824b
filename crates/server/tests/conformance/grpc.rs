//! Drives the API of unary gRPC calls.
//!
//! It exists in two forms: `grpc` uses the complete services, `plain` uses `LockService` wherever it has the call.

use std::net::SocketAddr;

use tenure_wire::Message as _;
use tenure_wire::status::{EFFECT, REASON, error_from};
use tenure_wire::v1;
use tenure_wire::v1::cluster_service_client::ClusterServiceClient;
use tenure_wire::v1::election_service_client::ElectionServiceClient;
use tenure_wire::v1::key_service_client::KeyServiceClient;
use tenure_wire::v1::lease_service_client::LeaseServiceClient;
use tenure_wire::v1::lock_admin_service_client::LockAdminServiceClient;
use tenure_wire::v1::lock_service_client::LockServiceClient;
use tenure_wire::v1::maintenance_service_client::MaintenanceServiceClient;
use tenure_wire::v1::ticket_service_client::TicketServiceClient;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use v1::answer::Result as Wire;
use v1::request::Command;

use crate::common::soon;
use crate::request::{Answered, Api, Ask, Bad, Fault, How, Reply, Reported, told};

/// A client of one member.
#[derive(Clone)]
pub(crate) struct Grpc {
    channel: Channel,
    at: SocketAddr,
    plain: bool,
}

type Called<T> = Result<Response<T>, Status>;

impl Grpc {
    pub(crate) fn new(channel: Channel, at: SocketAddr, plain: bool) -> Self {
        Self { channel, at, plain }
    }
}

impl Api for Grpc {
    fn ask(&self, _: &str, ask: Ask) -> Answered {
        let (channel, at, plain) = (self.channel.clone(), self.at, self.plain);
        let caller = Caller { channel, at, key: ask.key, plain };
        let deadline_ms = ask.deadline_ms;
        Box::pin(async move {
            let answered = caller.ask(ask.what, deadline_ms).await;
            match answered {
                Ok(Some(told)) => Reply::Done(told),
                Ok(None) => Reply::NotHere,
                Err(fault) => Reply::Refused(*fault),
            }
        })
    }
}

struct Caller {
    channel: Channel,
    at: SocketAddr,
    key: Option<String>,
    plain: bool,
}

type Outcome = Result<Option<Reported>, Box<Fault>>;

/// The fault of a refused call; the metadata must agree with the details.
pub(crate) fn fault(status: &Status) -> Box<Fault> {
    let error = error_from(status).unwrap_or_else(|| panic!("no details: {status:?}"));
    let fault = Fault::new(&error, How::Code(status.code()));
    assert_eq!(status.metadata().get(REASON).unwrap(), &*error.reason);
    let effect = tenure_wire::reason::effect_word(error.effect());
    assert_eq!(status.metadata().get(EFFECT).unwrap(), effect);
    assert_eq!(status.message(), error.message);
    assert!(!error.next.is_empty(), "no advice: {status:?}");
    Box::new(fault)
}

fn revision(header: Option<&v1::Header>) -> i64 {
    header.expect("every reply has a header").revision
}

/// The reply with the result that a session would return.
macro_rules! as_answer {
    ($called:expr, $wire:ident) => {{
        let it = $called.await.map_err(|status| fault(&status))?.into_inner();
        let revision = revision(it.header.as_ref());
        told(Wire::$wire(it.into()), revision).expect("calls wait").map(Some).map_err(unspoken)
    }};
}

fn unspoken(error: v1::Error) -> Box<Fault> {
    panic!("an error inside of a success: {error:?}")
}

impl Caller {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(key) = &self.key {
            request.metadata_mut().insert("idempotency-key", key.parse().unwrap());
        }
        request
    }

    async fn ask(&self, what: crate::request::What, deadline_ms: Option<u32>) -> Outcome {
        use crate::request::What;
        let channel = || self.channel.clone();
        match what {
            What::Command(command) => match (self.plain, deadline_ms) {
                (true, None) => self.plainly(command).await,
                _ => self.command(command, deadline_ms).await,
            },
            What::Locks { prefix } => {
                let ask = v1::ListLocksRequest { prefix, ..Default::default() };
                let it = done(LockAdminServiceClient::new(channel()).list(ask).await)?;
                Ok(Some(Reported::new("listed").with("count", it.locks.len())))
            }
            What::Keys { prefix } => {
                let ask = v1::ListKeysRequest { prefix, ..Default::default() };
                let it = done(KeyServiceClient::new(channel()).list(ask).await)?;
                Ok(Some(Reported::new("listed").with("count", it.kvs.len())))
            }
            What::Leases => {
                let ask = v1::ListLeasesRequest::default();
                let it = done(LeaseServiceClient::new(channel()).list(ask).await)?;
                Ok(Some(Reported::new("listed").with("count", it.leases.len())))
            }
            What::Queue { lock } => {
                let ask = v1::QueueRequest { lock, ..Default::default() };
                let it = done(LockAdminServiceClient::new(channel()).queue(ask).await)?;
                Ok(Some(Reported::new("listed").with("count", it.waiters.len())))
            }
            What::History { lock, from } => {
                let ask = v1::HistoryRequest { lock, from, ..Default::default() };
                let it = done(LockAdminServiceClient::new(channel()).history(ask).await)?;
                Ok(Some(Reported::new("listed").with("count", it.batches.len())))
            }
            What::Limits(limits) => {
                let limit = |(limit, value)| v1::LimitValue { limit, value };
                let limits = limits.into_iter().map(limit).collect();
                let ask = self.request(v1::SetLimitsRequest { limits });
                done(MaintenanceServiceClient::new(channel()).set_limits(ask).await)?;
                Ok(Some(Reported::new("set")))
            }
            What::Compact { keep } => {
                let ask = self.request(v1::CompactRequest { keep });
                done(MaintenanceServiceClient::new(channel()).compact(ask).await)?;
                Ok(Some(Reported::new("compacted")))
            }
            What::Level(level) => {
                let ask = self.request(v1::RaiseLevelRequest { level });
                done(MaintenanceServiceClient::new(channel()).raise_level(ask).await)?;
                Ok(Some(Reported::new("raised")))
            }
            What::Campaign { name, lease, value, wait_ms } => {
                let ask = v1::CampaignRequest { name, lease, value: value.into(), wait_ms };
                let ask = self.request(ask);
                let it = done(ElectionServiceClient::new(channel()).campaign(ask).await)?;
                let leader = it.leader.unwrap_or_default();
                let grants = vec![(leader.name.clone(), leader.token)];
                Ok(Some(Reported { grants, ..Reported::new("leads") }))
            }
            What::Proclaim { name, lease, token, value } => {
                let ask = v1::ProclaimRequest { name, lease, token, value: value.into() };
                let ask = self.request(ask);
                done(ElectionServiceClient::new(channel()).proclaim(ask).await)?;
                Ok(Some(Reported::new("proclaimed")))
            }
            What::Leader { name } => {
                let ask = v1::LeaderRequest { name, stale: false };
                let it = done(ElectionServiceClient::new(channel()).leader(ask).await)?;
                Ok(Some(led(it.leader)))
            }
            What::Observe { name } => {
                let ask = v1::LeaderRequest { name, stale: false };
                let mut stream = done(ElectionServiceClient::new(channel()).observe(ask).await)?;
                let it = soon(stream.message()).await.map_err(|status| fault(&status))?.unwrap();
                Ok(Some(led(it.leader)))
            }
            What::Resign { name, lease, token } => {
                let ask = self.request(v1::ResignRequest { name, lease, token });
                done(ElectionServiceClient::new(channel()).resign(ask).await)?;
                Ok(Some(Reported::new("resigned")))
            }
            What::Watch { name, from, events } => self.watch(name, from, events, 1).await,
            What::Add { member, name, hops } => {
                let ask = v1::AddMemberRequest {
                    member_id: member,
                    name,
                    member_address: "127.0.0.1:1".into(),
                    client_address: "127.0.0.1:1".into(),
                    hops,
                };
                done(ClusterServiceClient::new(channel()).add(ask).await)?;
                Ok(Some(Reported::new("added")))
            }
            What::Promote(member_id) => {
                let ask = v1::PromoteMemberRequest { member_id };
                done(ClusterServiceClient::new(channel()).promote(ask).await)?;
                Ok(Some(Reported::new("promoted")))
            }
            What::Remove(member_id) => {
                let ask = v1::RemoveMemberRequest { member_id };
                if let Some(ms) = deadline_ms {
                    return self.within(ms, "ClusterService/Remove", &ask.encode_to_vec()).await;
                }
                done(ClusterServiceClient::new(channel()).remove(ask).await)?;
                Ok(Some(Reported::new("removed")))
            }
            What::Ticket { lock, lease, token } => {
                let ask = v1::SignTicketRequest { lock, lease, token, ..Default::default() };
                let it = done(TicketServiceClient::new(channel()).sign(ask).await)?;
                Ok(Some(Reported::new("signed").with("parts", it.ticket.split('.').count())))
            }
            What::Rotate { overlap_ms } => {
                let ask = v1::RotateTicketKeyRequest { overlap_ms };
                done(TicketServiceClient::new(channel()).rotate_key(ask).await)?;
                Ok(Some(Reported::new("rotated")))
            }
            What::TicketKeys => {
                let ask = v1::TicketKeysRequest {};
                let it = done(TicketServiceClient::new(channel()).keys(ask).await)?;
                Ok(Some(Reported::new("keys").with("some", !it.keys.is_empty())))
            }
            What::Bad(bad) => self.bad(bad).await,
        }
    }

    async fn command(&self, command: Command, deadline_ms: Option<u32>) -> Outcome {
        let mut locks = LockAdminServiceClient::new(self.channel.clone());
        let mut leases = LeaseServiceClient::new(self.channel.clone());
        let mut keys = KeyServiceClient::new(self.channel.clone());
        match command {
            Command::Acquire(it) => as_answer!(locks.acquire(self.request(it)), Acquired),
            Command::Release(it) => as_answer!(locks.release(self.request(it)), Released),
            Command::Leave(it) => as_answer!(locks.leave(self.request(it)), Left),
            Command::Stopped(it) => as_answer!(locks.stopped(self.request(it)), Stopped),
            Command::Downgrade(it) => as_answer!(locks.downgrade(self.request(it)), Downgraded),
            Command::HandOn(it) => as_answer!(locks.hand_on(self.request(it)), HandedOn),
            Command::Progress(it) => as_answer!(locks.progress(self.request(it)), Progressed),
            Command::Update(it) => as_answer!(locks.update(self.request(it)), Updated),
            Command::Force(it) => as_answer!(locks.force(self.request(it)), Forced),
            Command::Drain(it) => as_answer!(locks.drain(self.request(it)), Drained),
            Command::Resize(it) => as_answer!(locks.resize(self.request(it)), Resized),
            Command::Undrain(it) => as_answer!(locks.undrain(self.request(it)), Undrained),
            Command::Revoke(it) => as_answer!(leases.revoke(self.request(it)), Revoked),
            Command::Put(it) => match deadline_ms {
                Some(ms) => self.within(ms, "KeyService/Put", &it.encode_to_vec()).await,
                None => as_answer!(keys.put(self.request(it)), Put),
            },
            Command::Delete(it) => as_answer!(keys.delete(self.request(it)), Deleted),
            Command::GetLease(it) => as_answer!(leases.get(it), Lease),
            Command::GetLock(it) => as_answer!(locks.get(it), Lock),
            Command::GetKey(it) => as_answer!(keys.get(it), Key),
            Command::Explain(it) => as_answer!(locks.explain(it), Explained),
            Command::GrantLease(_) | Command::Renew(_) => self.lease(command).await,
        }
    }

    /// Sends the request by hand: the library's client gives up by its own clock, at the same moment.
    async fn within(&self, ms: u32, call: &str, message: &[u8]) -> Outcome {
        let length = u32::try_from(message.len()).unwrap();
        let body = [&[0][..], &length.to_be_bytes(), message].concat();
        let mut stream = TcpStream::connect(self.at).await.unwrap();
        let head = format!(
            "POST /tenure.v1.{call} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\
             content-type: application/grpc\r\ngrpc-timeout: {ms}m\r\ncontent-length: {}\r\n\r\n",
            self.at,
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&body).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let mut headers = http::HeaderMap::new();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let head = answer.split("\r\n\r\n").next().unwrap_or_default();
        for line in head.lines().skip(1) {
            let (name, value) = line.split_once(": ").unwrap();
            let name: http::HeaderName = name.parse().unwrap();
            headers.insert(name, value.parse().unwrap());
        }
        match Status::from_header_map(&headers) {
            Some(status) if status.code() != tonic::Code::Ok => Err(fault(&status)),
            _ => Ok(Some(Reported::new("done"))),
        }
    }

    /// Only `LockService` grants and renews leases.
    async fn lease(&self, command: Command) -> Outcome {
        let mut lock = LockServiceClient::new(self.channel.clone());
        match command {
            Command::GrantLease(new) => {
                assert_eq!(new.ttl_ms % 1_000, 0, "this call has seconds");
                let ask = v1::LeaseGrantRequest {
                    ttl: i64::try_from(new.ttl_ms / 1_000).unwrap(),
                    id: new.lease,
                    client_id: new.client,
                    metadata: new.metadata,
                };
                let it = done(lock.lease_grant(self.request(ask)).await)?;
                let revision = revision(it.header.as_ref());
                let lease = Some((it.id, it.create_revision));
                Ok(Some(Reported { lease, revision, ..Reported::new("granted") }))
            }
            Command::Renew(it) => {
                let ids = it.leases.into_iter().map(|id| v1::LeaseKeepAliveRequest { id });
                let ids: Vec<_> = ids.collect();
                let mut stream = done(lock.lease_keep_alive(tokio_stream::iter(ids)).await)?;
                let first = soon(stream.message()).await;
                let first = first.map_err(|status| fault(&status))?.unwrap();
                let told = match first.ttl_ms {
                    0 => Reported::new("gone"),
                    ttl_ms => Reported::new("renewed").with("ttl_ms", ttl_ms),
                };
                Ok(Some(told))
            }
            _ => Ok(None),
        }
    }

    async fn plainly(&self, command: Command) -> Outcome {
        let mut lock = LockServiceClient::new(self.channel.clone());
        match command {
            Command::Acquire(it) if is_plain(&it) => {
                let (name, lease_id, metadata) = (it.lock, it.lease, it.metadata);
                let (mode, slots) = (it.mode, it.slots);
                let taken = if it.wait_ms == Some(0) {
                    let ask = v1::TryLockRequest { name, lease_id, metadata, mode, slots };
                    let it = done(lock.try_lock(self.request(ask)).await)?;
                    (
                        it.acquired,
                        it.reason,
                        it.fencing_token,
                        it.slot,
                        revision(it.header.as_ref()),
                    )
                } else {
                    let timeout_ms = it.wait_ms.map(|ms| i64::try_from(ms).unwrap());
                    let ask = v1::LockRequest { name, lease_id, metadata, timeout_ms, mode, slots };
                    let it = done(lock.lock(self.request(ask)).await)?;
                    (
                        it.acquired,
                        it.reason,
                        it.fencing_token,
                        it.slot,
                        revision(it.header.as_ref()),
                    )
                };
                let (acquired, reason, token, slot, revision) = taken;
                if !acquired {
                    let error =
                        v1::Error { reason, message: "not acquired".into(), ..Default::default() };
                    return Err(Box::new(Fault::new(&error, How::NotAcquired)));
                }
                let told = v1::AcquireResponse { token, slot, ..Default::default() };
                let told = crate::request::told(Wire::Acquired(told), revision);
                told.expect("it is held").map(Some).map_err(unspoken)
            }
            Command::Release(it) => {
                let ask = v1::UnlockRequest { name: it.lock, lease_id: it.lease, token: it.token };
                done(lock.unlock(self.request(ask)).await)?;
                Ok(Some(Reported::new("released")))
            }
            Command::Revoke(it) if !it.by_other => {
                let ask = v1::LeaseRevokeRequest { id: it.lease };
                done(lock.lease_revoke(self.request(ask)).await)?;
                Ok(Some(Reported::new("revoked")))
            }
            other => self.command(other, None).await,
        }
    }

    async fn watch(&self, key: String, from: i64, events: usize, watches: i64) -> Outcome {
        let (to, requests) = tokio::sync::mpsc::channel(1_000);
        for watch_id in 1..=watches {
            let (key, start_revision) = (key.clone(), from);
            let ask = v1::WatchRequest { key, start_revision, watch_id, ..Default::default() };
            to.send(ask).await.unwrap();
        }
        let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
        let mut client = LockServiceClient::new(self.channel.clone());
        let mut stream = done(client.watch(requests).await)?;
        let mut seen = 0;
        while seen < events {
            let message = soon(stream.next()).await.expect("the stream goes on");
            let message = message.map_err(|status| fault(&status))?.into_fields();
            if let Some(error) = message.error {
                return Err(Box::new(Fault::new(&error, How::Frame)));
            }
            seen += message.events.len();
        }
        drop(to);
        Ok(Some(Reported::new("events").with("count", seen)))
    }

    async fn bad(&self, bad: Bad) -> Outcome {
        let path = match bad {
            Bad::Backup => return self.within(500, "MaintenanceService/Backup", &[]).await,
            Bad::TooManyWatches => return self.watch("k".into(), 0, 1, 257).await,
            Bad::Headers => {
                let mut put = Request::new(v1::PutRequest::default());
                put.metadata_mut().insert("x-long", crate::http::LONG.parse().unwrap());
                done(KeyServiceClient::new(self.channel.clone()).put(put).await)?;
                return Ok(Some(Reported::new("put")));
            }
            Bad::UnknownCall => "/tenure.v1.LockService/Steal",
            Bad::Malformed | Bad::TooLarge => "/tenure.v1.KeyService/Put",
            _ => return Ok(None),
        };
        let mut client = tonic::client::Grpc::new(self.channel.clone());
        client.ready().await.unwrap();
        // Another type with the same field numbers: its bytes cannot be decoded as the expected message.
        let codec = tonic_prost::ProstCodec::<v1::Header, v1::Header>::default();
        let message = match bad {
            Bad::TooLarge => {
                let value = vec![0; 3 << 20].into();
                let put = v1::PutRequest { key: "k".into(), value, ..Default::default() };
                done(KeyServiceClient::new(self.channel.clone()).put(put).await)?;
                return Ok(Some(Reported::new("put")));
            }
            _ => v1::Header { cluster_id: 1, ..Default::default() },
        };
        let path = http::uri::PathAndQuery::from_static(path);
        done(client.unary(Request::new(message), path, codec).await)?;
        Ok(Some(Reported::new("done")))
    }
}

fn led(leader: Option<v1::Leadership>) -> Reported {
    match leader {
        None => Reported::new("vacant"),
        Some(it) => Reported::new("leader").with("value", String::from_utf8_lossy(&it.value)),
    }
}

fn is_plain(ask: &v1::AcquireRequest) -> bool {
    ask.new_lease.is_none()
        && ask.locks.is_empty()
        && ask.lock_delay_ms == 0
        && ask.max_hold_ms.is_none()
        && ask.min_hold_ms == 0
        && ask.supersede.is_empty()
        && !ask.resume
        && ask.priority == 0
        && ask.progress_within_ms == 0
        && ask.take == 0
        && !ask.upgrade
        && ask.any_of.is_empty()
        && ask.pool.is_empty()
        && !ask.election
        && !ask.independent
}

fn done<T>(called: Called<T>) -> Result<T, Box<Fault>> {
    called.map(Response::into_inner).map_err(|status| fault(&status))
}
