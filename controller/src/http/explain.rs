//! What a refused request is told beside its reason: which names match nothing and what there is, what of it stands in
//! the way, and what its account can pay with.

use std::collections::BTreeSet;

use selion_api::blocking::{Blocking, Constraint};
use selion_api::lease::{Refusal, Resource};
use selion_api::rest::{MeansView, Unmatched};
use selion_api::slice::{IsolationClass, NodeSpec};
use selion_api::{BoxFeatures, LeaseRequest, Party, Reason, SliceWant};
use selion_market::State;

/// Most names of one kind that are told.
const MAX_TOLD: usize = 16;

/// A refusal and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The refusal.
    pub refusal: Refusal,
    /// See [`selion_api::rest::Problem::blocking`].
    pub blocking: Option<Blocking>,
    /// See [`selion_api::rest::Problem::unmatched`].
    pub unmatched: Vec<Unmatched>,
    /// See [`selion_api::rest::Problem::means`].
    pub means: Option<MeansView>,
}

impl Explained {
    /// A refusal of which nothing more is known.
    pub fn plain(refusal: Refusal) -> Self {
        Self { refusal, blocking: None, unmatched: Vec::new(), means: None }
    }

    /// What was wrong this time, in one line: money in token base units.
    pub fn detail(&self) -> String {
        let mut text = self.refusal.reason.text().to_owned();
        for names in &self.unmatched {
            let there = if names.there.is_empty() {
                "there are none".to_owned()
            } else {
                format!("there are: {}", names.there.join(", "))
            };
            text.push_str(&format!(
                " The pool has no {} {}; {there}.",
                what(names.constraint),
                names.asked.join(" or ")
            ));
        }
        if let Some(means) = &self.means {
            let need = self.refusal.nearest.as_ref().filter(|near| near.resource == Some(means.short));
            let need = need.map(|near| format!(" It needs {}, there is {}.", near.need, near.have)).unwrap_or_default();
            text.push_str(&format!(
                " Short is the {}.{need} The account has a free deposit of {} base units and a grant that may sign for {} more until {} (milliseconds UTC); what was paid in or granted counts once its block is final.",
                short(means.short), means.deposit, means.grant, means.grant_until_ms.0
            ));
        }
        text
    }
}

fn what(constraint: Constraint) -> &'static str {
    match constraint {
        Constraint::Models => "GPU model",
        Constraint::Regions => "region",
        Constraint::Classes => "isolation class",
        Constraint::Needs => "box with the feature",
        Constraint::Node => "node",
        Constraint::Gpu => "GPU",
        _ => "slice",
    }
}

fn short(resource: Resource) -> &'static str {
    match resource {
        Resource::Deposit => "deposit",
        Resource::Grant => "grant of the pool's key",
        Resource::GrantUntilMs => "time of the grant of the pool's key",
        _ => "allowance for what is not billed",
    }
}

/// What an account can pay with, if that is why it was refused. Cheap.
pub fn means(state: &State, request: &LeaseRequest, refusal: &Refusal) -> Option<MeansView> {
    if !matches!(refusal.reason, Reason::PaymentRequired | Reason::FreeUseSpent) {
        return None;
    }
    let (deposit, grant, grant_until_ms) = state.means(request.renter);
    let told = refusal.nearest.as_ref().and_then(|near| near.resource);
    let short = match told {
        Some(resource) => resource,
        None if refusal.reason == Reason::FreeUseSpent => Resource::FreeUse,
        None if deposit.0 == 0 => Resource::Deposit,
        None if grant.0 == 0 => Resource::Grant,
        None => Resource::GrantUntilMs,
    };
    Some(MeansView { short, deposit, grant, grant_until_ms })
}

/// True if places are what the request was refused for.
fn is_about_places(reason: Reason) -> bool {
    matches!(reason, Reason::PriceAboveMax | Reason::NoSeat | Reason::NoLicence)
        || reason != Reason::PoolAtLimit && matches!(reason.party(), Party::Pool | Party::Provider)
}

/// All that can be found out of a refusal. As costly as [`State::blocking`].
pub fn explain(state: &State, request: &LeaseRequest, refusal: Refusal) -> Explained {
    let about_places = is_about_places(refusal.reason);
    Explained {
        means: means(state, request, &refusal),
        blocking: about_places
            .then(|| state.blocking_request(request))
            .flatten()
            .filter(|one| !one.constraints.is_empty()),
        unmatched: if about_places { unmatched(state, request) } else { Vec::new() },
        refusal,
    }
}

fn unmatched(state: &State, request: &LeaseRequest) -> Vec<Unmatched> {
    let specs = || state.nodes.values().filter_map(|node| node.spec.as_ref());
    let gpus = || specs().flat_map(|spec| &spec.gpus);
    let mut all = Vec::new();
    let mut add = |constraint, asked: BTreeSet<String>, there: &dyn Fn() -> BTreeSet<String>| {
        let there = there();
        if !asked.is_empty() && asked.is_disjoint(&there) {
            let told = |names: BTreeSet<String>| names.into_iter().take(MAX_TOLD).collect();
            all.push(Unmatched { constraint, asked: told(asked), there: told(there) });
        }
    };
    let models = || gpus().map(|gpu| gpu.model.clone()).collect::<BTreeSet<String>>();
    for member in &request.members {
        add(Constraint::Models, member.models.iter().cloned().collect(), &models);
        add(Constraint::Node, member.node.iter().map(ToString::to_string).collect(), &|| {
            specs().map(|spec| spec.node.to_string()).collect()
        });
        add(Constraint::Gpu, member.gpu.iter().map(ToString::to_string).collect(), &|| {
            gpus().map(|gpu| gpu.gpu.to_string()).collect()
        });
        add(Constraint::Slice, BTreeSet::from([kind(&member.slice)]), &|| specs().flat_map(slices).collect());
    }
    add(Constraint::Regions, request.regions.iter().cloned().collect(), &|| {
        specs().map(|spec| spec.region.clone()).filter(|region| !region.is_empty()).collect()
    });
    let every = IsolationClass::ALL.iter().fold(0, |set, class| set | class.bit());
    let asked = if request.classes & every == every { 0 } else { request.classes };
    add(Constraint::Classes, classes(asked), &|| classes(specs().fold(0, |set, spec| set | spec.classes())));
    // Every one of them is needed, so each is told that no box at all has.
    let union = || specs().fold(0, |set, spec| set | spec.features.0);
    let nowhere = BoxFeatures(request.needs.0 & !union());
    add(Constraint::Needs, features(nowhere), &|| features(BoxFeatures(union())));
    all.dedup();
    all
}

fn classes(set: u8) -> BTreeSet<String> {
    let named = IsolationClass::ALL.iter().filter(|class| set & class.bit() != 0);
    named.map(|class| class.code().to_owned()).collect()
}

fn features(set: BoxFeatures) -> BTreeSet<String> {
    set.iter().map(|feature| feature.code().to_owned()).collect()
}

/// How a slice is called on the command line, whatever its size.
fn kind(want: &SliceWant) -> String {
    match want {
        SliceWant::Whole => "whole".to_owned(),
        SliceWant::Mig { profile } => profile.clone(),
        SliceWant::Share { .. } => "share".to_owned(),
    }
}

fn slices(spec: &NodeSpec) -> Vec<String> {
    let of = |gpu: &selion_api::GpuSpec| {
        let mig = gpu.mig.iter().flat_map(|table| &table.profiles).map(|profile| profile.name.clone());
        let whole = gpu.whole.map(|_| "whole".to_owned());
        whole.into_iter().chain(gpu.share.as_ref().map(|_| "share".to_owned())).chain(mig).collect::<Vec<_>>()
    };
    spec.gpus.iter().flat_map(of).collect()
}
