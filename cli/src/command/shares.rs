//! `selion shares`: whose turn it is.

use selion_api::rest::SharesView;

use crate::failure::Done;
use crate::output::Output;
use crate::session::Session;

/// Shows every account's part of the pool, in order of service.
pub async fn main(out: Output) -> Done {
    let view = Session::open()?.client.shares().await?;
    out.show(&view, |view| {
        let rows = view.shares.iter().map(|share| {
            let ppm = share.dominant_share_ppm;
            [
                share.account.to_string(),
                if share.group.is_empty() { "-".to_owned() } else { share.group.clone() },
                format!("{} of {}", percent(ppm), share.dominant_resource),
                share.weight.to_string(),
                share.live.to_string(),
                share.waiting.to_string(),
            ]
        });
        let head = ["ACCOUNT", "GROUP", "LARGEST SHARE", "WEIGHT", "LIVE", "WAITING"];
        let accounts = out.table(head, rows.collect(), "no account has leases");
        if view.groups.is_empty() { accounts } else { format!("{accounts}\n{}", groups(out, view)) }
    })
}

fn groups(out: Output, view: &SharesView) -> String {
    let rows = view.groups.iter().map(|group| {
        [
            group.path.clone(),
            percent(group.dominant_share_ppm),
            group.weight.to_string(),
            permille(group.gpu_work_permille),
            permille(group.quota_permille.into()),
        ]
    });
    out.table(["GROUP", "SHARE", "WEIGHT", "GPU WORK", "GUARANTEED"], rows.collect(), "")
}

fn percent(ppm: u64) -> String {
    format!("{}.{:02}%", ppm / 10_000, ppm % 10_000 / 100)
}

fn permille(part: u64) -> String {
    format!("{}.{}%", part / 10, part % 10)
}
