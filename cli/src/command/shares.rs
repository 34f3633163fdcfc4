//! `selion shares`: whose turn it is.

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
                format!("{}.{:02}% of {}", ppm / 10_000, ppm % 10_000 / 100, share.dominant_resource),
                share.weight.to_string(),
                share.live.to_string(),
                share.waiting.to_string(),
            ]
        });
        out.table(["ACCOUNT", "LARGEST SHARE", "WEIGHT", "LIVE", "WAITING"], rows.collect(), "no account has leases")
    })
}
