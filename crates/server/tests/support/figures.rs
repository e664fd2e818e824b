//! What does a member say that it has measured?

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long a member has to show its figures.
const WITHIN: Duration = Duration::from_secs(60);

/// All series that begin so, added up. One that is not shown is a fault, and not zero.
pub(crate) async fn figure(at: SocketAddr, series: &str) -> f64 {
    let found = figure_if_any(at, series).await;
    found.unwrap_or_else(|| panic!("no figure begins with `{series}`"))
}

/// The same where it is no fault: what a member was never asked for, it does not count.
pub(crate) async fn figure_if_any(at: SocketAddr, series: &str) -> Option<f64> {
    let text = tokio::time::timeout(WITHIN, shown(at)).await.expect("the figures come in time");
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
