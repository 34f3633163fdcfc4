//! `selion node`: the machines of the pool.

use selion_api::rest::{NodeView, Reclaim};
use selion_api::{GpuId, NodeId};
use selion_client::PageQuery;

use crate::failure::Done;
use crate::output::Output;
use crate::session::Session;
use crate::slice::show_slot;
use crate::unit::{duration, show_size, show_time};

/// Shows the pool's nodes; their owner pauses them, takes them back and resumes them.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// All nodes
    List,
    /// One node, its GPUs and who holds what
    Show {
        /// Its id
        node: NodeId,
    },
    /// No new leases on a node of yours; running ones go on
    Pause {
        /// Its id
        node: NodeId,
    },
    /// Take a node of yours back, or one GPU of it: no new leases, and what still runs there in the end is stopped
    Reclaim {
        /// Its id
        node: NodeId,
        /// Only this GPU
        #[arg(long)]
        gpu: Option<GpuId>,
        /// What runs may go on for so long: 0s stops it at once
        #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
        by: u64,
    },
    /// New leases again; nothing is taken back any more
    Resume {
        /// Its id
        node: NodeId,
    },
}

/// Runs the sub-command.
pub async fn main(out: Output, command: Command) -> Done {
    let session = Session::open()?;
    let client = &session.client;
    let show = |node: &NodeView| detail(out, node);
    if matches!(command, Command::Pause { .. } | Command::Reclaim { .. } | Command::Resume { .. }) {
        session.sign_words()?;
    }
    match command {
        Command::List => list(out, &session).await,
        Command::Show { node } => out.show(&client.node(node).await?, show),
        Command::Pause { node } => out.show(&client.pause_node(node).await?, show),
        Command::Reclaim { node, gpu, by } => {
            let reclaim = Reclaim { gpu, notice_ms: by, ..Reclaim::default() };
            out.show(&client.reclaim_node(node, &reclaim).await?, show)
        }
        Command::Resume { node } => out.show(&client.resume_node(node).await?, show),
    }
}

async fn list(out: Output, session: &Session) -> Done {
    let mut nodes = Vec::new();
    let mut page = PageQuery { page_size: Some(500), page_token: None };
    loop {
        let answer = session.client.nodes(&page).await?;
        nodes.extend(answer.nodes);
        match answer.next_page_token {
            Some(token) => page.page_token = Some(token),
            None => break,
        }
    }
    out.show(&serde_json::json!({ "nodes": nodes }), |_| {
        let rows = nodes.iter().map(|node| {
            let models: Vec<&str> = node.gpus.iter().map(|gpu| gpu.spec.model.as_str()).collect();
            let used: usize = node.gpus.iter().map(|gpu| gpu.slots.len()).sum();
            [node.node.to_string(), standing(node), models.join(", "), used.to_string(), node.region.clone()]
        });
        out.table(["NODE", "STANDING", "GPUS", "SLOTS HELD", "REGION"], rows.collect(), "the pool has no nodes yet")
    })
}

fn standing(node: &NodeView) -> String {
    match (node.schedulable, node.reason) {
        (true, _) => "schedulable".to_owned(),
        (false, Some(reason)) => reason.to_string(),
        (false, None) => "not schedulable".to_owned(),
    }
}

fn detail(out: Output, node: &NodeView) -> String {
    let link = if node.linked { "linked" } else { "not linked" };
    let why = node.reason.map(|reason| format!(": {}", reason.text())).unwrap_or_default();
    let paused = if node.paused { ", paused by its owner" } else { "" };
    let mut text = format!(
        "node {} of {}\n{}{why}\n{link} since {}{paused}\n{} of {} cores, {} of {} memory, {} of {} disk and {} of {} Mbit/s leased\n",
        node.node,
        node.provider,
        standing(node),
        show_time(node.since_ms),
        show_cores(node.cpu_milli_used),
        show_cores(node.cpu_milli),
        show_size(node.ram_bytes_used),
        show_size(node.ram_bytes),
        show_size(node.disk_bytes_used),
        show_size(node.disk_bytes),
        node.net_mbps_used,
        node.net_mbps,
    );
    let features: Vec<&str> = node.features.iter().map(|feature| feature.code()).collect();
    let features = if features.is_empty() { "nothing".to_owned() } else { features.join(", ") };
    text.push_str(&format!("its box gives and holds: {features}\n"));
    for back in &node.reclaimed {
        let what = back.gpu.map_or_else(|| "all of it".to_owned(), |gpu| gpu.to_string());
        text.push_str(&format!("taken back by its owner: {what}, at {}\n", show_time(back.by_ms)));
    }
    for gpu in &node.gpus {
        let simulated = if gpu.spec.simulated { ", simulated" } else { "" };
        text.push_str(&format!("\n{} {}{simulated}\n", gpu.spec.gpu, gpu.spec.model));
        let rows =
            gpu.slots.iter().map(|held| [show_slot(&held.slot), held.lease.to_string(), held.member.to_string()]);
        text.push_str(&out.table(["SLOT", "LEASE", "MEMBER"], rows.collect(), "nothing leased"));
        text.push('\n');
    }
    text
}

fn show_cores(milli: u32) -> String {
    format!("{}.{}", milli / 1_000, milli % 1_000 / 100)
}
