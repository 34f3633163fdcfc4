//! Strangers without a login: they open connections, ask and do not read, and ask for device logins.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Between two calls of one attacker: the way there and back of a stranger on a network.
pub const BREATH: Duration = Duration::from_millis(10);
/// Connections that say nothing, or half a header, at each of [`MUTE_ADDRESSES`].
const MUTE: usize = 350;
const MUTE_ADDRESSES: u8 = 4;
/// Connections that ask for the log and do not read.
const DEAF: usize = 12;
/// Addresses that ask for device logins.
const DEVICES: u8 = 6;

/// An HTTP client that calls from `127.0.0.last`.
pub fn at(last: u8) -> Result<reqwest::Client> {
    let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
    Ok(reqwest::Client::builder().no_proxy().local_address(from).timeout(Duration::from_secs(20)).build()?)
}

pub fn set_upon(attackers: &mut JoinSet<()>, address: &str) -> Result<()> {
    let to: SocketAddr = address.parse().context("host:port")?;
    for last in 60..60 + MUTE_ADDRESSES {
        for which in 0..MUTE {
            attackers.spawn(mute(to, last, which % 2 == 0));
        }
    }
    for which in 0..DEAF {
        let last = 70 + u8::try_from(which % 3).unwrap_or_default();
        attackers.spawn(deaf(to, last));
    }
    for last in 80..80 + DEVICES {
        let (http, url) = (at(last)?, format!("http://{address}/v1/auth/device"));
        attackers.spawn(async move {
            loop {
                let asked = http.post(&url).json(&serde_json::json!({ "name": "a stranger" })).send().await;
                // A refused connection is tried again when the others had their turn.
                let _ = asked;
                tokio::time::sleep(BREATH).await;
            }
        });
    }
    Ok(())
}

async fn connect(to: SocketAddr, last: u8) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), 0))?;
    socket.connect(to).await
}

/// Keeps a connection open as long as it is let, and comes again.
async fn mute(to: SocketAddr, last: u8, half: bool) {
    loop {
        if let Ok(mut stream) = connect(to, last).await {
            if half {
                let _ = stream.write_all(b"GET /v1/pool HTTP/1.1\r\nHost: 127.0").await;
            }
            let mut rest = [0; 64];
            while matches!(stream.read(&mut rest).await, Ok(read) if read > 0) {}
        }
        // Whoever is turned away at once comes again at a stranger's pace, not at that of this machine's loopback.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Asks for a thousand entries and reads nothing.
async fn deaf(to: SocketAddr, last: u8) {
    loop {
        if let Ok(mut stream) = connect(to, last).await {
            let asked = stream.write_all(b"GET /v1/log/entries?limit=1000 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await;
            if asked.is_ok() {
                // The other side ends it: readable without reading means closed, or bytes that nobody takes.
                let mut peeked = [0; 1];
                let _ = stream.peek(&mut peeked).await;
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
