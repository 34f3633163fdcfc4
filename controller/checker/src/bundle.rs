//! What slots and requests take, in the resources that count in shares.

use alloc::collections::BTreeSet;

use selion_api::lease::Beside;
use selion_api::{GpuSpec, LeaseRequest, MemberWant, NodeSpec, Slot};

use crate::fit;
use crate::fleet::{Fleet, Taken};

/// The whole, in which parts are counted.
const ONE: u128 = 1 << 40;

/// An amount of GPU work, of GPU memory, and of each of [`BESIDE`](selion_api::lease::BESIDE).
pub(crate) type Bundle = [u128; 6];

pub(crate) fn add(to: &mut Bundle, more: Bundle) {
    for (to, more) in to.iter_mut().zip(more) {
        *to = to.saturating_add(more);
    }
}

/// What a slot and what stands beside it take.
pub(crate) fn bundle(gpu: Option<&GpuSpec>, slot: &Slot, beside: Beside) -> Bundle {
    let (work, memory) = gpu.map_or((0, 0), |gpu| fit::takes(gpu, slot));
    with([work, memory], beside)
}

/// What is taken on a machine.
pub(crate) fn held(spec: Option<&NodeSpec>, taken: &Taken) -> Bundle {
    let mut sum = with([0, 0], taken.beside);
    for gpu in spec.into_iter().flat_map(|spec| &spec.gpus).filter(|gpu| taken.gpus.contains(&gpu.gpu)) {
        add(&mut sum, bundle(Some(gpu), &taken.slot, Beside::default()));
    }
    sum
}

/// GPU work and GPU memory, and what stands beside.
pub(crate) fn with([work, memory]: [u128; 2], beside: Beside) -> Bundle {
    let [cpu, ram, disk, net] = beside.map(u128::from);
    [work, memory, cpu, ram, disk, net]
}

/// What the required members of a request take, if that is the same on every GPU that offers what it wants.
pub(crate) fn size(fleet: &Fleet, request: &LeaseRequest) -> Option<Bundle> {
    let mut sum = Bundle::default();
    let mut last: Option<(&MemberWant, Bundle)> = None;
    for want in request.members.iter().take(request.min_members.into()) {
        let known = last.filter(|(other, _)| *other == want).map(|(_, takes)| takes);
        let takes = known.or_else(|| member_size(fleet, want))?;
        last = Some((want, takes));
        add(&mut sum, takes);
    }
    Some(sum)
}

fn member_size(fleet: &Fleet, want: &MemberWant) -> Option<Bundle> {
    let gpus = fleet.machines.values().flat_map(|machine| &machine.spec).flat_map(|spec| &spec.gpus);
    let gpus = gpus.filter(|gpu| want.models.is_empty() || want.models.contains(&gpu.model));
    let slots = gpus.flat_map(|gpu| fit::answers_on(gpu, &want.slice).into_iter().map(move |slot| (gpu, slot)));
    let offered = slots.filter(|(gpu, slot)| fit::on_offer(gpu, slot).is_some());
    let times = |amount: u128| amount.saturating_mul(want.gpus.into());
    let size = |(gpu, slot): (&GpuSpec, Slot)| {
        let (work, memory) = fit::takes(gpu, &slot);
        with([times(work), times(memory)], want.beside())
    };
    let sizes: BTreeSet<Bundle> = offered.map(size).collect();
    sizes.first().copied().filter(|_| sizes.len() == 1)
}

/// `amount / total` in 2^-40, rounded down.
pub(crate) fn part(amount: u128, total: u128) -> u128 {
    amount.saturating_mul(ONE).checked_div(total).unwrap_or(0)
}

/// Which resource it takes the largest part of, the first among equals.
pub(crate) fn dominant(size: Bundle, totals: Bundle) -> usize {
    let parts = size.into_iter().zip(totals).map(|(amount, total)| part(amount, total));
    parts.enumerate().reduce(|top, next| if next.1 > top.1 { next } else { top }).map_or(0, |(kind, _)| kind)
}
