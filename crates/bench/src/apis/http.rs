//! Measures acquire-release cycles over HTTP/JSON.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use tenure_server::os;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::session::us;
use super::{ApiMeasurement, BenchCaller, MeasureTimes};

/// One connection, kept open.
pub(crate) struct HttpConnection {
    stream: BufReader<TcpStream>,
    /// The headers of every request.
    headers: String,
}

impl HttpConnection {
    /// Connects, and presents these credentials with every request.
    pub(crate) async fn open(address: SocketAddr, bearer: Option<&str>) -> Result<Self> {
        let stream = TcpStream::connect(address).await.context("connecting")?;
        stream.set_nodelay(true)?;
        let mut headers = format!("host: {address}\r\ncontent-type: application/json\r\n");
        if let Some(bearer) = bearer {
            headers.push_str(&format!("authorization: Bearer {bearer}\r\n"));
        }
        Ok(Self { stream: BufReader::new(stream), headers })
    }

    /// Sends a request, and returns the body of the response.
    pub(crate) async fn ask(&mut self, verb: &str, path: &str, body: &str) -> Result<String> {
        let (headers, length) = (&self.headers, body.len());
        let request =
            format!("{verb} {path} HTTP/1.1\r\n{headers}content-length: {length}\r\n\r\n{body}");
        self.stream.write_all(request.as_bytes()).await?;
        let (mut line, mut length, mut good) = (String::new(), 0, false);
        loop {
            line.clear();
            self.stream.read_line(&mut line).await?;
            if let Some(status) = line.strip_prefix("HTTP/1.1 ") {
                good = status.starts_with('2');
            } else if let Some((name, value)) = line.split_once(':') {
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse()?;
                }
            } else if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        let body = String::from_utf8(body)?;
        if !good {
            bail!("{verb} {path} was answered {body}");
        }
        Ok(body)
    }
}

/// The value of a field that is a decimal string.
fn field(body: &str, name: &str) -> Result<String> {
    let start = body.find(&format!("\"{name}\":\"")).context("the answer has the field")?;
    let rest = &body[start + name.len() + 4..];
    Ok(rest[..rest.find('"').context("a string ends")?].to_owned())
}

/// Runs acquire-release cycles of several clients, each over a connection of its own, during a warm-up and then during
/// the measurement.
pub(crate) async fn measure(
    address: SocketAddr,
    clients: usize,
    caller: &BenchCaller,
    times: MeasureTimes,
) -> Result<ApiMeasurement> {
    let mut tasks = tokio::task::JoinSet::new();
    for at in 0..clients {
        let lock = format!("bench/http/{clients:04}/{at:08}");
        let bearer = caller.bearer.clone();
        tasks.spawn(async move { cycle(address, lock, bearer.as_deref(), times).await });
    }
    super::gather(tasks, times).await
}

async fn cycle(
    address: SocketAddr,
    lock: String,
    bearer: Option<&str>,
    times: MeasureTimes,
) -> Result<ApiMeasurement> {
    let mut connection = HttpConnection::open(address, bearer).await?;
    let granted = connection.ask("POST", "/v1/leases", r#"{"ttl_ms":3600000,"client":"bench"}"#);
    let lease = field(&granted.await?, "lease")?;
    let (path, body) = (format!("/v1/locks/{lock}"), format!(r#"{{"lease":"{lease}"}}"#));
    let from_us = os::now_us() + us(times.warm_up);
    let end_us = from_us + us(times.measure);
    let (mut latencies_us, mut cycles_in_all) = (Vec::new(), 0);
    loop {
        let began_us = os::now_us();
        if began_us >= end_us {
            return Ok(ApiMeasurement { took: times.measure, latencies_us, cycles_in_all });
        }
        let token = field(&connection.ask("POST", &path, &body).await?, "token")?;
        let release = format!("{path}?lease={lease}&token={token}");
        connection.ask("DELETE", &release, "").await?;
        cycles_in_all += 1;
        if began_us >= from_us {
            latencies_us.push(os::now_us() - began_us);
        }
    }
}
