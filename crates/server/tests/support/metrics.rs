//! Reads the metrics of a member.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long a member may take to return its metrics.
const WITHIN: Duration = Duration::from_secs(60);

/// The sum of all series whose lines begin with this text. A missing series is an error, not zero.
pub(crate) async fn metric(at: SocketAddr, series: &str) -> f64 {
    let found = metric_if_any(at, series).await;
    found.unwrap_or_else(|| panic!("no series begins with `{series}`"))
}

/// The same without the error: a member does not show a metric of requests that it never received.
pub(crate) async fn metric_if_any(at: SocketAddr, series: &str) -> Option<f64> {
    let text = tokio::time::timeout(WITHIN, shown(at)).await.expect("the metrics come in time");
    let lines = text.lines().filter(|line| line.starts_with(series));
    let number = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap();
    lines.map(number).reduce(|sum, each| sum + each)
}

async fn shown(at: SocketAddr) -> String {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let ask = format!("GET /metrics HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 200 ") && said.ends_with("# EOF\n"), "{said}");
    said
}
