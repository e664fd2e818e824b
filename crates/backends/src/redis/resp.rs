//! How are commands said to a Redis server?
//!
//! The few forms of the second version of its protocol that scripts and subscriptions answer with. A whole client would
//! bring thirty crates for four commands.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::backend::StoreError;

/// How long it may take to connect.
const DIAL: Duration = Duration::from_secs(2);
/// The longest text and line that is read: names and messages of ours are far shorter.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// The longest list: a message has three parts.
const LIST_MAX: usize = 64;

/// What a server answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Text(String),
    Number(i64),
    Nothing,
    List(Vec<Value>),
}

/// One connection. Whoever stops waiting in the middle of something must not use it any more.
pub(super) struct Connection<S = TcpStream> {
    stream: BufReader<S>,
}

impl Connection {
    pub(super) async fn open(address: &str) -> Result<Self, StoreError> {
        let failed = |error: io::Error| StoreError::new(format!("redis at {address}: {error}"));
        let stream = match timeout(DIAL, TcpStream::connect(address)).await {
            Ok(stream) => stream.map_err(failed)?,
            Err(_) => return Err(failed(io::ErrorKind::TimedOut.into())),
        };
        stream.set_nodelay(true).map_err(failed)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Says a command and hears its answer.
    pub(super) async fn call(&mut self, words: &[&str]) -> Result<Value, StoreError> {
        let mut said = format!("*{}\r\n", words.len());
        for word in words {
            said.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        let written = self.stream.get_mut().write_all(said.as_bytes()).await;
        written.map_err(|error| StoreError::new(format!("redis: {error}")))?;
        self.hear().await
    }
}

impl<S: AsyncRead + Unpin> Connection<S> {
    /// Hears what comes next.
    pub(super) async fn hear(&mut self) -> Result<Value, StoreError> {
        match self.read().await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(refused)) => Err(StoreError::new(format!("redis: {refused}"))),
            Err(error) => Err(StoreError::new(format!("redis: {error}"))),
        }
    }

    /// A value, or what the server did not like.
    async fn read(&mut self) -> io::Result<Result<Value, String>> {
        let line = self.line().await?;
        let Some(length) = line.strip_prefix('*') else { return self.one(&line).await };
        let length: i64 = number(length)?;
        let Ok(length) = usize::try_from(length) else { return Ok(Ok(Value::Nothing)) };
        if length > LIST_MAX {
            return Err(broken("a list that is too long"));
        }
        let mut list = Vec::new();
        for _ in 0..length {
            let line = self.line().await?;
            match self.one(&line).await? {
                Ok(value) => list.push(value),
                Err(refused) => return Ok(Err(refused)),
            }
        }
        Ok(Ok(Value::List(list)))
    }

    /// A value that is no list, whose first line is read.
    async fn one(&mut self, line: &str) -> io::Result<Result<Value, String>> {
        let Some((kind, rest)) = line.split_at_checked(1) else {
            return Err(broken("an empty line"));
        };
        Ok(match kind {
            "+" => Ok(Value::Text(rest.to_owned())),
            "-" => Err(rest.to_owned()),
            ":" => Ok(Value::Number(number(rest)?)),
            "$" => match usize::try_from(number(rest)?) {
                Ok(length) if length <= TEXT_BYTES_MAX => {
                    let mut text = vec![0; length + 2];
                    self.stream.read_exact(&mut text).await?;
                    text.truncate(length);
                    Ok(Value::Text(String::from_utf8_lossy(&text).into_owned()))
                }
                Ok(_) => return Err(broken("a text that is too long")),
                Err(_) => Ok(Value::Nothing),
            },
            _ => return Err(broken("a form that is not known")),
        })
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        let bound = TEXT_BYTES_MAX as u64;
        (&mut self.stream).take(bound).read_until(b'\n', &mut line).await?;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None if line.is_empty() => Err(io::ErrorKind::ConnectionReset.into()),
            None => Err(broken("a line without an end")),
        }
    }
}

/// Hears what a server says in these bytes, answer by answer, until it hangs up or cannot be understood.
pub(crate) fn hear_all(bytes: &[u8]) {
    let mut connection = Connection { stream: BufReader::new(bytes) };
    // What is there already never has to be waited for.
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Ok(_)) = pin!(connection.hear()).poll(&mut context) {}
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(|_| broken("a number that is none"))
}

fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is heard of a server that says this and hangs up.
    fn heard(says: &'static [u8]) -> Result<Value, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = port.local_addr().unwrap().to_string();
            let server = async {
                let (mut stream, _) = port.accept().await.unwrap();
                stream.write_all(says).await.unwrap();
            };
            let client = async {
                let mut connection = Connection::open(&address).await.unwrap();
                connection.hear().await.map_err(|error| error.to_string())
            };
            tokio::join!(server, client).1
        })
    }

    #[test]
    fn every_form_is_read() {
        assert_eq!(heard(b"+OK\r\n"), Ok(Value::Text("OK".into())));
        assert_eq!(heard(b":-2\r\n"), Ok(Value::Number(-2)));
        assert_eq!(heard(b"$4\r\na\r\nb\r\n"), Ok(Value::Text("a\r\nb".into())));
        assert_eq!(heard(b"$-1\r\n"), Ok(Value::Nothing));
        assert_eq!(heard(b"*-1\r\n"), Ok(Value::Nothing));
        let list = Value::List(vec![Value::Number(7), Value::Text("x".into())]);
        assert_eq!(heard(b"*2\r\n:7\r\n$1\r\nx\r\n"), Ok(list));
        assert_eq!(heard(b"-NOAUTH login first\r\n"), Err("redis: NOAUTH login first".into()));
    }

    #[test]
    fn what_is_broken_or_too_long_is_an_error_and_no_memory() {
        let broken: &[&[u8]] = &[
            b"",
            b"+OK",
            b"\r\n",
            b"?x\r\n",
            b":seven\r\n",
            b"$5\r\nab\r\n",
            b"$999999999999\r\n",
            b"*1000000\r\n",
            b"*1\r\n*1\r\n:1\r\n",
        ];
        for says in broken {
            assert!(heard(says).is_err(), "{}", String::from_utf8_lossy(says));
        }
    }
}
