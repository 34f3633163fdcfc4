//! What the node says it is: facts of its GPUs, the owner's prices, the sandbox that works.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::RangeInclusive;

use selion_api::slice::{MigProfile, MigTable, Sandbox, ShareTerms};
use selion_api::{Account, GpuSpec, NodeId, NodeSpec, Rate};

use crate::config::{Config, Prices};
use crate::error::AgentError;
use crate::gpus::{GpuFacts, ModelMig, catalog};

/// What a card may do, in thousandths of an A100 80GB: a thousand of those is beyond any.
const WORK: RangeInclusive<u32> = 1..=1_000_000;

/// The node's spec. Equal inputs give equal specs: the offer on chain carries its hash.
///
/// # Errors
///
/// [`AgentError::UnknownWork`], if neither our table nor the owner says how fast a card is.
pub fn node_spec(
    config: &Config,
    node: NodeId,
    provider: Account,
    gpus: &[GpuFacts],
    sandbox: Sandbox,
) -> Result<NodeSpec, AgentError> {
    let gpus = with_work(&config.work, gpus)?;
    Ok(NodeSpec {
        node,
        provider,
        gpus: gpus.iter().map(|(facts, work)| gpu_spec(facts, *work, &config.prices)).collect(),
        cpu_milli: config.cpu_milli.unwrap_or_else(detected_cpu_milli),
        ram_bytes: config.ram_bytes.unwrap_or_else(detected_ram_bytes),
        address: config.address.clone(),
        port_base: config.port_base,
        ports: config.ports,
        sandbox,
        features: selion_api::BoxFeatures::NONE,
        region: config.region.clone(),
        rack: config.rack.clone(),
        disk_bytes: config.disk_bytes,
        net_mbps: config.net_mbps,
    })
}

/// Each card with its work: what the owner states, else what is known of its model.
fn with_work<'a>(stated: &BTreeMap<String, u32>, gpus: &'a [GpuFacts]) -> Result<Vec<(&'a GpuFacts, u32)>, AgentError> {
    let work = |facts: &GpuFacts| stated.get(&facts.model).copied().or(facts.work_milli);
    let unknown: BTreeSet<&str> =
        gpus.iter().filter(|facts| work(facts).is_none()).map(|facts| facts.model.as_str()).collect();
    if !unknown.is_empty() {
        return Err(AgentError::UnknownWork { models: unknown.into_iter().map(str::to_owned).collect() });
    }
    Ok(gpus.iter().filter_map(|facts| Some((facts, work(facts)?))).collect())
}

/// Refuses a figure of work that no card has, and one for a model that is not here and that nobody knows.
///
/// # Errors
///
/// [`AgentError::Config`].
pub fn known_work(config: &Config, gpus: &[GpuFacts]) -> Result<(), AgentError> {
    if let Some((name, work)) = config.work.iter().find(|(_, work)| !WORK.contains(work)) {
        let said = format!(
            "work of {name:?} is {work}; it is 1 to {} thousandths of an A100 80GB (--work {name:?}=0.25 is 250)",
            WORK.end()
        );
        return Err(AgentError::Config(said));
    }
    known_names("work", config.work.keys(), gpus)
}

/// Refuses a price for a model that no GPU here is and that nobody knows: it would be left out without a word.
///
/// # Errors
///
/// [`AgentError::Config`], naming the models there are.
pub fn known_models(prices: &Prices, gpus: &[GpuFacts]) -> Result<(), AgentError> {
    known_names("prices.whole", prices.whole.keys(), gpus)
}

fn known_names<'a>(
    table: &str,
    mut names: impl Iterator<Item = &'a String>,
    gpus: &[GpuFacts],
) -> Result<(), AgentError> {
    let here = |name: &String| gpus.iter().any(|facts| facts.model == *name);
    match names.find(|name| !here(name) && catalog::model(name).is_err()) {
        None => Ok(()),
        Some(name) => {
            let models: Vec<&str> = gpus.iter().map(|facts| facts.model.as_str()).collect();
            let known = catalog::model(name).err().map_or_else(String::new, |error| format!("; {error}"));
            let said = format!("{table} names {name:?}; the GPUs here are {}{known}", models.join(", "));
            Err(AgentError::Config(said))
        }
    }
}

fn gpu_spec(facts: &GpuFacts, work_milli: u32, prices: &Prices) -> GpuSpec {
    let whole =
        prices.whole.get(&facts.model).copied().unwrap_or_else(|| part(prices.per_work, u64::from(work_milli), 1_000));
    GpuSpec {
        gpu: facts.gpu,
        model: facts.model.clone(),
        mem_bytes: facts.mem_bytes,
        work_milli,
        simulated: facts.simulated,
        whole: Some(whole),
        mig: facts.mig.as_ref().map(|mig| mig_table(mig, whole)),
        share: facts.share.map(|(class, max_shares)| ShareTerms {
            rate: part(whole, prices.share_permille, 1_000),
            max_shares,
            class,
        }),
    }
}

/// A profile asks its part of the GPU's memory slices, rounded up.
fn mig_table(mig: &ModelMig, whole: Rate) -> MigTable {
    let profiles = mig.profiles.iter().map(|profile| MigProfile {
        name: profile.name.clone(),
        starts: profile.starts.clone(),
        size: profile.size,
        compute_slices: profile.compute_slices,
        max_instances: profile.max_instances,
        mem_bytes: profile.mem_bytes,
        rate: part(whole, u64::from(profile.size), u64::from(mig.mem_slices)),
    });
    MigTable { mem_slices: mig.mem_slices, compute_slices: mig.compute_slices, profiles: profiles.collect() }
}

/// `ceil(rate * over / under)`, stopping at the largest rate.
fn part(rate: Rate, over: u64, under: u64) -> Rate {
    let exact = (u128::from(rate.0) * u128::from(over)).div_ceil(u128::from(under.max(1)));
    Rate(u64::try_from(exact).unwrap_or(u64::MAX))
}

/// Every core that this process may use.
fn detected_cpu_milli() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores).unwrap_or(u32::MAX / 1_000).saturating_mul(1_000)
}

/// `MemTotal` of `/proc/meminfo`, down to whole MiB; 1 GiB where it cannot be read.
fn detected_ram_bytes() -> u64 {
    let kib = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    kib.map_or(1 << 30, |kib| (kib / 1_024) << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::Simulated;

    fn spec(models: &[&str], prices: Prices) -> NodeSpec {
        let models: Vec<String> = models.iter().map(|model| (*model).into()).collect();
        let gpus = Simulated::new(&models, b"node").unwrap();
        let facts: Vec<_> = gpus.facts().cloned().collect();
        let config = Config { prices, cpu_milli: Some(4_000), ram_bytes: Some(1 << 30), ..Config::default() };
        node_spec(&config, NodeId([1; 20]), Account([2; 20]), &facts, Sandbox::Namespaces).unwrap()
    }

    #[test]
    fn a_profile_asks_its_part_of_the_memory_slices_rounded_up() {
        let prices = Prices { whole: [("A100 80GB".into(), Rate(1_000_001))].into(), ..Prices::default() };
        let spec = spec(&["A100 80GB"], prices);
        let mig = spec.gpus[0].mig.as_ref().unwrap();
        let rate = |name: &str| mig.profiles.iter().find(|profile| profile.name == name).unwrap().rate;
        assert_eq!(rate("1g.10gb"), Rate(125_001));
        assert_eq!(rate("3g.40gb"), Rate(500_001));
        assert_eq!(rate("7g.80gb"), Rate(1_000_001));
    }

    #[test]
    fn a_model_without_a_price_costs_its_work() {
        let spec = spec(&["A100 80GB", "RTX 4090 24GB"], Prices::default());
        let whole: Vec<_> = spec.gpus.iter().map(|gpu| gpu.whole).collect();
        assert_eq!(whole, [Some(Rate(1_000_000)), Some(Rate(530_000))]);
        assert!(spec.gpus[1].mig.is_none(), "a 4090 cannot do MIG");
    }

    #[test]
    fn a_price_for_a_model_that_nobody_knows_is_refused_with_those_there_are() {
        let gpus = Simulated::new(&["H100 80GB".to_owned()], b"node").unwrap();
        let facts: Vec<_> = gpus.facts().cloned().collect();
        let priced = |name: &str| {
            known_models(&Prices { whole: [(name.to_owned(), Rate(1))].into(), ..Prices::default() }, &facts)
        };
        assert!(priced("H100 80GB").is_ok());
        assert!(priced("A100 80GB").is_ok(), "a known model may be priced before it is there");
        let said = priced("H100").unwrap_err().to_string();
        assert!(said.contains("prices.whole names \"H100\"; the GPUs here are H100 80GB"), "{said}");
    }

    /// A card of which no table says anything.
    fn unknown_card() -> Vec<GpuFacts> {
        let gpus = Simulated::new(&["T4 16GB".to_owned()], b"node").unwrap();
        let facts = gpus.facts().next().unwrap().clone();
        vec![GpuFacts {
            model: "RTX A4000".into(),
            work_milli: None,
            simulated: false,
            mig: None,
            share: None,
            ..facts
        }]
    }

    #[test]
    fn a_card_that_nobody_knows_is_not_offered_before_its_owner_says_what_it_does() {
        let spec = |config: &Config| {
            node_spec(config, NodeId([1; 20]), Account([2; 20]), &unknown_card(), Sandbox::Namespaces)
        };
        let said = spec(&Config::default()).unwrap_err().to_string();
        assert!(said.contains("\"RTX A4000\"") && said.contains("--work \"RTX A4000=0.25\""), "{said}");
        let stated = Config { work: [("RTX A4000".into(), 250)].into(), ..Config::default() };
        let gpu = spec(&stated).unwrap().gpus.remove(0);
        assert_eq!((gpu.work_milli, gpu.whole), (250, Some(Rate(250_000))), "its own work, and no A100's ask");
        let whole = [("RTX A4000".into(), Rate(7))].into();
        let priced = Config { prices: Prices { whole, ..Prices::default() }, ..stated };
        assert_eq!(spec(&priced).unwrap().gpus[0].whole, Some(Rate(7)));
    }

    #[test]
    fn work_that_no_card_has_and_work_of_a_card_that_nobody_knows_are_refused() {
        let stated = |name: &str, work| {
            known_work(&Config { work: [(name.to_owned(), work)].into(), ..Config::default() }, &unknown_card())
        };
        assert!(stated("RTX A4000", 250).is_ok());
        assert!(stated("T4 16GB", 250).is_ok(), "a known model may be named before it is there");
        for work in [0, 1_000_001] {
            let said = stated("RTX A4000", work).unwrap_err().to_string();
            assert!(said.contains(&format!("is {work}; it is 1 to 1000000")), "{said}");
        }
        let said = stated("RTX A400", 250).unwrap_err().to_string();
        assert!(said.contains("work names \"RTX A400\"; the GPUs here are RTX A4000"), "{said}");
    }

    #[test]
    fn equal_settings_have_equal_hashes() {
        let make = || spec(&["H100 80GB"], Prices::default());
        assert_eq!(make().hash(), make().hash());
        assert_eq!(make().classes(), selion_api::IsolationClass::Simulated.bit());
    }
}
