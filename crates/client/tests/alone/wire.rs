//! Puts a wire between a client and a member that a test can cut or freeze.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to bytes and connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WireState {
    /// Everything arrives.
    Whole,
    /// Connections stay open, and new ones open; nothing arrives.
    Frozen,
    /// Connections end, and new ones are closed at once.
    Cut,
}

pub(crate) struct Wire {
    address: SocketAddr,
    state: Arc<watch::Sender<WireState>>,
}

impl Wire {
    /// Listens on a port of its own and passes everything on to `member`. Needs a runtime of several threads.
    pub(crate) fn to(member: SocketAddr) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(watch::Sender::new(WireState::Whole));
        let accepting = state.clone();
        tokio::spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((client, _)) = listener.accept().await {
                let state = accepting.subscribe();
                if *state.borrow() != WireState::Cut {
                    tokio::spawn(connect(client, member, state));
                }
            }
        });
        Self { address, state }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn set(&self, state: WireState) {
        self.state.send_replace(state);
    }
}

async fn connect(mut client: TcpStream, member: SocketAddr, mut state: watch::Receiver<WireState>) {
    let Ok(mut server) = TcpStream::connect(member).await else { return };
    let (mut up, mut down) = ([0; 16 * 1024], [0; 16 * 1024]);
    loop {
        let now = *state.borrow_and_update();
        tokio::select! {
            _ = state.changed() => {}
            read = client.read(&mut up), if now == WireState::Whole => match read {
                Ok(len) if len > 0 && server.write_all(&up[..len]).await.is_ok() => {}
                _ => return,
            },
            read = server.read(&mut down), if now == WireState::Whole => match read {
                Ok(len) if len > 0 && client.write_all(&down[..len]).await.is_ok() => {}
                _ => return,
            },
        }
        if *state.borrow() == WireState::Cut {
            return;
        }
    }
}
