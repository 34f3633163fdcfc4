//! What a renter asks for, as `lease create` and `run` take it.

use std::collections::BTreeMap;

use selion_api::lease::{OnNodeLoss, Priority, Within, default_cpu_milli, default_ram_bytes};
use selion_api::rest::{Called, DatasetMount, Lease, Network, NewLease, OutputRef, PlainRoot};
use selion_api::seal::Secret;
use selion_api::slice::SliceWant;
use selion_api::{BoxFeature, GpuId, IsolationClass, Licence, MemberWant, NodeId, Rate};

use super::secrets::{Secrets, pin_image};
use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::output::Output;
use crate::session::Session;
use crate::slice::{class, slice};
use crate::unit;

/// Slices, limits and the command.
#[derive(Debug, clap::Args)]
pub struct Ask {
    /// What to lease: a MIG profile (1g.10gb), whole, or share:PERMILLE:MEMORY (share:250:4GiB)
    #[arg(long, value_parser = slice)]
    pub slice: SliceWant,
    /// So many whole GPUs of one model on one node for each process, 1 to 16; only with --slice whole
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16), allow_negative_numbers = true)]
    pub gpus: u16,
    /// How many such slices, all or nothing: more than one is a gang, a process each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64), allow_negative_numbers = true)]
    pub count: u16,
    /// So many of them will do if there is no room for all [default: all]
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub min_count: Option<u16>,
    /// Spread a gang over at least so many nodes
    #[arg(long, value_name = "M", default_value_t = 1)]
    pub min_nodes: u16,
    /// Keep a gang together: what its nodes have in common
    #[arg(long, value_name = "WHAT", default_value = "pool")]
    pub within: Domain,
    /// Keep a gang's nodes so near to each other, there and back by measurement, e.g. 2ms or 500us
    #[arg(long, value_name = "TIME", value_parser = latency)]
    pub max_latency: Option<u32>,
    /// Only GPUs of this model, e.g. "H100 80GB"; may be repeated: any of them
    #[arg(long = "model", value_name = "MODEL")]
    pub models: Vec<String>,
    /// Only nodes in this region; may be repeated: any of them
    #[arg(long = "region", value_name = "REGION")]
    pub regions: Vec<String>,
    /// Only this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<NodeId>,
    /// Only this GPU
    #[arg(long, value_name = "GPU")]
    pub gpu: Option<GpuId>,
    /// Accepted isolation class: mig, capped, mps, shared, whole, simulated; may be repeated [default: all]
    #[arg(long = "class", value_name = "CLASS", value_parser = class)]
    pub classes: Vec<IsolationClass>,
    /// Highest price accepted for each process, all its GPUs together, in tokens per hour, e.g. 0.80
    #[arg(long, value_name = "RATE", value_parser = unit::rate, allow_hyphen_values = true)]
    pub max_rate: Option<Rate>,
    /// Longest running time
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = unit::lease_duration, allow_hyphen_values = true)]
    pub duration: u64,
    /// How long to wait for room; 0s refuses instead
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = unit::duration, allow_hyphen_values = true)]
    pub wait: u64,
    /// Cores beside each slice, e.g. 2 or 0.5
    #[arg(long, value_name = "CORES", value_parser = cores, allow_hyphen_values = true)]
    pub cpu: Option<u32>,
    /// Memory beside each slice, e.g. 4GiB
    #[arg(long, value_name = "MEMORY", value_parser = unit::memory, allow_hyphen_values = true)]
    pub ram: Option<u64>,
    /// Disk beside each slice, e.g. 100GiB [default: none]
    #[arg(long, value_name = "SIZE", value_parser = unit::memory, allow_hyphen_values = true)]
    pub disk: Option<u64>,
    /// Network bandwidth beside each slice, in megabits a second [default: none]
    #[arg(long, value_name = "MBPS", value_parser = unit::count, allow_hyphen_values = true)]
    pub net: Option<u32>,
    /// Only nodes that hold leases to these limits, with commas: cpu, memory, pids, disk, net
    #[arg(long, value_name = "LIMITS", value_parser = limit, value_delimiter = ',')]
    pub enforced: Vec<BoxFeature>,
    /// What to mount read-only at $SELION_DATA_DIR/NAME [default name: data]: a dataset by CID, or the outputs of an
    /// earlier lease as LEASE, LEASE:ATTEMPT or LEASE:ATTEMPT:RANK; may be repeated
    #[arg(long = "data", value_name = "CID|LEASE[:NAME]", value_parser = mount)]
    pub datasets: Vec<DatasetMount>,
    /// What the commands reach beside the members of their gang, whose ports they reach in any case [default: none]
    #[arg(long, value_name = "WHICH")]
    pub network: Option<Reach>,
    /// What you call the lease: letters, digits, `.`, `_` and `-`; of your live leases no other has it. Wherever a command
    /// takes an id it takes this name
    #[arg(long, value_name = "NAME", value_parser = lease_name)]
    pub name: Option<String>,
    /// A label to find it by; may be repeated, up to 16 times. Names and labels stay between you and the controller
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Only nodes that have all these datasets and the image already, as far as the pool knows
    #[arg(long)]
    pub near_data: bool,
    /// Container image to run in: a name in a registry, by digest or by tag, which is resolved once, now; or the CID of an OCI
    /// layout or of what `docker save` wrote, after `selion data add`
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// The root file system without an image: a small one with a shell and the usual tools, or the machine's programs,
    /// where its owner shows them
    #[arg(long, value_name = "WHICH", default_value = "base", conflicts_with = "image")]
    pub root: WhichRoot,
    /// Program in place of the image's, with the arguments after --; empty runs these alone
    #[arg(long, value_name = "PROGRAM", requires = "image")]
    pub entrypoint: Option<String>,
    /// Where the command starts inside [default: as the image says, else $HOME]
    #[arg(long, value_name = "DIR")]
    pub workdir: Option<String>,
    /// As whom, USER\[:GROUP\], each a name or a number of the image [default: as the image says]
    #[arg(long, value_name = "USER", requires = "image")]
    pub user: Option<String>,
    /// Environment variable, which pool and node can read; may be repeated. See --secret
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    #[command(flatten)]
    pub secrets: Secrets,
    /// Hands the secrets to the pool, which keeps them encrypted while the lease lives and can read them: it seals them
    /// for every run, so that no command of yours has to stay
    #[arg(long)]
    pub pool_may_keep_secrets: bool,
    /// What becomes of the lease when a node under it is lost [default: end, of a gang requeue]
    #[arg(long, value_name = "WHAT")]
    pub on_node_loss: Option<NodeLoss>,
    /// Class: an interruptible lease may be stopped for any other, a standard one for firm ones, a firm one for none
    #[arg(long, value_name = "CLASS", default_value = "standard")]
    pub priority: Class,
    /// Licence of which each process takes a seat: an account, and a product by name or as 0x and 64 hex digits
    #[arg(long, value_name = "ISSUER/PRODUCT")]
    pub licence: Option<Licence>,
    /// The program and its arguments; with an image that names a program, the arguments after it
    #[arg(last = true, required_unless_present = "image", value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// A root that is no image.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum WhichRoot {
    /// A shell and the usual tools.
    Base,
    /// The machine's programs and libraries, read-only.
    Machine,
}

/// What commands reach beside the members of their gang.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Reach {
    /// Nothing else.
    None,
    /// The public internet, and nothing of the node or near it.
    Internet,
    /// Not even the other members of its gang.
    Apart,
}

/// What becomes of a lease when a node under it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum NodeLoss {
    /// The lease ends.
    End,
    /// The whole lease waits again, first in line.
    Requeue,
    /// Lost members get other places while the others run on, as long as --min-count of them do; else as requeue.
    Repair,
}

/// What the nodes of a lease have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Domain {
    /// Nothing.
    Pool,
    /// The region.
    Region,
    /// The rack.
    Rack,
    /// The node: it is one.
    Node,
}

/// Class of priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Class {
    /// May be stopped for any other class.
    Interruptible,
    /// May be stopped for firm leases only.
    Standard,
    /// Is never stopped for another lease.
    Firm,
}

/// `CID` or `LEASE[:ATTEMPT[:RANK]]`, and perhaps `:NAME`: of a lease a name that is no number.
fn mount(text: &str) -> Result<DatasetMount, String> {
    let cut = if OutputRef::is_meant(text) {
        let is_name = |part: &str| !part.bytes().all(|byte| byte.is_ascii_digit());
        text.rsplit_once(':').filter(|(_, last)| is_name(last) || last.is_empty())
    } else {
        text.split_once(':')
    };
    let (cid, mount) = cut.unwrap_or((text, "data"));
    if cid.is_empty() || mount.is_empty() {
        return Err(format!(
            "`{text}` is not a dataset to mount; write CID, CID:NAME or LEASE[:ATTEMPT[:RANK]][:NAME]"
        ));
    }
    if OutputRef::is_meant(cid) {
        cid.parse::<OutputRef>()?;
    }
    Ok(DatasetMount { cid: cid.to_owned(), mount: mount.to_owned() })
}

/// Puts CIDs where outputs are named by lease: what is signed names content.
async fn name_outputs(session: &Session, datasets: &mut [DatasetMount]) -> Done {
    for data in datasets {
        let Ok(meant) = data.cid.parse::<OutputRef>() else { continue };
        let lease = session.client.lease(meant.lease).await?;
        let chosen = meant.choose(&lease.outputs).map_err(|why| {
            let next = format!("`selion lease outputs {}` shows what there is", meant.lease);
            Failure::new(Exit::Conflict, "no_outputs", why, next)
        })?;
        data.cid = chosen.cid.clone().unwrap_or_default();
    }
    Ok(())
}

/// A name for a lease.
fn lease_name(text: &str) -> Result<String, String> {
    let called = Called { name: Some(text.to_owned()), ..Called::default() };
    called.check().map(|()| text.to_owned()).map_err(|(_, why)| why)
}

/// `KEY=VALUE`, a label.
pub fn label(text: &str) -> Result<(String, String), String> {
    let Some((key, value)) = text.split_once('=') else {
        return Err(format!("`{text}` is not a label; write KEY=VALUE"));
    };
    let one = (key.to_owned(), value.to_owned());
    let called = Called { labels: [one.clone()].into(), ..Called::default() };
    called.check().map(|()| one).map_err(|(_, why)| why)
}

/// `NAME=VALUE`, the name as programs can read it.
fn variable(text: &str) -> Result<(String, String), String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(format!("`{text}` is not an environment variable; write NAME=VALUE"));
    };
    let first = name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    if !first || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        let form = "letters, digits and _, the first no digit";
        return Err(format!("`{name}` is not the name of an environment variable ({form}); write NAME=VALUE"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Limits that a request may demand.
const LIMITS: [BoxFeature; 5] =
    [BoxFeature::Cpu, BoxFeature::Memory, BoxFeature::Pids, BoxFeature::Disk, BoxFeature::Net];

fn limit(text: &str) -> Result<BoxFeature, String> {
    let found = LIMITS.into_iter().find(|one| one.code() == text);
    found.ok_or_else(|| format!("`{text}` is no limit; write cpu, memory, pids, disk or net"))
}

/// Milliseconds or microseconds, in microseconds.
fn latency(text: &str) -> Result<u32, String> {
    let known = [("ms", 1_000), ("us", 1)];
    let us = known.into_iter().find_map(|(unit, us)| text.strip_suffix(unit)?.parse::<u32>().ok()?.checked_mul(us));
    us.filter(|us| *us > 0).ok_or_else(|| format!("`{text}` is not a latency; write 2ms or 500us"))
}

/// Cores with up to three decimals, in thousandths.
fn cores(text: &str) -> Result<u32, String> {
    let bad = || format!("`{text}` is not a number of cores; write 2 or 0.5");
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 3 {
        return Err(bad());
    }
    let part: u32 = format!("{part:0<3}").parse().map_err(|_| bad())?;
    let milli = whole.parse::<u32>().ok().and_then(|whole| whole.checked_mul(1_000)?.checked_add(part));
    milli.ok_or_else(bad)
}

impl Ask {
    /// The request, not signed yet.
    pub fn request(self) -> NewLease {
        let member = MemberWant {
            gpus: self.gpus,
            models: self.models,
            node: self.node,
            gpu: self.gpu,
            cpu_milli: self.cpu.unwrap_or_else(default_cpu_milli),
            ram_bytes: self.ram.unwrap_or_else(default_ram_bytes),
            disk_bytes: self.disk.unwrap_or(0),
            net_mbps: self.net.unwrap_or(0),
            ..MemberWant::of(self.slice)
        };
        let classes = if self.classes.is_empty() { IsolationClass::ALL.to_vec() } else { self.classes };
        NewLease {
            members: vec![member; usize::from(self.count)],
            min_members: self.min_count,
            min_nodes: self.min_nodes,
            within: match self.within {
                Domain::Pool => Within::Pool,
                Domain::Region => Within::Region,
                Domain::Rack => Within::Rack,
                Domain::Node => Within::Node,
            },
            max_latency_us: self.max_latency,
            regions: self.regions,
            max_rate: self.max_rate,
            classes,
            duration_ms: self.duration,
            wait_ms: self.wait,
            on_node_loss: self.on_node_loss.map(|what| match what {
                NodeLoss::End => OnNodeLoss::End,
                NodeLoss::Requeue => OnNodeLoss::Requeue,
                NodeLoss::Repair => OnNodeLoss::Repair,
            }),
            priority: match self.priority {
                Class::Interruptible => Priority::Interruptible,
                Class::Standard => Priority::Standard,
                Class::Firm => Priority::Firm,
            },
            licence: self.licence,
            command: self.command,
            image: self.image,
            root: match self.root {
                WhichRoot::Base => PlainRoot::Base,
                WhichRoot::Machine => PlainRoot::Machine,
            },
            entrypoint: self.entrypoint.map(|program| if program.is_empty() { Vec::new() } else { vec![program] }),
            working_dir: self.workdir,
            user: self.user,
            enforced: self.enforced,
            env: self.env.into_iter().collect::<BTreeMap<_, _>>(),
            secrets: self.secrets.names(),
            pool_may_keep_secrets: self.pool_may_keep_secrets,
            datasets: self.datasets,
            network: self.network.map(|network| match network {
                Reach::None => Network::None,
                Reach::Internet => Network::Internet,
                Reach::Apart => Network::Apart,
            }),
            name: self.name,
            labels: self.labels.into_iter().collect(),
            near_data: self.near_data,
            salt: None,
            signature: None,
        }
    }

    /// Signs the request, where the account's key is at hand, and asks for the lease. What was promised with it is kept. With
    /// the lease comes what is to be sealed for it.
    pub async fn create(self, out: Output, session: &Session) -> Done<(Lease, Vec<Secret>)> {
        let key = selion_client::fresh_key()?;
        let secrets = self.secrets.read(self.image.as_deref())?;
        let mut request = self.request();
        pin_image(&mut request, &secrets).await?;
        name_outputs(session, &mut request.datasets).await?;
        session.expect_promises().await?;
        let client = &session.client;
        let lease = match session.wallet()? {
            None => client.create_lease(&key, &request).await?,
            Some(wallet) => client.create_signed_lease(&wallet, &session.pool_id(), &key, &mut request).await?,
        };
        if let Err(failure) = session.keep_promises() {
            out.note(format!("the promise of {} could not be kept: {}", lease.id, failure.body().detail));
        }
        Ok((lease, secrets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_forms_are_read_and_wrong_ones_named() {
        assert_eq!(cores("2"), Ok(2_000));
        assert_eq!(cores("0.5"), Ok(500));
        assert!(cores("half").unwrap_err().contains("write 2 or 0.5"));
        assert!(cores("1.2345").is_err() && cores("-1").is_err() && cores("99999999").is_err());
        assert_eq!(limit("memory"), Ok(BoxFeature::Memory));
        assert!(limit("images").unwrap_err().contains("write cpu, memory, pids, disk or net"));
        assert_eq!((latency("2ms"), latency("500us")), (Ok(2_000), Ok(500)));
        assert!(latency("0ms").is_err() && latency("2").unwrap_err().contains("write 2ms"));
        assert_eq!(mount("bafy").map(|mount| mount.mount), Ok("data".to_owned()));
        assert_eq!(mount("bafy:in").map(|mount| mount.mount), Ok("in".to_owned()));
        assert!(mount(":in").is_err() && mount("bafy:").is_err());
        let both = |text| mount(text).map(|mount| (mount.cid, mount.mount));
        for (text, cid, name) in [
            ("lease-12-0", "lease-12-0", "data"),
            ("lease-12-0:2:1", "lease-12-0:2:1", "data"),
            ("lease-12-0:2:ckpt", "lease-12-0:2", "ckpt"),
            ("lease-12-0:ckpt", "lease-12-0", "ckpt"),
        ] {
            assert_eq!(both(text), Ok((cid.to_owned(), name.to_owned())));
        }
        assert!(mount("lease-12-0:1:2:3").is_err() && mount("lease-12-0:").is_err());
        assert_eq!(label("team=a=b"), Ok(("team".to_owned(), "a=b".to_owned())));
        assert!(label("team").unwrap_err().contains("write KEY=VALUE") && label("a:b=c").is_err());
        assert!(lease_name("train-7").is_ok() && lease_name("lease-1-0").is_err() && lease_name("..").is_err());
        assert_eq!(variable("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        for bad in ["=b", "A", "A B=1", " A=1", "1A=1", "A-B=1", "A\n=1"] {
            assert!(variable(bad).unwrap_err().contains("write NAME=VALUE"), "{bad}");
        }
    }
}
