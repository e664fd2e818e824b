//! Keeps locks on one Redis server.
//!
//! A lock is a key that expires, with the owner's name as its value. Lua scripts on the server compare the owner and
//! act atomically. A release publishes a message on a channel, and a waiter also knows when the key will expire. Redis
//! has no value that survives the loss of the server and could serve as a fencing token, so these locks are
//! [`EfficiencyOnly`].

mod redlock;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::aio::{MultiplexedConnection, PubSub};
use ::redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, RedisConnectionInfo, RedisError};
use ::redis::{Value, cmd, from_redis_value};
use tokio::time::timeout;
use tokio_stream::StreamExt;

use crate::backend::{Backend, EfficiencyOnly, NoToken, Owner, Put, StoreError, Watch};

pub use redlock::{Redlock, RedlockWatch};

/// The default prefix of keys and channels.
const PREFIX: &str = "tenure:";
/// The maximum time to connect.
const DIAL: Duration = Duration::from_secs(2);

/// Returns `done`, or the milliseconds until the key expires and its owner.
const PUT: &str = "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 'done' end \
                   return {redis.call('pttl', KEYS[1]), redis.call('get', KEYS[1])}";
const SWAP: &str = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end \
                    return redis.call('pexpire', KEYS[1], ARGV[2])";
const DELETE: &str = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end \
                      redis.call('del', KEYS[1]) redis.call('publish', KEYS[1], 'free') return 1";
/// Deletes the key of an acquire that failed on other servers, without publishing a message.
const FORGET: &str = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end \
                      return redis.call('del', KEYS[1])";

/// Locks on one Redis server, version 2.6.12 or later: for efficiency only.
///
/// ```no_run
/// # use tenure_backends::{Error, Locks, Redis};
/// # async fn example() -> Result<(), Error> {
/// let locks = Locks::new(Redis::new("127.0.0.1:6379"))?;
/// let run = locks.run("thumbnails", async |_guard| {
///     println!("once is enough");
///     Ok::<(), Error>(())
/// });
/// run.await
/// # }
/// ```
#[derive(Clone)]
pub struct Redis {
    server: Arc<RedisServer>,
    prefix: Arc<str>,
}

struct RedisServer {
    address: String,
    login: RedisConnectionInfo,
    /// The connection that commands share, while it works.
    shared: Mutex<Option<MultiplexedConnection>>,
}

/// Marks a command as sent and not yet answered. If it is dropped in that state, the shared connection is discarded,
/// because it may be dead.
struct Unanswered<'a>(Option<&'a RedisServer>);

/// The result of a put: the key is ours, or another owner has it.
enum KeyOwner {
    Ours,
    Theirs {
        whose: String,
        /// The time until the key expires.
        left: Duration,
    },
}

/// A watch on a key of one Redis server.
///
/// ```no_run
/// # use tenure_backends::{Backend, Redis, StoreError, Watch};
/// # async fn example(redis: Redis) -> Result<(), StoreError> {
/// redis.watch("thumbnails").await?.changed().await
/// # }
/// ```
pub struct RedisWatch {
    subscribed: PubSub,
}

impl Redis {
    /// Creates locks on the server at this address, `host:port`. Connects on first use.
    ///
    /// ```
    /// let redis = tenure_backends::Redis::new("127.0.0.1:6379");
    /// ```
    pub fn new(address: impl Into<String>) -> Self {
        let server = RedisServer::new(address.into(), RedisConnectionInfo::default());
        Self { server: Arc::new(server), prefix: Arc::from(PREFIX) }
    }

    /// Sets the password, and the user name if the server has several users.
    ///
    /// ```
    /// let redis = tenure_backends::Redis::new("10.0.0.5:6379").login(Some("locks"), "secret");
    /// ```
    pub fn login(mut self, name: Option<&str>, password: &str) -> Self {
        let login = RedisConnectionInfo::default().set_password(password);
        let login = match name {
            Some(name) => login.set_username(name),
            None => login,
        };
        self.server = Arc::new(RedisServer::new(self.server.address.clone(), login));
        self
    }

    /// Sets the prefix of keys. The default is `tenure:`.
    ///
    /// ```
    /// let redis = tenure_backends::Redis::new("127.0.0.1:6379").prefix("billing:locks:");
    /// ```
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = Arc::from(prefix);
        self
    }

    fn key(&self, lock: &str) -> String {
        format!("{}{lock}", self.prefix)
    }

    /// Runs a script. It is never repeated, because it may have taken effect.
    async fn eval(&self, script: &str, key: &str, words: &[&str]) -> Result<Value, StoreError> {
        let mut connection = self.server.connection().await?;
        let mut unanswered = Unanswered(Some(&self.server));
        let mut command = cmd("EVAL");
        command.arg(script).arg(1).arg(key).arg(words);
        let answer = command.query_async(&mut connection).await;
        // An error that the server reports is an answer, too: the connection works.
        if answer.as_ref().err().is_none_or(|error: &RedisError| error.code().is_some()) {
            unanswered.0 = None;
        }
        answer.map_err(failed)
    }

    /// Puts a key if it is absent, and returns its owner otherwise.
    async fn put(&self, lock: &str, owner: &Owner, ttl: Duration) -> Result<KeyOwner, StoreError> {
        let ms = ttl.as_millis().to_string();
        let value = self.eval(PUT, &self.key(lock), &[owner.as_str(), &ms]).await?;
        let (left, whose): (i64, Vec<u8>) = match value {
            Value::BulkString(_) => return Ok(KeyOwner::Ours),
            Value::Array(_) => from_redis_value(value).map_err(|it| failed(it.into()))?,
            other => return Err(strange(&other)),
        };
        // Add one for the millisecond in progress. A key without an expiry was not put by this code; the caller tries
        // again after a ttl.
        let left = u64::try_from(left).map_or(ttl, |ms| Duration::from_millis(ms + 1));
        // Another program may have stored an owner that is not UTF-8. The lock is held in any case.
        let whose = String::from_utf8_lossy(&whose).into_owned();
        Ok(KeyOwner::Theirs { whose, left })
    }

    /// Deletes the key of an acquire that failed on other servers, without publishing a message.
    async fn forget(&self, lock: &str, owner: &Owner) -> Result<bool, StoreError> {
        truth(&self.eval(FORGET, &self.key(lock), &[owner.as_str()]).await?)
    }
}

impl Backend for Redis {
    type Promise = EfficiencyOnly;
    type Watch = RedisWatch;

    async fn put_if_absent(
        &self,
        lock: &str,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Put<EfficiencyOnly>, StoreError> {
        Ok(match self.put(lock, owner, ttl).await? {
            KeyOwner::Ours => Put::Done(NoToken),
            KeyOwner::Theirs { left, .. } => Put::Taken { free_within: Some(left) },
        })
    }

    async fn compare_and_swap(
        &self,
        lock: &str,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        let ms = ttl.as_millis().to_string();
        truth(&self.eval(SWAP, &self.key(lock), &[owner.as_str(), &ms]).await?)
    }

    async fn compare_and_delete(&self, lock: &str, owner: &Owner) -> Result<bool, StoreError> {
        truth(&self.eval(DELETE, &self.key(lock), &[owner.as_str()]).await?)
    }

    async fn watch(&self, lock: &str) -> Result<RedisWatch, StoreError> {
        let client = self.server.client()?;
        let subscribing = async {
            let mut subscribed = client.get_async_pubsub().await?;
            // After this answer, the server sends every message of the channel.
            subscribed.subscribe(self.key(lock)).await?;
            Ok(RedisWatch { subscribed })
        };
        timeout(DIAL, subscribing).await.unwrap_or_else(|_| Err(silent())).map_err(failed)
    }
}

impl Watch for RedisWatch {
    async fn changed(&mut self) -> Result<(), StoreError> {
        let heard = self.subscribed.on_message().next().await;
        heard.map(|_| ()).ok_or_else(|| StoreError::new("redis: the watch ended"))
    }
}

impl RedisServer {
    fn new(address: String, login: RedisConnectionInfo) -> Self {
        Self { address, login, shared: Mutex::default() }
    }

    fn client(&self) -> Result<Client, StoreError> {
        let parts = self.address.rsplit_once(':');
        let parts = parts.and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        let none = || StoreError::new(format!("redis: `{}` is no address", self.address));
        let (host, port) = parts.ok_or_else(none)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let info = (host, port).into_connection_info().map_err(failed)?;
        Client::open(info.set_redis_settings(self.login.clone())).map_err(failed)
    }

    fn shared(&self) -> MutexGuard<'_, Option<MultiplexedConnection>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connection(&self) -> Result<MultiplexedConnection, StoreError> {
        if let Some(connection) = self.shared().clone() {
            return Ok(connection);
        }
        // The caller decides how long to wait for an answer.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let config = config.set_connection_timeout(Some(DIAL));
        let client = self.client()?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = connection.map_err(failed)?;
        *self.shared() = Some(connection.clone());
        Ok(connection)
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(server) = self.0 {
            *server.shared() = None;
        }
    }
}

fn truth(value: &Value) -> Result<bool, StoreError> {
    match value {
        Value::Int(number) => Ok(*number == 1),
        other => Err(strange(other)),
    }
}

fn strange(value: &Value) -> StoreError {
    StoreError::new(format!("redis: answered something else than was asked: {value:?}"))
}

fn failed(error: RedisError) -> StoreError {
    StoreError::new(format!("redis: {error}"))
}

fn silent() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("address", &self.server.address).finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisWatch").finish_non_exhaustive()
    }
}
