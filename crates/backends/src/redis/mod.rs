//! How is a lock kept on one Redis server, and what is it worth?
//!
//! The key has the owner's name and an expiry; scripts on the server compare and act in one step. Who gives a lock back
//! says so on a channel, and whoever waits also knows when the key would run out. There is nothing to take a token
//! from that survives the server: [`EfficiencyOnly`].

mod redlock;
mod resp;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::backend::{Backend, EfficiencyOnly, NoToken, Owner, Put, StoreError, Watch};
use resp::{Connection, Value};

pub(crate) use resp::hear_all;

pub use redlock::{Redlock, RedlockWatch};

/// Where keys and channels are, unless somebody says otherwise.
const PREFIX: &str = "tenure:";
/// Connections that are kept for the next command.
const IDLE_MAX: usize = 8;

/// `done`, or in how many milliseconds the key runs out and whose it is.
const PUT: &str = "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 'done' end \
                   return {redis.call('pttl', KEYS[1]), redis.call('get', KEYS[1])}";
const SWAP: &str = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end \
                    return redis.call('pexpire', KEYS[1], ARGV[2])";
const DELETE: &str = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end \
                      redis.call('del', KEYS[1]) redis.call('publish', KEYS[1], 'free') return 1";
/// Takes back what did not become a hold: nobody has to hear of it.
const FORGET: &str = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end \
                      return redis.call('del', KEYS[1])";

/// Locks on one Redis server, version 2.6.12 or later: for efficiency only.
///
/// ```no_run
/// # use tenure_backends::{Error, Locks, Redis};
/// # async fn example() -> Result<(), Error> {
/// let locks = Locks::new(Redis::new("127.0.0.1:6379"))?;
/// locks.run("thumbnails", async |_guard| println!("once is enough")).await
/// # }
/// ```
#[derive(Clone)]
pub struct Redis {
    server: Arc<Server>,
    prefix: Arc<str>,
}

struct Server {
    address: String,
    login: Option<(Option<String>, String)>,
    idle: Mutex<Vec<Connection>>,
}

/// Whose a key is.
enum Found {
    Ours,
    Theirs {
        whose: String,
        /// How long until it runs out.
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
    connection: Connection,
}

impl Redis {
    /// Locks on the server at this address, `host:port`. Connects when it is used.
    ///
    /// ```
    /// let redis = tenure_backends::Redis::new("127.0.0.1:6379");
    /// ```
    pub fn new(address: impl Into<String>) -> Self {
        let server = Server { address: address.into(), login: None, idle: Mutex::default() };
        Self { server: Arc::new(server), prefix: Arc::from(PREFIX) }
    }

    /// Logs in with a password, and a name if the server has several.
    ///
    /// ```
    /// let redis = tenure_backends::Redis::new("10.0.0.5:6379").login(Some("locks"), "secret");
    /// ```
    pub fn login(mut self, name: Option<&str>, password: &str) -> Self {
        let login = Some((name.map(str::to_owned), password.to_owned()));
        let (address, idle) = (self.server.address.clone(), Mutex::default());
        self.server = Arc::new(Server { address, login, idle });
        self
    }

    /// Keeps its keys elsewhere than under `tenure:`.
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

    async fn dial(&self) -> Result<Connection, StoreError> {
        let mut connection = Connection::open(&self.server.address).await?;
        match &self.server.login {
            Some((Some(name), password)) => connection.call(&["AUTH", name, password]).await?,
            Some((None, password)) => connection.call(&["AUTH", password]).await?,
            None => return Ok(connection),
        };
        Ok(connection)
    }

    /// Runs a script. A connection on which anything went wrong, or whose caller stopped waiting, is not used again;
    /// nothing is said twice, because it may have been done.
    async fn eval(&self, script: &str, key: &str, words: &[&str]) -> Result<Value, StoreError> {
        let idle = || self.server.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.dial().await?,
        };
        let command = [&["EVAL", script, "1", key], words].concat();
        let answer = connection.call(&command).await;
        let mut idle = idle();
        match &answer {
            Ok(_) if idle.len() < IDLE_MAX => idle.push(connection),
            Ok(_) => {}
            // The others are as old.
            Err(_) => idle.clear(),
        }
        answer
    }

    /// Puts a key if it is absent; says whose it is otherwise.
    async fn put(&self, lock: &str, owner: &Owner, ttl: Duration) -> Result<Found, StoreError> {
        let ms = ttl.as_millis().to_string();
        let value = self.eval(PUT, &self.key(lock), &[owner.as_str(), &ms]).await?;
        let (left, whose) = match value {
            Value::Text(_) => return Ok(Found::Ours),
            Value::List(list) => match <[Value; 2]>::try_from(list) {
                Ok([Value::Number(left), Value::Text(whose)]) => (left, whose),
                other => return Err(strange(&other)),
            },
            other => return Err(strange(&other)),
        };
        // The millisecond it is in has to pass, too. A key without an end is not one of ours; it is looked at again.
        let left = u64::try_from(left).map_or(ttl, |ms| Duration::from_millis(ms + 1));
        Ok(Found::Theirs { whose, left })
    }

    /// Deletes what did not become a hold, without telling anybody.
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
            Found::Ours => Put::Done(NoToken),
            Found::Theirs { left, .. } => Put::Taken { free_within: Some(left) },
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
        let mut connection = self.dial().await?;
        // The answer means that the server sends from now on.
        connection.call(&["SUBSCRIBE", &self.key(lock)]).await?;
        Ok(RedisWatch { connection })
    }
}

impl Watch for RedisWatch {
    async fn changed(&mut self) -> Result<(), StoreError> {
        self.connection.hear().await.map(|_| ())
    }
}

fn truth(value: &Value) -> Result<bool, StoreError> {
    match value {
        Value::Number(number) => Ok(*number == 1),
        other => Err(strange(other)),
    }
}

fn strange(value: &impl fmt::Debug) -> StoreError {
    StoreError::new(format!("redis: answered something else than was asked: {value:?}"))
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
