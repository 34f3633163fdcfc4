//! Accusations before the pool's court: a controller answers by itself out of its log, and an authority that has no answer
//! loses its bond.

use anyhow::{Context, Result};
use selion_api::agent::SignedVoucher;
use selion_api::lease::LeaseState;
use selion_api::slice::SliceWant;
use selion_api::{Amount, Hash32, LeaseId};
use selion_client::{OfferQuery, PageQuery, fresh_key};
use selion_contracts::court::{Run, Standing, double_lease_case, over_bill_case};
use selion_contracts::read::CaseRecord;
use selion_contracts::{BlockTag, Signer, Voucher};
use selion_log::{inclusion, leaf_hash, shown};
use selion_tests::{Controller, Ended, PATIENCE, Part, Pool, Renter, run, until, want};

const DEPOSIT: Amount = Amount(10_000_000_000);
const COINS: u128 = 1_000_000_000_000_000_000;
/// The pool's penalty as `selion pool create` is told, and the tenth of it that an accuser leaves with the court.
const PENALTY: &str = "50";
const HELD: Amount = Amount(5_000_000);

struct Story {
    pool: Pool,
    controller: Controller,
    _agent: Part,
    renter: Renter,
    authority: Signer,
}

impl Story {
    /// A pool whose authority has a bond, and a renter who lets its delegate sign.
    async fn begin(terms: &[&str]) -> Result<Self> {
        let pool = Pool::open_with(&[&["--penalty", PENALTY], terms].concat()).await?;
        let (contracts, authority) = (&pool.contracts, Signer::open_or_create(&pool.path("authority.key"))?);
        let stranger = Signer::open_or_create(&pool.path("stranger.key"))?;
        contracts.rpc.give_coins(stranger.account(), COINS).await?;
        for who in [&authority, &stranger] {
            contracts.send(&stranger, contracts.mint(who.address(), 100_000_000)).await?;
        }
        // Before the controller starts: two who send from one key get in each other's way.
        Self::act(&pool, &["authority", "bond", "60"], "authority.key").await?.json()?;
        let controller = pool.controller(&pool.path("controller"), "127.0.0.1:0").await?;
        let agent = pool.agent(&controller.url, "agent", "A100 80GB").await?;
        let renter = Renter::funded(&pool, &controller.url, "ada", DEPOSIT).await?;
        let offered = async || Ok(renter.client.offers(&OfferQuery::default()).await?.offers.first().map(drop));
        until("an offer", offered).await?;
        Ok(Self { pool, controller, _agent: agent, renter, authority })
    }

    /// A command about the pool's contracts, by the key in that file.
    async fn act(pool: &Pool, args: &[&str], key: &str) -> Result<Ended> {
        let controller = pool.contracts.at.controller.to_string();
        let at = ["--chain-rpc", &pool.rpc, "--pool", &controller, "--key-file", key];
        run(pool.home(), args.iter().copied().chain(at)).await
    }

    /// A lease of the whole GPU that ran and ended.
    async fn lease(&self) -> Result<LeaseId> {
        let asked = self.renter.client.create_lease(&fresh_key()?, &want(SliceWant::Whole, &["sleep", "0.2"])).await?;
        self.renter.client.wait(asked.id, LeaseState::Ended, PATIENCE).await?;
        Ok(asked.id)
    }

    /// The renter's voucher for all that was billed, as the provider's agent keeps it.
    async fn voucher(&self) -> Result<SignedVoucher> {
        until("a delivered voucher", async || {
            let all = self.renter.client.vouchers().await?.vouchers;
            Ok(all.into_iter().find(|voucher| voucher.signed && voucher.delivered))
        })
        .await?;
        let file = format!("agent/vouchers/{}.json", self.renter.signer.account());
        Ok(serde_json::from_str(&std::fs::read_to_string(self.pool.path(&file))?)?)
    }

    async fn case(&self, case: Hash32) -> Result<CaseRecord> {
        Ok(self.pool.contracts.case(case, BlockTag::Latest).await?)
    }

    async fn until_acquitted(&self, case: Hash32) -> Result<()> {
        let acquitted = async || Ok((self.case(case).await?.standing() == Standing::Acquitted).then_some(()));
        until("the controller to answer", acquitted).await
    }

    /// What an audit says of the court, once the log has followed the chain and all holds.
    async fn audited(&self) -> Result<String> {
        let controller = self.pool.contracts.at.controller.to_string();
        let args = ["audit", "--json", "--rpc", &self.pool.rpc, "--pool", &controller, "--log", &self.controller.url];
        let audit = async || {
            let ended = run(self.pool.home(), args).await?;
            (ended.code == Some(0)).then(|| ended.json()).transpose()
        };
        let report = until("an audit in which all holds", audit).await?;
        let mut checks = report["checks"].as_array().context("checks")?.iter();
        let court = checks.find(|check| check["name"] == "court_from_events").context("the court")?;
        Ok(court["detail"].as_str().context("a detail")?.to_owned())
    }

    /// The number behind a name in `/metrics`.
    async fn metric(&self, name: &str) -> Result<u64> {
        let page = reqwest::get(format!("{}/metrics", self.controller.url)).await?.text().await?;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.with_context(|| format!("no {name} in {page}"))?.parse()?)
    }
}

#[tokio::test]
async fn a_controller_that_is_accused_of_what_it_did_not_do_answers_by_itself() -> Result<()> {
    let story = Story::begin(&[]).await?;
    let (contracts, authority) = (&story.pool.contracts, story.authority.account());
    let (first, second) = (story.lease().await?, story.lease().await?);
    let voucher = story.voucher().await?;
    let file = story.pool.path("voucher.json");
    std::fs::write(&file, serde_json::to_string(&voucher)?)?;

    // More than the bills: the log says that it was due.
    let file = file.display().to_string();
    let accused = Story::act(&story.pool, &["evidence", "over-bill", &file], "stranger.key").await?.json()?;
    let case = over_bill_case(authority, voucher.renter, voucher.provider, voucher.cumulative);
    assert_eq!(accused["case"], case.to_string());
    story.until_acquitted(case).await?;
    assert_eq!(contracts.credit(authority, BlockTag::Latest).await?, HELD);

    // One GPU for two: the log says that it was freed between, and the command finds nothing to accuse of.
    let leases = [first.to_string(), second.to_string()];
    let args = ["evidence", "double-lease", &leases[0], &leases[1], "--log", &story.controller.url];
    let refused = Story::act(&story.pool, &args, "stranger.key").await?;
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    assert!(refused.said().contains("never held the same place"), "{}", refused.said());
    // Who does not look for the release can accuse all the same.
    let mut log = Vec::new();
    loop {
        let page = story.controller.client.log_entries(log.len() as u64, 1_000).await?;
        log.extend(page.entries);
        if page.next.is_none() {
            break;
        }
    }
    let head = log.iter().rev().find_map(|entry| entry.head).context("a signed head")?;
    let bytes = log.iter().take(usize::try_from(head.head.size)?).map(|entry| hex::decode(&entry.entry));
    let bytes: Vec<Vec<u8>> = bytes.collect::<Result<_, _>>()?;
    let leaves: Vec<Hash32> = bytes.iter().map(|entry| leaf_hash(entry)).collect();
    let grant = |lease: LeaseId| {
        let found = log.iter().enumerate().find_map(|(at, entry)| {
            let effects: Vec<Vec<u8>> = entry.effects.iter().map(hex::decode).collect::<Result<_, _>>().ok()?;
            let index = effects.iter().position(|leaf| Run::of_grant(leaf).is_some_and(|run| run.lease == lease))?;
            let run = Run::of_grant(&effects[index])?;
            Some((run, shown(bytes[at].clone(), inclusion(&leaves, at), &effects, index)?))
        });
        found.with_context(|| format!("no grant of {lease}"))
    };
    let ((earlier, one), (later, other)) = (grant(first)?, grant(second)?);
    let stranger = Signer::open_or_create(&story.pool.path("stranger.key"))?;
    contracts.send(&stranger, contracts.accuse_double_lease(&head, &one, &other)).await?;
    story.until_acquitted(double_lease_case(authority, &earlier, &later)).await?;
    assert_eq!(contracts.credit(authority, BlockTag::Latest).await?, Amount(2 * HELD.0));
    until("a quiet metric", async || Ok((story.metric("selion_accusations").await? == 0).then_some(()))).await?;

    // The vouchers are paid like any: the bond was never touched.
    assert_eq!(contracts.bond(authority, BlockTag::Latest).await?.bond, Amount(60_000_000));
    assert_eq!(story.renter.client.bills(&PageQuery::default()).await?.bills.len(), 2);
    let said = story.audited().await?;
    assert!(said.starts_with("1 bonds, 1 credits and 2 cases, 0 of them open"), "{said}");
    Ok(())
}

#[tokio::test]
async fn an_authority_without_an_answer_is_told_by_its_metrics_and_loses_its_bond_to_the_renter() -> Result<()> {
    let story = Story::begin(&["--answer", "1s"]).await?;
    let (contracts, authority) = (&story.pool.contracts, &story.authority);
    story.lease().await?;
    let honest = story.voucher().await?;
    // What the renter's log has no bill for, signed with both keys that the operator holds.
    let delegate = Signer::open_or_create(&story.pool.path("controller/keys/delegate.key"))?;
    let dearer = Voucher { cumulative: Amount(honest.cumulative.0 + 1_000_000), ..Voucher::from(&honest) };
    let by = |key: &Signer| dearer.sign(key, contracts.chain_id, contracts.at.vault);
    let file = story.pool.path("dearer.json");
    std::fs::write(&file, serde_json::to_string(&dearer.signed(by(&delegate)?, by(authority)?))?)?;

    let file = file.display().to_string();
    let accused = Story::act(&story.pool, &["evidence", "over-bill", &file], "stranger.key").await?.json()?;
    let case = accused["case"].as_str().context("a case")?.to_owned();
    let lost = async || Ok((story.metric("selion_accusations_unanswerable").await? == 1).then_some(()));
    until("an alarm", lost).await?;
    assert!(story.controller.part.log().contains("holds no answer"), "{}", story.controller.part.log());

    // Convicted once the time to answer is over; before that the court says until when.
    let convicted = until("a conviction", async || {
        let ended = Story::act(&story.pool, &["evidence", "convict", &case], "stranger.key").await?;
        match ended.code {
            Some(0) => Ok(Some(ended.json()?)),
            _ if ended.said().contains("that is possible from") => Ok(None),
            _ => anyhow::bail!("{}", ended.said()),
        }
    })
    .await?;
    assert_eq!(convicted["bond_left"], "10000000");
    assert_eq!(story.case(case.parse()?).await?.standing(), Standing::Punished);
    // All that was above the bills is counted as the renter's loss; half the penalty would be more.
    let credit = contracts.credit(story.renter.signer.account(), BlockTag::Latest).await?;
    assert_eq!(credit, Amount(dearer.cumulative.0.min(25_000_000)));
    let said = story.audited().await?;
    assert!(said.contains("and 1 cases, 0 of them open"), "{said}");
    Story::act(&story.pool, &["evidence", "collect"], "ada.key").await?.json()?;
    assert_eq!(contracts.credit(story.renter.signer.account(), BlockTag::Latest).await?, Amount(0));
    Ok(())
}
