//! The ends of a network for this crate's tests.
//!
//! `world serve ADDRESS...` answers at these addresses: on port 53 as a server of names, on 81 as who dials another, on 82
//! with much, on the rest of [`PORTS`] with a word. `world reach TARGET...` is a command in a box: it tells what came of each
//! target, `HOST:PORT`. `world listen PORT` answers there until it is ended. `world raw` tries sockets that reach past the
//! kernel's own protocols. `world abstract NAME` looks for an abstract socket. `world fetch HOST:PORT` counts what it gets.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::time::Duration;

const PORTS: [u16; 5] = [25, 80, 465, 587, 7777];
const NAMES: u16 = 53;
const DIALLER: u16 = 81;
const MUCH: u16 = 82;
/// Bytes that are much.
const MEASURE: usize = 2 << 20;
/// Longest wait for an answer.
const WITHIN: Duration = Duration::from_millis(1_500);
/// The address of every name.
const FOUND: [u8; 4] = [45, 9, 9, 9];

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((what, rest)) = args.split_first() else { return Err(io::Error::other("serve, reach, listen, raw ...")) };
    match what.as_str() {
        "serve" => serve(rest),
        "listen" => listen(rest),
        "reach" => {
            rest.iter().for_each(|target| tell(target));
            Ok(())
        }
        "raw" => {
            raw();
            Ok(())
        }
        "abstract" => {
            let address = std::os::unix::net::SocketAddr::from_abstract_name(&rest[0])?;
            println!("{}", word(std::os::unix::net::UnixStream::connect_addr(&address).map(|_| String::from("here"))));
            Ok(())
        }
        "fetch" => {
            let mut all = Vec::new();
            TcpStream::connect(&rest[0])?.read_to_end(&mut all)?;
            println!("{}", all.len());
            Ok(())
        }
        _ => Err(io::Error::other("no such word")),
    }
}

fn serve(addresses: &[String]) -> io::Result<()> {
    for address in addresses {
        let at = |port: u16| {
            format!("{}:{port}", if address.contains(':') { format!("[{address}]") } else { address.clone() })
        };
        for port in PORTS {
            answer(TcpListener::bind(at(port))?, |mut peer| peer.write_all(b"here"));
            echo(UdpSocket::bind(at(port))?, |_| b"here".to_vec());
        }
        answer(TcpListener::bind(at(DIALLER))?, |mut peer| {
            let mut target = [0; 64];
            let read = peer.read(&mut target)?;
            let target = String::from_utf8_lossy(&target[..read]).into_owned();
            peer.write_all(word(by_tcp(&target)).as_bytes())
        });
        answer(TcpListener::bind(at(MUCH))?, |mut peer| peer.write_all(&vec![0; MEASURE]));
        echo(UdpSocket::bind(at(NAMES))?, name);
    }
    println!("up");
    loop {
        std::thread::park();
    }
}

fn listen(ports: &[String]) -> io::Result<()> {
    for port in ports {
        answer(TcpListener::bind(format!("0.0.0.0:{port}"))?, |mut peer| peer.write_all(b"here"));
        echo(UdpSocket::bind(format!("0.0.0.0:{port}"))?, |_| b"here".to_vec());
    }
    println!("up");
    loop {
        std::thread::park();
    }
}

fn answer(at: TcpListener, with: fn(TcpStream) -> io::Result<()>) {
    std::thread::spawn(move || {
        for peer in at.incoming().flatten() {
            std::thread::spawn(move || with(peer));
        }
    });
}

fn echo(at: UdpSocket, with: fn(&[u8]) -> Vec<u8>) {
    std::thread::spawn(move || {
        let mut asked = [0; 1024];
        while let Ok((read, peer)) = at.recv_from(&mut asked) {
            let _ = at.send_to(&with(&asked[..read]), peer);
        }
    });
}

/// Answers a question for an address (type 1), and says of another that there is none.
fn name(asked: &[u8]) -> Vec<u8> {
    let Some(end) = asked.get(12..).and_then(|names| names.iter().position(|byte| *byte == 0)) else {
        return Vec::new();
    };
    let question = &asked[12..(12 + end + 5).min(asked.len())];
    let is_address = question.ends_with(&[0, 1, 0, 1]);
    let mut said = asked[..2].to_vec();
    said.extend([0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    said.extend(question);
    if is_address {
        said.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4]);
        said.extend(FOUND);
    }
    said
}

fn tell(target: &str) {
    println!("{target} tcp {}", word(by_tcp(target)));
    println!("{target} udp {}", word(by_udp(target)));
}

fn word(came: io::Result<String>) -> String {
    came.unwrap_or_else(|error| format!("{:?}", error.kind()))
}

fn find(target: &str) -> io::Result<SocketAddr> {
    target.to_socket_addrs()?.next().ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn by_tcp(target: &str) -> io::Result<String> {
    let mut peer = TcpStream::connect_timeout(&find(target)?, WITHIN)?;
    peer.set_read_timeout(Some(WITHIN))?;
    let mut said = String::new();
    peer.read_to_string(&mut said)?;
    Ok(said)
}

fn by_udp(target: &str) -> io::Result<String> {
    let target = find(target)?;
    let socket = UdpSocket::bind(if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.set_read_timeout(Some(WITHIN))?;
    socket.send_to(b"?", target)?;
    let mut said = [0; 64];
    let (read, _) = socket.recv_from(&mut said)?;
    Ok(String::from_utf8_lossy(&said[..read]).into_owned())
}

/// Raw sockets of both families, packets as they are on the wire, and the kernel's own echo.
fn raw() {
    for (name, family, kind, protocol) in [
        ("raw-icmp", libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP),
        ("raw-tcp", libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_TCP),
        ("raw-ip", libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW),
        ("raw-icmp6", libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6),
        ("packet", libc::AF_PACKET, libc::SOCK_RAW, 0x0300),
        ("packet-dgram", libc::AF_PACKET, libc::SOCK_DGRAM, 0x0300),
        ("ping", libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP),
        ("vsock", libc::AF_VSOCK, libc::SOCK_STREAM, 0),
    ] {
        // SAFETY: no memory is passed.
        let socket = unsafe { libc::socket(family, kind, protocol) };
        println!("{name} {}", if socket < 0 { word(Err(io::Error::last_os_error())) } else { "open".into() });
    }
}
