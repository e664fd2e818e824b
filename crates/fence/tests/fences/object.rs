//! Tests that objects refuse stale writers, in memory and behind a real S3 API.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{
    Attribute, Attributes, ClientOptions, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions,
    UpdateVersion,
};
use tenure_fence::object::{Failure, ObjectFence};
use tenure_fence::{Claim, Error, Floor, LockSlot};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::server;
use crate::subject::{FenceReply, Subject, claim, said, token};
use crate::trials::{self, Size};

const BUCKET: &str = "ledgers";

pub(crate) struct Object<'a> {
    runtime: &'a Runtime,
    store: Arc<dyn ObjectStore>,
    fence: ObjectFence,
    path: Path,
}

impl<'a> Object<'a> {
    fn open(runtime: &'a Runtime, store: &Arc<dyn ObjectStore>, name: &str) -> Self {
        let fence = runtime.block_on(ObjectFence::open(Arc::clone(store))).unwrap();
        Self { runtime, store: Arc::clone(store), fence, path: Path::from(format!("dir/{name}")) }
    }
}

impl Subject for Object<'_> {
    fn write(&self, at: LockSlot<'_>, claim: Claim, value: &str) -> Result<(), FenceReply> {
        said(self.runtime.block_on(self.fence.put(&self.path, at, claim, value.to_owned())))
    }

    fn raise(&self, at: LockSlot<'_>, claim: Claim) -> Result<(), FenceReply> {
        said(self.runtime.block_on(self.fence.raise(&self.path, at, claim)))
    }

    fn floor(&self, at: LockSlot<'_>) -> Floor {
        self.runtime.block_on(self.fence.floor(&self.path, at)).unwrap()
    }

    fn read(&self) -> Option<String> {
        let data = self.runtime.block_on(self.fence.get(&self.path)).unwrap();
        data.map(|data| String::from_utf8(data.to_vec()).unwrap())
    }

    fn write_unfenced(&self, value: &str) {
        self.runtime.block_on(self.store.put(&self.path, value.to_owned().into())).unwrap();
    }
}

#[test]
fn objects_in_memory_refuse_the_dead() {
    let runtime = &Runtime::new().unwrap();
    // As slow as real stores; otherwise no writer would come between the read and the write of another.
    let slow = ThrottleConfig {
        wait_get_per_call: Duration::from_millis(1),
        wait_put_per_call: Duration::from_millis(1),
        ..ThrottleConfig::default()
    };
    let store: Arc<dyn ObjectStore> = Arc::new(ThrottledStore::new(InMemory::new(), slow));
    trials::all(Size { steps: 300, writes: 40 }, |name| Object::open(runtime, &store, name));
    attributes_and_floors_outlive_the_data(runtime, &store);
    assert!(runtime.block_on(store.head(&Path::from("tenure-fence-probe"))).is_err());
}

/// Sets up one object behind a real S3 API and runs the scenario on it.
pub(crate) fn stand(play: &dyn Fn(&Object<'_>)) {
    let Some(server) = server::or_skip("S3", server::moto()) else { return };
    let runtime = &Runtime::new().unwrap();
    play(&Object::open(runtime, &bucket(runtime, server.port), "ledger"));
}

/// Creates a new bucket.
fn bucket(runtime: &Runtime, port: u16) -> Arc<dyn ObjectStore> {
    let create = http::Request::put(format!("http://127.0.0.1:{port}/{BUCKET}"));
    let create = create.body(HttpRequestBody::empty()).unwrap();
    assert!(runtime.block_on(send(create)).unwrap().status().is_success());
    s3(port, Through::default(), S3ConditionalPut::ETagMatch)
}

#[test]
fn objects_in_s3_refuse_the_dead() {
    let Some(server) = server::or_skip("S3", server::moto()) else { return };
    let runtime = &Runtime::new().unwrap();
    let port = server.port;
    let store = bucket(runtime, port);
    trials::all(Size { steps: 60, writes: 8 }, |name| Object::open(runtime, &store, name));
    attributes_and_floors_outlive_the_data(runtime, &store);
    the_same_bytes_under_another_token_are_another_version(runtime, &store);
    stores_that_cannot_be_fenced_are_refused(runtime, port);
}

fn attributes_and_floors_outlive_the_data(runtime: &Runtime, store: &Arc<dyn ObjectStore>) {
    let object = Object::open(runtime, store, "attributes");
    let path = &object.path;
    runtime.block_on(async {
        let kind = Attributes::from_iter([(Attribute::ContentType, "text/plain")]);
        object.fence.put_with(path, "odd, näme", token(1), "one", kind).await.unwrap();
        object.fence.put(path, "odd, näme", token(2), "two").await.unwrap();
        let found = store.get(path).await.unwrap();
        assert_eq!(found.attributes.get(&Attribute::ContentType).unwrap().as_ref(), "text/plain");
        object.fence.delete(path, "odd, näme", token(3)).await.unwrap();
        assert_eq!(object.fence.get(path).await.unwrap(), None);
        let late = object.fence.put(path, "odd, näme", token(2), "late").await;
        assert_eq!(said(late), Err(FenceReply::Stale { floor: 3 }));
        object.fence.put(path, "odd, näme", token(3), "").await.unwrap();
        assert_eq!(object.fence.get(path).await.unwrap().unwrap(), "");
        // Only the fence writes this metadata; the fence does not overwrite what it cannot parse.
        let broken = Attributes::from_iter([(Attribute::Metadata("tenurefloor".into()), "7")]);
        let options = PutOptions { attributes: broken, ..PutOptions::default() };
        store.put_opts(path, "x".into(), options).await.unwrap();
        let refused = object.fence.put(path, "odd, näme", token(9), "y").await;
        assert!(matches!(refused, Err(Error::Unreadable(_))), "{refused:?}");
    });
}

/// S3 hashes the bytes. A writer that read the object before the floor rose must not find its condition met afterwards.
fn the_same_bytes_under_another_token_are_another_version(
    runtime: &Runtime,
    store: &Arc<dyn ObjectStore>,
) {
    let object = Object::open(runtime, store, "same");
    let path = &object.path;
    runtime.block_on(async {
        // The control: without the fence the version stays the same.
        let floor = |floor| Attributes::from_iter([(Attribute::Metadata("floor".into()), floor)]);
        let put = async |attributes| {
            let options = PutOptions { attributes, ..PutOptions::default() };
            store.put_opts(path, "same".into(), options).await.unwrap().e_tag.unwrap()
        };
        assert_eq!(put(floor("1")).await, put(floor("2")).await);

        object.fence.put(path, "ledger", token(1), "same").await.unwrap();
        let seen = store.head(path).await.unwrap();
        let seen = UpdateVersion { e_tag: seen.e_tag, version: seen.version };
        object.fence.put(path, "ledger", token(2), "same").await.unwrap();
        let late = |seen: &UpdateVersion| PutOptions::from(PutMode::Update(seen.clone()));
        let refused = store.put_opts(path, "A, late".into(), late(&seen)).await;
        assert!(matches!(refused, Err(object_store::Error::Precondition { .. })), "{refused:?}");
        let seen = store.head(path).await.unwrap();
        let seen = UpdateVersion { e_tag: seen.e_tag, version: seen.version };
        object.fence.raise(path, "ledger", token(3)).await.unwrap();
        let refused = store.put_opts(path, "A, late".into(), late(&seen)).await;
        assert!(matches!(refused, Err(object_store::Error::Precondition { .. })), "{refused:?}");
        assert_eq!(object.fence.get(path).await.unwrap().unwrap(), "same");
        let late = object.fence.put(path, "ledger", claim(2), "same").await;
        assert_eq!(said(late), Err(FenceReply::Stale { floor: 3 }));
    });
}

fn stores_that_cannot_be_fenced_are_refused(runtime: &Runtime, port: u16) {
    let dir = tempfile::tempdir().unwrap();
    let through = |without| Through { without };
    let stores: [(Arc<dyn ObjectStore>, &str); 6] = [
        (Arc::new(LocalFileSystem::new_with_prefix(dir.path()).unwrap()), "not"),
        (s3(port, Through::default(), S3ConditionalPut::Disabled), "conditional put is disabled"),
        (
            s3(port, through(&["if-none-match"]), S3ConditionalPut::ETagMatch),
            "although there is one",
        ),
        (s3(port, through(&["if-match"]), S3ConditionalPut::ETagMatch), "version that is gone"),
        (s3(port, through(&["x-amz-meta-tenurefloor"]), S3ConditionalPut::ETagMatch), "metadata"),
        (s3(port, through(&["etag"]), S3ConditionalPut::ETagMatch), ""),
    ];
    for (store, why) in stores {
        let said = runtime.block_on(ObjectFence::open(Arc::clone(&store))).unwrap_err();
        match said {
            Error::Store(failure @ Failure::Unfit { .. }) => {
                assert!(failure.to_string().contains(why), "{store}: {failure}, not {why}");
            }
            // The client library itself cannot use a store that returns no versions.
            Error::Store(Failure::Store(error)) if why.is_empty() => drop(error),
            other => panic!("{store}: {other:?}"),
        }
    }
}

fn s3(port: u16, through: Through, conditional: S3ConditionalPut) -> Arc<dyn ObjectStore> {
    let store = AmazonS3Builder::new()
        .with_endpoint(format!("http://127.0.0.1:{port}"))
        .with_bucket_name(BUCKET)
        .with_region("us-east-1")
        .with_access_key_id("test")
        .with_secret_access_key("test")
        .with_allow_http(true)
        .with_conditional_put(conditional)
        .with_http_connector(through);
    Arc::new(store.build().unwrap())
}

/// A small HTTP client, because a provider's own would take minutes to compile. It can simulate a server that ignores
/// some header.
#[derive(Clone, Copy, Debug, Default)]
struct Through {
    without: &'static [&'static str],
}

impl HttpConnector for Through {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(*self))
    }
}

impl HttpService for Through {
    fn call<'a, 'b>(
        &'a self,
        mut request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            for name in self.without {
                request.headers_mut().remove(*name);
            }
            let sent = send(request).await;
            let mut response =
                sent.map_err(|error| HttpError::new_boxed(HttpErrorKind::Interrupted, error))?;
            for name in self.without {
                response.headers_mut().remove(*name);
            }
            Ok(response)
        })
    }
}

/// Sends one request on a connection of its own, because the server serves one at a time.
async fn send(
    mut request: HttpRequest,
) -> Result<HttpResponse, Box<dyn std::error::Error + Send + Sync>> {
    let authority = request.uri().authority().expect("a whole address").to_string();
    let stream = TcpStream::connect(&authority).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    request.headers_mut().insert("host", authority.parse()?);
    request.headers_mut().insert("connection", "close".parse()?);
    let path = request.uri().path_and_query().expect("an address has a path").as_str().parse()?;
    *request.uri_mut() = path;
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    driver.abort();
    Ok(http::Response::from_parts(head, HttpResponseBody::from(body)))
}
