//! The slice map: every GPU as a row of cells, a letter and a colour for each lease.

use std::collections::BTreeMap;

use selion_api::rest::{GpuView, NodeView};
use selion_api::{LeaseId, Slot};

/// Cells of a GPU that has no MIG geometry.
const CELLS: usize = 20;
/// Cells that one memory slice is wide.
const WIDE: usize = 3;
const COLOURS: [u8; 6] = [36, 33, 35, 32, 34, 31];

/// Draws the pool. `names` says whose each lease is; `colour` is for terminals.
pub(crate) fn draw(nodes: &[NodeView], names: &BTreeMap<LeaseId, String>, colour: bool) -> String {
    let mut letters = Letters { order: Vec::new(), colour };
    let mut lines = Vec::new();
    for node in nodes {
        let state = match (node.linked, node.schedulable) {
            (true, true) => String::new(),
            (false, _) => "  lost".to_owned(),
            (true, false) => format!("  {}", node.reason.map_or("not schedulable", selion_api::Reason::code)),
        };
        let short: String = node.node.to_string().chars().take(10).collect();
        for gpu in &node.gpus {
            let row: String = cells(gpu).into_iter().map(|cell| letters.cell(cell)).collect();
            lines.push(format!("  {:<14} {short}  [{row}]{state}", gpu.spec.model));
        }
    }
    for (at, lease) in letters.order.iter().enumerate() {
        let name = names.get(lease).map_or("", String::as_str);
        lines.push(format!("  {} {lease}  {name}", letters.paint(at, "■")));
    }
    lines.join("\n")
}

/// Who holds each cell.
fn cells(gpu: &GpuView) -> Vec<Option<LeaseId>> {
    let slices = gpu.spec.mig.as_ref().map(|table| usize::from(table.mem_slices));
    let count = slices.map_or(CELLS, |slices| slices * WIDE);
    let mut cells = vec![None; count];
    let mut next_share = 0;
    for held in &gpu.slots {
        let range = match &held.slot {
            Slot::Whole => 0..count,
            Slot::Mig { start, size, .. } => {
                usize::from(*start) * WIDE..(usize::from(*start) + usize::from(*size)) * WIDE
            }
            Slot::Share { compute_permille, .. } => {
                let end = next_share + (usize::from(*compute_permille) * count).div_ceil(1_000);
                std::mem::replace(&mut next_share, end)..end
            }
        };
        for cell in cells.iter_mut().take(range.end.min(count)).skip(range.start) {
            *cell = Some(held.lease);
        }
    }
    cells
}

struct Letters {
    order: Vec<LeaseId>,
    colour: bool,
}

impl Letters {
    fn cell(&mut self, lease: Option<LeaseId>) -> String {
        let Some(lease) = lease else { return "·".to_owned() };
        let known = self.order.iter().position(|known| *known == lease);
        let at = known.unwrap_or_else(|| {
            self.order.push(lease);
            self.order.len() - 1
        });
        self.paint(at, "█")
    }

    /// `block` in the lease's colour, or its letter.
    fn paint(&self, at: usize, block: &str) -> String {
        if self.colour {
            return format!("\u{1b}[{}m{block}\u{1b}[0m", COLOURS[at % COLOURS.len()]);
        }
        let letter = b'A' + u8::try_from(at % 26).unwrap_or(0);
        char::from(letter).to_string()
    }
}

#[cfg(test)]
mod tests {
    use selion_api::rest::SlotView;
    use selion_api::slice::{GpuSpec, MigTable};
    use selion_api::{GpuId, NodeId, Reason};

    use super::*;

    fn lease(seq: u64) -> LeaseId {
        LeaseId { seq, index: 0 }
    }

    fn gpu(model: &str, mig: bool, slots: Vec<(Slot, u64)>) -> GpuView {
        let table = MigTable { mem_slices: 8, compute_slices: 7, profiles: Vec::new() };
        let spec = GpuSpec {
            gpu: GpuId([1; 16]),
            model: model.into(),
            mem_bytes: 1 << 30,
            work_milli: 1_000,
            simulated: true,
            whole: None,
            mig: mig.then_some(table),
            share: None,
        };
        let slots = slots.into_iter().map(|(slot, of)| SlotView { slot, lease: lease(of), member: 0 });
        GpuView { spec, slots: slots.collect() }
    }

    fn node(gpu: GpuView, linked: bool) -> NodeView {
        serde_json::from_value(serde_json::json!({
            "node": NodeId([7; 20]), "provider": selion_api::Account([8; 20]), "schedulable": linked,
            "reason": (!linked).then_some(Reason::NodeLost), "linked": linked, "paused": false, "since_ms": 0,
            "last_seq": 0, "sandbox": null, "address": "", "region": "", "rack": "", "cpu_milli": 1, "cpu_milli_used": 0,
            "ram_bytes": 1, "ram_bytes_used": 0, "disk_bytes": 0, "disk_bytes_used": 0, "net_mbps": 0,
            "net_mbps_used": 0, "gpus": [gpu]
        }))
        .unwrap()
    }

    #[test]
    fn slices_stand_where_they_are_and_shares_side_by_side() {
        let mig = Slot::Mig { profile: "2g.20gb".into(), start: 2, size: 2 };
        let share = |compute_permille| Slot::Share { compute_permille, mem_bytes: 1 };
        let nodes = [
            node(gpu("H100 80GB", true, vec![(mig, 1)]), true),
            node(gpu("RTX 4090 24GB", false, vec![(share(500), 2), (share(200), 1)]), false),
        ];
        let text = draw(&nodes, &BTreeMap::from([(lease(1), "ben's gang".to_owned())]), false);
        assert!(text.contains("[······AAAAAA············]"), "{text}");
        assert!(text.contains("[BBBBBBBBBBAAAA······]  lost"), "{text}");
        assert!(text.contains("A lease-1-0  ben's gang"), "{text}");
    }

    #[test]
    fn more_shares_than_cells_do_not_overflow() {
        let share = Slot::Share { compute_permille: 1_000, mem_bytes: 1 };
        let full = gpu("T4", false, vec![(share.clone(), 1), (share, 2)]);
        assert_eq!(cells(&full), vec![Some(lease(1)); CELLS]);
    }
}
