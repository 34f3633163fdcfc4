//! The pool's court: who contradicts himself loses all that he has at stake, at once, and nobody else loses anything.

use anyhow::{Context, Result};
use selion_api::agent::{Head, Promise, SignedHead, SignedPromise};
use selion_api::commit::signing_digest;
use selion_api::lease::LeaseState;
use selion_api::slice::SliceWant;
use selion_api::{Amount, Hash32, LeaseId};
use selion_audit::evidence::ReportFile;
use selion_audit::rehearse::{Book, Cast};
use selion_audit::{Log, LogSource, fetch};
use selion_client::{OfferQuery, fresh_key};
use selion_contracts::{BlockTag, Signer};
use selion_tests::{Controller, Ended, PATIENCE, Part, Pool, Renter, run, until, want};
use serde_json::{Value, json};

const DEPOSIT: Amount = Amount(10_000_000_000);
const COINS: u128 = 1_000_000_000_000_000_000;
const LATEST: BlockTag = BlockTag::Latest;

struct Story {
    pool: Pool,
    controller: Controller,
    _agent: Part,
    renter: Renter,
    authority: Signer,
    owner: Signer,
    stranger: Signer,
}

impl Story {
    /// A pool whose owner has a bond of 60 tokens, a node, and a renter who lets the delegate sign.
    async fn begin() -> Result<Self> {
        let pool = Pool::open_with(&["--hand-over", "0", "--unbond", "1h"]).await?;
        let contracts = &pool.contracts;
        let key = |name: &str| Signer::open_or_create(&pool.path(name));
        let (authority, owner, stranger) = (key("authority.key")?, key("owner.key")?, key("stranger.key")?);
        contracts.rpc.give_coins(stranger.account(), COINS).await?;
        for who in [&owner, &stranger] {
            contracts.send(&stranger, contracts.mint(who.address(), 100_000_000)).await?;
        }
        Self::act(&pool, &["authority", "bond", "60"], "owner.key").await?.json()?;
        let controller = pool.controller(&pool.path("controller"), "127.0.0.1:0").await?;
        let agent = pool.agent(&controller.url, "agent", "A100 80GB").await?;
        let renter = Renter::funded(&pool, &controller.url, "ada", DEPOSIT).await?;
        let offered = async || Ok(renter.client.offers(&OfferQuery::default()).await?.offers.first().map(drop));
        until("an offer", offered).await?;
        Ok(Self { pool, controller, _agent: agent, renter, authority, owner, stranger })
    }

    /// A command about the pool's contracts, by the key in that file.
    async fn act(pool: &Pool, args: &[&str], key: &str) -> Result<Ended> {
        let controller = pool.contracts.at.controller.to_string();
        let at = ["--chain-rpc", &pool.rpc, "--pool", &controller, "--key-file", key];
        run(pool.home(), args.iter().copied().chain(at)).await
    }

    /// Evidence that a stranger brings.
    async fn evidence(&self, args: &[&str]) -> Result<Ended> {
        Self::act(&self.pool, &[&["evidence"], args].concat(), "stranger.key").await
    }

    /// A file with this in it; its path.
    fn file(&self, name: &str, content: &Value) -> Result<String> {
        let path = self.pool.path(name);
        std::fs::write(&path, content.to_string())?;
        Ok(path.display().to_string())
    }

    /// A lease of the whole GPU that ran and ended.
    async fn lease(&self) -> Result<LeaseId> {
        let asked = self.renter.client.create_lease(&fresh_key()?, &want(SliceWant::Whole, &["sleep", "0.2"])).await?;
        self.renter.client.wait(asked.id, LeaseState::Ended, PATIENCE).await?;
        Ok(asked.id)
    }

    /// The newest head that the authority signed.
    async fn head(&self) -> Result<SignedHead> {
        until("a signed head", async || Ok(self.controller.client.log_head().await?.newest)).await
    }

    /// What the authority would never say: another root at the size of this head.
    fn lie(&self, head: &Head) -> Result<SignedHead> {
        let head = Head { root: Hash32([6; 32]), ..*head };
        let signature = self.authority.sign_text(&head.digest_to_sign(&self.pool.id()).0)?;
        Ok(SignedHead { head, signature })
    }

    /// The last report about a lease in the log, and its entry.
    async fn report_of(&self, lease: LeaseId) -> Result<(u64, ReportFile)> {
        let mut found = None;
        for seq in 0..self.head().await?.head.size {
            let args = ["evidence", "report", &seq.to_string(), "--log", &self.controller.url];
            let ended = run(self.pool.home(), args).await?;
            if ended.code == Some(0) {
                let file: ReportFile = serde_json::from_value(ended.json()?)?;
                if file.read().is_ok_and(|signed| signed.report.lease == lease) {
                    found = Some((seq, file));
                }
            }
        }
        found.context("a report of the lease")
    }

    /// Asks the log for a report that contradicts the one in that file.
    async fn contradicting(&self, held: &str) -> Result<Ended> {
        let (chain_id, controller) = (self.pool.id().chain_id.to_string(), self.pool.id().controller.to_string());
        let of = ["--log", &self.controller.url, "--pool", &controller, "--chain-id", &chain_id];
        run(self.pool.home(), ["evidence", "report", "--held", held].into_iter().chain(of)).await
    }

    /// What an audit says of the report in that file.
    async fn reports_kept(&self, kept: &str) -> Result<Value> {
        let (controller, url) = (self.pool.id().controller.to_string(), self.controller.url.as_str());
        let log = ["audit", "--json", "--rpc", &self.pool.rpc, "--pool", &controller, "--log", url, "--proof", kept];
        let log = log.into_iter().chain(["--evidence", "honest.json"]);
        let report: Value = serde_json::from_str(&run(self.pool.home(), log).await?.out)?;
        let mut checks = report["checks"].as_array().context("checks")?.iter();
        checks.find(|check| check["name"] == "reports_kept").cloned().context("reports_kept")
    }

    async fn bond(&self) -> Result<Amount> {
        Ok(self.pool.contracts.bond(self.owner.account(), LATEST).await?.kept)
    }

    async fn tokens(&self, who: &Signer) -> Result<u128> {
        Ok(self.pool.contracts.token_balance(who.address(), LATEST).await?)
    }

    /// What an audit says of the court, once the log has followed the chain.
    async fn audited(&self) -> Result<String> {
        let controller = self.pool.contracts.at.controller.to_string();
        let args = ["audit", "--json", "--rpc", &self.pool.rpc, "--pool", &controller, "--log", &self.controller.url];
        let court = async || {
            let report = run(self.pool.home(), args).await?.json()?;
            let court = report["checks"].as_array().context("checks")?.iter();
            let mut court = court.filter(|check| check["name"] == "court_from_events" && check["ok"] == true);
            Ok(court.next().and_then(|check| Some(check["detail"].as_str()?.to_owned())))
        };
        until("an audit in which the court is as its events tell", court).await
    }
}

#[tokio::test]
async fn nothing_is_found_against_who_never_contradicted_himself() -> Result<()> {
    let story = Story::begin().await?;
    story.lease().await?;
    let honest = story.head().await?;
    let (one, url) = (story.file("head.json", &json!(honest))?, story.controller.url.as_str());
    // The same head twice is no contradiction, and a head that another key signed is nobody's.
    let same = story.evidence(&["heads", &one, &one]).await?;
    assert_ne!(same.code, Some(0));
    assert!(same.said().contains("no contradiction"), "{}", same.said());
    let mut forged = story.lie(&honest.head)?;
    forged.signature = story.stranger.sign_text(&forged.head.digest_to_sign(&story.pool.id()).0)?;
    let forged = story.file("forged.json", &json!(forged))?;
    assert_ne!(story.evidence(&["heads", &one, &forged]).await?.code, Some(0));
    let fork = story.evidence(&["fork", url, url]).await?;
    assert!(fork.said().contains("no fork"), "{}", fork.said());
    let leases = [story.lease().await?.to_string(), story.lease().await?.to_string()];
    let (chain_id, controller) = (story.pool.id().chain_id.to_string(), story.pool.id().controller.to_string());
    let of = ["--log", url, "--pool", &controller, "--chain-id", &chain_id];
    let clash = ["evidence", "double-lease", &leases[0], &leases[1]];
    let clash = run(story.pool.home(), clash.into_iter().chain(of)).await?;
    assert!(clash.said().contains("never held the same place"), "{}", clash.said());
    let breach = run(story.pool.home(), ["evidence", "breach"].into_iter().chain(of)).await?;
    assert!(breach.said().contains("gives a place twice"), "{}", breach.said());
    assert_eq!(story.bond().await?, Amount(60_000_000));
    let said = story.audited().await?;
    assert!(said.starts_with("1 bonds and 0 convictions"), "{said}");
    Ok(())
}

#[tokio::test]
async fn an_authority_that_signs_two_heads_of_one_size_costs_its_owner_the_bond_at_once() -> Result<()> {
    let story = Story::begin().await?;
    story.lease().await?;
    let honest = story.head().await?;
    let (one, other) =
        (story.file("one.json", &json!(honest))?, story.file("other.json", &json!(story.lie(&honest.head)?))?);
    // Money on its way out is at stake as well.
    Story::act(&story.pool, &["authority", "unbond", "20"], "owner.key").await?.json()?;
    let before = story.tokens(&story.stranger).await?;
    let convicted = story.evidence(&["heads", &one, &other]).await?.json()?;
    assert_eq!(convicted["payee"], story.stranger.address().to_string());
    assert_eq!(story.bond().await?, Amount(0));
    assert_eq!(story.tokens(&story.stranger).await? - before, 6_000_000, "a tenth");
    assert!(story.pool.contracts.is_convicted(1, LATEST).await?);
    // Once for the epoch, whatever the evidence and whatever is paid in again.
    Story::act(&story.pool, &["authority", "bond", "10"], "owner.key").await?.json()?;
    let again = story.evidence(&["heads", &other, &one]).await?;
    assert_ne!(again.code, Some(0), "{}", again.out);
    assert_eq!(story.bond().await?, Amount(10_000_000));
    let said = story.audited().await?;
    assert!(said.starts_with("1 bonds and 1 convictions"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_head_against_the_anchor_and_a_promise_against_the_log_convict_too() -> Result<()> {
    let story = Story::begin().await?;
    story.lease().await?;
    let contracts = &story.pool.contracts;
    let anchored =
        until("an anchor", async || Ok(Some(contracts.head(LATEST).await?.size).filter(|size| *size > 0))).await?;
    // A promise that the first entry is another one than the log has.
    let fence = story.head().await?.head.fence;
    let promise = Promise { account: story.renter.signer.account(), seq: 0, leaf: Hash32([5; 32]), fence };
    let signature = story.authority.sign_text(&promise.digest_to_sign(&story.pool.id()).0)?;
    let file = story.file("promise.json", &json!(SignedPromise { promise, signature }))?;
    story.evidence(&["promise", &file, "--log", &story.controller.url]).await?.json()?;
    assert_eq!(story.bond().await?, Amount(0));

    // The next epoch's authority signs another head than the one that was anchored before it.
    Story::act(&story.pool, &["authority", "bond", "30"], "owner.key").await?.json()?;
    let last = contracts.head(LATEST).await?.size.max(anchored);
    Story::act(&story.pool, &["authority", "replace", "--authority-key", "next.key"], "owner.key").await?.json()?;
    let heir = Signer::open_or_create(&story.pool.path("next.key"))?;
    assert_eq!(contracts.authority(LATEST).await?, heir.account());
    let size = contracts.epoch_of(1, LATEST).await?.size;
    assert!(size >= last);
    let fence = selion_api::agent::Fence { epoch: 2, term: 1 };
    let head = Head { size, root: Hash32([6; 32]), digest: Hash32([7; 32]), fence };
    let signature = heir.sign_text(&head.digest_to_sign(&story.pool.id()).0)?;
    let file = story.file("heir.json", &json!(SignedHead { head, signature }))?;
    story.evidence(&["anchor", &file]).await?.json()?;
    assert_eq!(story.bond().await?, Amount(0));
    assert!(contracts.is_convicted(2, LATEST).await?);
    Ok(())
}

#[tokio::test]
async fn a_node_that_signs_one_number_twice_costs_its_provider_the_stake() -> Result<()> {
    let story = Story::begin().await?;
    let lease = story.lease().await?;
    let contracts = &story.pool.contracts;
    let (at, honest) = story.report_of(lease).await?;
    let mut report = honest.read()?.report;
    let provider = report.provider;
    assert!(contracts.provider(provider, LATEST).await?.context("a provider")?.stake > Amount(0));
    // Against itself it shows nothing, and the log has no other one.
    let one = story.file("one.json", &json!(honest))?;
    assert_ne!(story.evidence(&["reports", &one, &one]).await?.code, Some(0));
    let same = story.contradicting(&one).await?;
    assert!(same.code != Some(0) && same.said().contains(&format!("entry {at} of this log is that very")), "{same:?}");
    // Somebody holds another reading under the same number: the log is looked through for the one that it has.
    report.metered_ms += 60_000;
    let node = Signer::open_or_create(&story.pool.path("agent/node.key"))?;
    assert_eq!(node.account().0, report.node.0);
    let signature = node.sign_text(&signing_digest(&story.pool.id(), "report", &report).0)?;
    let mut signed = selion_api::agent::SignedReport { report: report.clone(), signature };
    let held = story.file("held.json", &json!(ReportFile::from(&signed)))?;
    let found = story.contradicting(&held).await?.json()?;
    assert_eq!(found, json!(honest));
    let other = story.file("other.json", &found)?;
    // So does an audit that is given it. One that is given what stands in the log finds nothing.
    let (kept, broken) = (story.reports_kept(&one).await?, story.reports_kept(&held).await?);
    assert_eq!((&kept["ok"], &broken["ok"], &broken["entry"]), (&json!(true), &json!(false), &json!(at)), "{broken}");
    assert!(!story.pool.path("honest.json").exists(), "no rule of the log is broken");
    // One that another key signed is nobody's.
    signed.signature = story.stranger.sign_text(&signing_digest(&story.pool.id(), "report", &report).0)?;
    let forged = story.contradicting(&story.file("forged.json", &json!(ReportFile::from(&signed)))?).await?;
    assert!(forged.code != Some(0) && forged.said().contains("not by its node"), "{forged:?}");
    story.evidence(&["reports", &held, &other]).await?.json()?;
    let left = contracts.provider(provider, LATEST).await?.context("a provider")?;
    assert_eq!((left.stake, left.unbonding), (Amount(0), Amount(0)));
    assert_eq!(contracts.binding(report.node, provider, LATEST).await?, (true, true));
    assert_ne!(story.evidence(&["reports", &held, &other]).await?.code, Some(0), "once for a node");
    // Without its stake the node is offered to nobody.
    let gone = async || Ok(story.renter.client.offers(&OfferQuery::default()).await?.offers.is_empty().then_some(()));
    until("no offer", gone).await
}

#[tokio::test]
async fn a_report_that_the_log_lacks_is_taken_from_the_agent_and_shown_against_any_copy_of_the_log() -> Result<()> {
    let mut story = Story::begin().await?;
    let asked = story.renter.client.create_lease(&fresh_key()?, &want(SliceWant::Whole, &["sleep", "600"])).await?;
    story.renter.client.wait(asked.id, LeaseState::Active, PATIENCE).await?;
    story.controller.part.kill().await?;
    // The agent goes on to meter, and keeps what nobody takes.
    let (state, log) = (story.pool.path("agent").display().to_string(), story.pool.path("controller"));
    let (chain_id, controller) = (story.pool.id().chain_id.to_string(), story.pool.id().controller.to_string());
    let log_text = log.display().to_string();
    let of = ["--log", &log_text, "--pool", &controller, "--chain-id", &chain_id];
    let held = until("a kept report that the log lacks", async || {
        let kept = run(story.pool.home(), ["evidence", "kept", &state]).await?;
        let Some(last) = kept.out.lines().last() else { return Ok(None) };
        let last: ReportFile = serde_json::from_str(last)?;
        let report = last.read()?.report;
        assert_eq!(report.lease, asked.id);
        let held = story.file("held.json", &json!(last))?;
        let lacks = run(story.pool.home(), ["evidence", "report", "--held", &held].into_iter().chain(of)).await?;
        let words = format!("has no report {} of node {}, the highest of it is", report.seq, report.node);
        // The last one that the controller took may be kept as well: it was killed before it said so.
        assert!(lacks.said().contains(&words) || lacks.said().contains("is that very report"), "{lacks:?}");
        Ok(lacks.said().contains(&words).then_some(held))
    })
    .await?;
    // A controller that comes back takes it, and the log has it.
    let listen = story.controller.url.trim_start_matches("http://").to_owned();
    story.controller = story.pool.controller(&log, &listen).await?;
    let same = async || Ok(story.contradicting(&held).await?.said().contains("is that very report").then_some(()));
    until("the log has the report", same).await
}

#[tokio::test]
async fn a_log_that_leases_a_place_twice_is_shown_to_who_has_no_log_and_a_changed_file_shows_nothing() -> Result<()> {
    let story = Story::begin().await?;
    let leases = [story.lease().await?, story.lease().await?];
    let (pool, home) = (story.pool.id(), story.pool.home());
    // The authority leaves out that the first lease's place came free, and signs that.
    let published = fetch(&LogSource::Url(story.controller.url.clone())).await?;
    let authority = Signer::open_or_create(&story.pool.path("authority.key"))?;
    let mut book = Book::copy(&Log::read(&published), pool, Cast { authority, ..Cast::random()? })?;
    for draft in &mut book.drafts {
        draft.effects.retain(|effect| !format!("{effect:?}").starts_with("Freed"));
    }
    let lines: Vec<String> = book.seal()?.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    std::fs::write(story.pool.path("lie.jsonl"), lines.join("\n"))?;
    let (chain_id, controller) = (pool.chain_id.to_string(), pool.controller.to_string());
    let audit =
        ["audit", "--rpc", &story.pool.rpc, "--pool", &controller, "--log", "lie.jsonl", "--evidence", "lie.json"];
    let audited = run(home, audit).await?;
    assert_eq!(audited.code, Some(1), "{audited:?}");
    let text = std::fs::read_to_string(story.pool.path("lie.json"))?;
    assert_eq!(text.lines().count(), 1, "{text}");
    // Whoever gets the file has the authority's address and the pool's, and nothing else.
    let verify = async |file: &str, authority: &str, pool: &str| {
        let of = ["--authority", authority, "--pool", pool, "--chain-id", &chain_id];
        run(home, ["evidence", "verify", file].into_iter().chain(of)).await
    };
    let (by, stranger) = (story.authority.account().to_string(), story.stranger.account().to_string());
    let shown = verify("lie.json", &by, &controller).await?.json()?;
    assert_eq!((&shown[0]["kind"], &shown[0]["one"]), (&json!("double_lease"), &json!(leases[0])), "{shown}");
    let mut tampered: Value = serde_json::from_str(&text)?;
    let effects = tampered["entries"][0]["effects"].as_array_mut().context("effects")?;
    effects.pop().context("an effect")?;
    story.file("tampered.json", &tampered)?;
    story.file("none.json", &json!({}))?;
    std::fs::write(story.pool.path("empty.json"), "")?;
    for (file, by, pool, why) in [
        ("tampered.json", &by, &controller, "are not those that it commits to"),
        ("none.json", &by, &controller, "missing field"),
        ("empty.json", &by, &controller, "it is empty"),
        ("lie.json", &stranger, &controller, "is signed by"),
        ("lie.json", &by, &stranger, "it is about pool"),
    ] {
        let refused = verify(file, by, pool).await?;
        assert!(refused.code != Some(0) && refused.said().contains(why), "{why}: {refused:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_pool_changes_hands_in_two_steps_and_its_log_goes_on() -> Result<()> {
    let story = Story::begin().await?;
    story.lease().await?;
    let (contracts, pool) = (&story.pool.contracts, &story.pool);
    let next = Signer::open_or_create(&pool.path("next-owner.key"))?;
    let accept = ["authority", "accept", "--authority-key", "next.key", "--log", &story.controller.url];
    let early = Story::act(pool, &accept, "next-owner.key").await?;
    assert_ne!(early.code, Some(0), "nobody was announced");
    Story::act(pool, &["authority", "announce", &next.account().to_string()], "owner.key").await?.json()?;
    let shown = Story::act(pool, &accept, "next-owner.key").await?.json()?;
    assert_eq!(shown["owner"], next.account().to_string());
    assert_eq!(contracts.owner(LATEST).await?, next.account());
    assert_eq!(contracts.epoch_of(1, LATEST).await?.owner, story.owner.account());
    // The former owner decides nothing any more, and has its bond.
    let back = Story::act(pool, &["authority", "replace", "--authority-key", "back.key"], "owner.key").await?;
    assert_ne!(back.code, Some(0));
    assert_eq!(story.bond().await?, Amount(60_000_000));
    // Nor does its controller; the next one's goes on with the same data.
    let mut old = story.controller;
    old.part.ended().await?;
    std::fs::copy(pool.path("next.key"), pool.path("authority.key"))?;
    let again = pool.controller(&pool.path("controller"), "127.0.0.1:0").await?;
    let epoch = until("heads of the next epoch", async || {
        let newest = again.client.log_head().await?.newest;
        Ok(newest.map(|signed| signed.head.fence.epoch).filter(|epoch| *epoch == 2))
    })
    .await?;
    assert_eq!(epoch, 2);
    Ok(())
}
