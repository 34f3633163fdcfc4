//! One lease from the dataset to the money on chain, and what a controller that lies about it can say.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use selion_api::agent::SignedVoucher;
use selion_api::chain::ChainEvent;
use selion_api::lease::{BillLine, LeaseState};
use selion_api::rest::{DatasetMount, Lease, LoggedEntry};
use selion_api::slice::{Sandbox, SliceWant};
use selion_api::{Amount, LeaseId, Reason};
use selion_audit::{LogSource, Options, Report, audit};
use selion_client::{Client, OfferQuery, PageQuery, fresh_key};
use selion_contracts::{BlockTag, Signer, Voucher, decode};
use selion_market::{Effect, Input};
use selion_tests::seal::{self, Draft};
use selion_tests::{Controller, PATIENCE, Part, Pool, Renter, kept, until, want};
use sha2::{Digest, Sha256};

const DEPOSIT: Amount = Amount(10_000_000_000);
const MS_PER_HOUR: u128 = 3_600_000;
const EVERYTHING: PageQuery = PageQuery { page_size: Some(500), page_token: None };

/// Reads the dataset, tries to spoil it, and writes down both.
const PROGRAM: &str = r#"set -eu
data="$SELION_DATA_DIR/in"
sha256sum < "$data" > "$SELION_OUTPUT_DIR/sum"
if (: >> "$data") 2>/dev/null; then echo writable; else echo read-only; fi > "$SELION_OUTPUT_DIR/mount"
sleep 0.3"#;

struct Story {
    pool: Pool,
    controller: Controller,
    _agent: Part,
    renter: Renter,
}

impl Story {
    async fn begin() -> Result<Self> {
        let pool = Pool::open().await?;
        let controller = pool.controller(&pool.path("controller"), "127.0.0.1:0").await?;
        let agent = pool.agent(&controller.url, "agent", "A100 80GB").await?;
        let renter = Renter::funded(&pool, &controller.url, "ada", DEPOSIT).await?;
        until("an offer", async || Ok(renter.client.offers(&OfferQuery::default()).await?.offers.first().map(drop)))
            .await?;
        Ok(Self { pool, controller, _agent: agent, renter })
    }

    /// Leases a MIG slice with that dataset, signed, and sees it through.
    async fn run(&self, cid: &str) -> Result<Lease> {
        let mut lease = want(SliceWant::Mig { profile: "1g.10gb".into() }, &["sh", "-c", PROGRAM]);
        lease.datasets = vec![DatasetMount { cid: cid.to_owned(), mount: "in".into() }];
        let (client, key) = (&self.renter.client, fresh_key()?);
        let asked = client.create_signed_lease(&self.renter.wallet, &self.pool.id(), &key, &mut lease).await?;
        client.wait(asked.id, LeaseState::Ended, PATIENCE).await?;
        until("the CID of the outputs", async || {
            let lease = client.lease(asked.id).await?;
            ensure!(lease.reason == Some(Reason::Completed), "{lease:?}");
            Ok((!kept(&lease).is_empty()).then_some(lease))
        })
        .await
    }

    /// The voucher over all that was billed, as the provider's agent keeps it on disk.
    async fn delivered(&self, total: Amount) -> Result<SignedVoucher> {
        until("a delivered voucher over the bill", async || {
            let all = self.renter.client.vouchers().await?.vouchers;
            Ok(all.into_iter().find(|voucher| voucher.cumulative == total && voucher.signed && voucher.delivered))
        })
        .await?;
        let file = format!("agent/vouchers/{}.json", self.renter.signer.account());
        let text = std::fs::read_to_string(self.pool.path(&file)).context(file)?;
        Ok(serde_json::from_str(&text)?)
    }

    async fn log(&self) -> Result<Vec<LoggedEntry>> {
        let mut log = Vec::new();
        loop {
            let page = self.controller.client.log_entries(log.len() as u64, 1_000).await?;
            log.extend(page.entries);
            if page.next.is_none() {
                return Ok(log);
            }
        }
    }

    /// The audit of a copy of the log against the real chain.
    async fn audit(&self, log: &[LoggedEntry]) -> Result<Report> {
        let file = self.pool.path("copy.jsonl");
        let lines: Vec<String> = log.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        std::fs::write(&file, lines.join("\n"))?;
        let pool = self.pool.id().controller;
        let log = LogSource::File(file);
        Ok(audit(&Options::new(self.pool.rpc.clone(), pool, log)).await?)
    }

    /// Seals what `lie` makes of the log with the authority's own key, and audits it.
    async fn lie(&self, lie: impl FnOnce(&mut Vec<Draft>) -> Result<()>) -> Result<Report> {
        let mut drafts = seal::open(&self.log().await?)?;
        lie(&mut drafts)?;
        let authority = Signer::open_or_create(&self.pool.path("authority.key"))?;
        self.audit(&seal::seal(&drafts, &self.pool.id(), &authority)?).await
    }
}

/// A file of several blocks, and the CID of the outputs that [`PROGRAM`] makes of it.
fn data_and_outputs(dir: &Path) -> Result<(Vec<u8>, String)> {
    let mut block = Sha256::digest(b"selion");
    let mut bytes = Vec::new();
    while bytes.len() < 3 << 20 {
        bytes.extend_from_slice(&block);
        block = Sha256::digest(block);
    }
    let expected = dir.join("expected");
    std::fs::create_dir(&expected)?;
    std::fs::write(expected.join("sum"), format!("{}  -\n", hex::encode(Sha256::digest(&bytes))))?;
    std::fs::write(expected.join("mount"), "read-only\n")?;
    let cid = selion_dataplane::Store::open(dir.join("blocks"))?.add_path(&expected)?;
    Ok((bytes, cid.to_string()))
}

/// Without a sandbox, root may write to the verified copies; the node's offer says so then.
async fn is_sandboxed(client: &Client, lease: &Lease) -> Result<bool> {
    let place = lease.members.first().context("a place")?;
    Ok(client.node(place.node).await?.sandbox != Some(Sandbox::None))
}

/// The bill follows from rate and time, and the time from the log.
async fn check_bill(story: &Story, lease: &Lease) -> Result<BillLine> {
    let bills = story.renter.client.bills(&EVERYTHING).await?.bills;
    let mut lines = bills.iter().filter(|bill| bill.line.lease == lease.id);
    let (bill, more) = (lines.next().context("a bill")?, lines.next());
    assert!(more.is_none(), "one member ran once: one line");
    let line = &bill.line;
    assert_eq!(u128::from(line.amount.0), u128::from(line.rate.0) * u128::from(line.billable_ms) / MS_PER_HOUR);
    assert_eq!(lease.amount, line.amount);
    assert!(line.billable_ms >= 300, "the program sleeps 300 ms: {line:?}");
    Ok(line.clone())
}

#[tokio::test]
async fn a_lease_is_staged_run_billed_and_paid_and_every_lie_about_it_is_caught() -> Result<()> {
    let story = Story::begin().await?;
    let (client, contracts) = (&story.renter.client, &story.pool.contracts);

    // In by CID, out by CID.
    let (bytes, expected) = data_and_outputs(story.pool.home())?;
    std::fs::write(story.pool.path("in.bin"), &bytes)?;
    let dataset = client.upload_dataset(&story.pool.path("in.bin"), "numbers").await?;
    assert!(dataset.blocks > 1 && dataset.bytes >= bytes.len() as u64, "{dataset:?}");
    let lease = story.run(&dataset.cid).await?;
    assert!(lease.signed && lease.attempt == 1, "{lease:?}");
    if is_sandboxed(client, &lease).await? {
        assert_eq!(kept(&lease).get(&0), Some(&expected));
    }
    let second = story.run(&dataset.cid).await?;
    assert_eq!(kept(&second), kept(&lease), "equal runs have equal outputs");

    // The bill, the voucher with both signatures, the claim.
    let lines = [check_bill(&story, &lease).await?, check_bill(&story, &second).await?];
    let total = Amount(lines[0].amount.0 + lines[1].amount.0);
    let signed = story.delivered(total).await?;
    assert_eq!(signed.cumulative, total);
    let pool = client.pool().await?;
    let voucher = Voucher::from(&signed);
    let signer_of = |signature| voucher.recover(signature, contracts.chain_id, contracts.at.vault);
    assert_eq!(signer_of(&signed.renter_signature).map(|account| account.0), Some(pool.delegate.0));
    assert_eq!(signer_of(&signed.authority_signature), Some(pool.authority));
    until("the claim on chain", async || {
        let (claimed, _) = contracts.claimed(signed.provider, signed.renter, BlockTag::Latest).await?;
        ensure!(claimed <= total, "{claimed} claimed of {total}");
        Ok((claimed == total).then_some(()))
    })
    .await?;
    assert_eq!(paid(&story).await?, total.0, "what left the deposit is the bill");
    let left = contracts.account(story.renter.signer.account(), BlockTag::Latest).await?.balance;
    assert_eq!(left.0, DEPOSIT.0 - total.0);

    // All of it is anchored, and honest.
    let size = until("the claim in the log", async || {
        let account = client.account().await?;
        Ok((account.claimed == total).then_some(story.log().await?.len() as u64))
    })
    .await?;
    until("an anchor over it", async || {
        Ok((story.controller.client.log_head().await?.anchored_size >= size).then_some(()))
    })
    .await?;
    let report = story.audit(&story.log().await?).await?;
    for check in &report.checks {
        assert!(check.ok, "{}: {}", check.name, check.detail);
    }
    assert!(report.ok && report.anchored_size >= size, "{report:?}");
    assert!(report.signatures.inputs > 0 && report.unsigned_share_ppm == 0, "{:?}", report.signatures);
    lies(&story, &lines[0], second.id).await
}

/// All that ever left the renter's deposit, by the chain's events.
async fn paid(story: &Story) -> Result<u64> {
    let contracts = &story.pool.contracts;
    let last = contracts.rpc.header(BlockTag::Latest).await?.number;
    let mut sum = 0;
    for event in decode(&contracts.at, &contracts.rpc.logs(0, last, &contracts.addresses()).await?)? {
        if let ChainEvent::Claimed { paid, .. } = event {
            sum += paid.0;
        }
    }
    Ok(sum)
}

/// The names of the checks that failed.
fn failed(report: &Report) -> BTreeSet<&str> {
    report.checks.iter().filter(|check| !check.ok).map(|check| check.name.as_str()).collect()
}

/// The check failed, at that entry.
#[track_caller]
fn assert_named(report: &Report, check: &str, entry: usize) {
    let found = report.checks.iter().find(|one| one.name == check);
    let seen = found.is_some_and(|one| !one.ok && one.entry == Some(entry as u64));
    assert!(!report.ok && seen, "{check} should fail at entry {entry}: {found:?}; failed: {:?}", failed(report));
}

fn find(drafts: &[Draft], leaf: &[u8]) -> Result<(usize, usize)> {
    let place = |draft: &Draft| draft.effects.iter().position(|effect| effect == leaf);
    let found = drafts.iter().enumerate().find_map(|(entry, draft)| Some((entry, place(draft)?)));
    found.context("no such effect in the log")
}

fn is_request(draft: &Draft) -> bool {
    matches!(borsh::from_slice(&draft.entry.input), Ok(Input::Request(_)))
}

/// A controller that lies holds the authority's key and signs every head anew. The rules, the arithmetic and what it
/// anchored on chain before still tell.
async fn lies(story: &Story, bill: &BillLine, second: LeaseId) -> Result<()> {
    let mut at = 0;
    let a_unit_too_high = |drafts: &mut Vec<Draft>| {
        let (entry, place) = find(drafts, &Effect::Billed(bill.clone()).leaf())?;
        let amount = Amount(bill.amount.0 + 1);
        drafts[entry].effects[place] = Effect::Billed(BillLine { amount, ..bill.clone() }).leaf();
        at = entry;
        Ok(())
    };
    let report = story.lie(a_unit_too_high).await?;
    assert_named(&report, "bills_recomputed", at);
    assert_named(&report, "replay_identical", at);
    assert!(failed(&report).contains("anchors_match"), "it was anchored before: {:?}", failed(&report));
    assert!(!failed(&report).contains("heads_signed"), "the lie is well signed: {:?}", failed(&report));

    // The first grant once more, for the lease that came later: 14 words, the second and third of which name the lease.
    let two_on_one_placement = |drafts: &mut Vec<Draft>| {
        let is_grant = |leaf: &Vec<u8>| leaf.len() == 14 * 32 && leaf[31] == 1;
        let mut grants = drafts
            .iter()
            .zip(0..)
            .filter_map(|(draft, at)| Some((at, draft.effects.iter().find(|leaf| is_grant(leaf))?)));
        let (entry, leaf): (usize, _) = grants.next().context("a grant")?;
        let mut twin = leaf.clone();
        twin[56..64].copy_from_slice(&second.seq.to_be_bytes());
        twin[92..96].copy_from_slice(&second.index.to_be_bytes());
        drafts[entry].effects.push(twin);
        at = entry;
        Ok(())
    };
    let report = story.lie(two_on_one_placement).await?;
    assert_named(&report, "no_slot_twice", at);
    assert!(failed(&report).contains("anchors_match"), "{:?}", failed(&report));

    // A request left out as if it had never come; the rest is numbered anew.
    let a_request_less = |drafts: &mut Vec<Draft>| {
        drafts.remove(drafts.iter().position(is_request).context("a request")?);
        Ok(())
    };
    let report = story.lie(a_request_less).await?;
    assert!(
        failed(&report).is_superset(&BTreeSet::from(["anchors_match", "replay_identical"])),
        "{:?}",
        failed(&report)
    );

    // A request before what came before it.
    let another_order = |drafts: &mut Vec<Draft>| {
        let at = drafts.iter().rposition(is_request).context("a request")?;
        drafts.swap(at - 1, at);
        Ok(())
    };
    let report = story.lie(another_order).await?;
    assert!(failed(&report).contains("anchors_match"), "{:?}", failed(&report));
    Ok(())
}
