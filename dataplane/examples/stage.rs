//! How fast is staging, next to a plain copy of the same file in the same run?
//!
//! `cargo run --release -p selion-dataplane --example stage [MIB] [FOLDER]`
//!
//! Every line reads from disk files and ends with the bytes on the disk (`syncfs`); the page cache is as warm for
//! one as for the other. The HTTP line runs client and gateway on the same cores.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use selion_dataplane::{Fetcher, HttpGateway, Store, gateway};

const ROUNDS: usize = 3;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mib: u64 = arguments.next().as_deref().unwrap_or("512").parse()?;
    let base: PathBuf = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(base)?;
    let source = dir.path().join("source");
    write_source(&source, mib)?;
    println!("{mib} MiB, best of {ROUNDS}");

    let from = Store::open(dir.path().join("from"))?;
    let mut best = Best::default();
    let mut root = None;
    for round in 0..ROUNDS {
        let at = |name: &str| dir.path().join(format!("{name}-{round}"));

        let start = Instant::now();
        fs::copy(&source, at("copy"))?;
        sync(dir.path())?;
        best.copy(start);

        let fresh = Store::open(at("added"))?;
        let start = Instant::now();
        fresh.add_path(&source)?;
        best.line("add: file -> store", start);
        fs::remove_dir_all(at("added"))?;

        let cid = match root {
            Some(cid) => cid,
            None => from.add_path(&source)?,
        };
        root = Some(cid);
        let start = Instant::now();
        from.export(&cid, at("exported"))?;
        sync(dir.path())?;
        best.line("export: store -> file, verified", start);

        let staged = Store::open(at("staged"))?;
        let start = Instant::now();
        Fetcher::new(staged.clone(), vec![Arc::new(from.clone())]).fetch(&cid).await?;
        best.line("fetch: store -> store, verified", start);
        fs::remove_dir_all(at("staged"))?;

        let (url, server) = serve(from.clone()).await?;
        let staged = Store::open(at("staged"))?;
        let start = Instant::now();
        Fetcher::new(staged.clone(), vec![Arc::new(HttpGateway::new(&url, None)?)]).fetch(&cid).await?;
        best.line("fetch: HTTP gateway -> store, verified", start);
        server.abort();
        for name in ["copy", "exported"] {
            fs::remove_file(at(name))?;
        }
        fs::remove_dir_all(at("staged"))?;
    }
    best.print(mib);
    Ok(())
}

fn write_source(path: &Path, mib: u64) -> Result<(), Box<dyn Error>> {
    use std::io::Write;
    let mut file = File::create(path)?;
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut chunk = vec![0u8; 1 << 20];
    for _ in 0..mib {
        for word in chunk.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        file.write_all(&chunk)?;
    }
    file.sync_all()?;
    Ok(())
}

fn sync(dir: &Path) -> Result<(), Box<dyn Error>> {
    nix::unistd::syncfs(File::open(dir)?)?;
    Ok(())
}

async fn serve(store: Store) -> Result<(String, tokio::task::JoinHandle<()>), Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let server = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, gateway::router(store)).await {
            eprintln!("the gateway stopped: {error}");
        }
    });
    Ok((url, server))
}

#[derive(Default)]
struct Best {
    copy: f64,
    lines: Vec<(&'static str, f64)>,
}

impl Best {
    fn copy(&mut self, start: Instant) {
        let seconds = start.elapsed().as_secs_f64();
        if self.copy == 0.0 || seconds < self.copy {
            self.copy = seconds;
        }
    }

    fn line(&mut self, name: &'static str, start: Instant) {
        let seconds = start.elapsed().as_secs_f64();
        match self.lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, best)) => *best = best.min(seconds),
            None => self.lines.push((name, seconds)),
        }
    }

    fn print(&self, mib: u64) {
        let speed = |seconds: f64| mib as f64 * 1.048_576 / seconds;
        println!("{:<42}{:>8.0} MB/s", "plain copy (fs::copy)", speed(self.copy));
        for (name, seconds) in &self.lines {
            println!("{name:<42}{:>8.0} MB/s  {:>5.2} of the copy", speed(*seconds), self.copy / seconds);
        }
    }
}
