//! People who use a pool at random: every call of the contracts that leaves an event.

use selion_api::chain::ComponentKind;
use selion_api::{Account, Amount, Hash32, NodeId, TimeMs};
use selion_contracts::write::Call;
use selion_contracts::{BlockTag, Pool, Signer, Voucher};
use selion_controller::mirror::pool::{PoolOptions, create_pool};

use super::Dice;
use super::chain::Chain;

/// Far away, in whole seconds.
const UNTIL: TimeMs = TimeMs(4_000_000_000_000);
const LATEST: BlockTag = BlockTag::Latest;

/// Who there is.
pub struct Actors {
    pub pool: Pool,
    /// Authority passes between them.
    pub operators: Vec<Signer>,
    pub providers: Vec<Signer>,
    pub nodes: Vec<Signer>,
    pub renters: Vec<Signer>,
    /// The renters' own keys, one each.
    pub sessions: Vec<Signer>,
    /// The key that the renters may grant to.
    pub delegate: Signer,
    size: u64,
}

impl Actors {
    /// A pool on `chain` with people who have tokens. Nothing of that leaves with a reorganisation of ten blocks.
    pub async fn open(chain: &Chain) -> Self {
        let mut people = Vec::new();
        for _ in 0..8 {
            people.push(chain.person().await);
        }
        let rpc = &chain.rpc;
        let options = PoolOptions {
            thaw_delay_s: 0,
            unbond_delay_s: 0,
            min_stake: Amount(1_000),
            grace_s: 3_600,
            hand_over_delay_s: 0,
            take_over_after_s: 0,
            ..PoolOptions::development(people[0].account(), people[0].account())
        };
        let made = create_pool(rpc, &people[0], &options).await.unwrap();
        let pool = Pool::open(rpc.clone(), made.controller).await.unwrap();
        for who in &people {
            for call in [pool.mint(who.address(), 1 << 60), pool.approve_vault(), pool.approve_controller()] {
                pool.send(who, call).await.unwrap();
            }
        }
        chain.mine(10).await;
        let some = |count: usize| (0..count).map(|_| Signer::random().unwrap()).collect::<Vec<_>>();
        let (renters, providers) = (people.split_off(5), people.split_off(2));
        let (nodes, sessions) = (some(4), some(renters.len()));
        let delegate = Signer::random().unwrap();
        Self { pool, operators: people, providers, nodes, renters, sessions, delegate, size: 0 }
    }

    /// Makes one call at random. False if the contracts refuse it as things are; nothing is sent then.
    pub async fn act(&mut self, dice: &mut Dice) -> bool {
        let (who, call) = self.choose(dice).await;
        self.pool.send(&who, call).await.is_ok()
    }

    async fn choose(&mut self, dice: &mut Dice) -> (Signer, Call) {
        match dice.below(10) {
            0..3 => self.of_provider(dice).await,
            3..7 => self.of_renter(dice),
            _ => self.of_operator(dice).await,
        }
    }

    async fn of_provider(&self, dice: &mut Dice) -> (Signer, Call) {
        let (pool, who) = (&self.pool, dice.pick(&self.providers).clone());
        let key = dice.pick(&self.nodes);
        let node = NodeId(key.account().0);
        let call = match dice.below(9) {
            0 | 1 => pool.register_provider(who.address(), Amount(500 + dice.below(2_000))),
            2 => pool.unbond(Amount(1 + dice.below(900))),
            3 => pool.withdraw_stake(),
            4 | 5 => {
                let nonce = pool.node(node, LATEST).await.map_or(0, |record| record.nonce);
                pool.register_node(node, &pool.sign_node_binding(key, who.account(), nonce).unwrap())
            }
            6 => pool.set_offer(node, Hash32([dice.below(250) as u8 + 1; 32]), 1 << 5, "cid"),
            7 => pool.close_offer(node),
            _ => match dice.chance(30) {
                true => pool.retire_node(node),
                false => pool.cash_out(who.account()),
            },
        };
        (who, call)
    }

    fn of_renter(&self, dice: &mut Dice) -> (Signer, Call) {
        let index = usize::try_from(dice.below(self.renters.len() as u64)).unwrap();
        let (pool, who, session) = (&self.pool, self.renters[index].clone(), self.sessions[index].address());
        let amount = Amount(1 + dice.below(10_000));
        let call = match dice.below(9) {
            0 | 1 => pool.deposit(amount),
            2 => pool.enter(Amount(dice.below(2) * amount.0), session, UNTIL),
            3 => pool.grant(self.delegate.address(), amount, UNTIL),
            4 => pool.revoke(if dice.chance(50) { session } else { self.delegate.address() }),
            5 | 6 => pool.thaw(Amount(dice.below(3) / 2 * amount.0 + dice.below(2_000))),
            _ => pool.withdraw(who.address()),
        };
        (who, call)
    }

    async fn of_operator(&mut self, dice: &mut Dice) -> (Signer, Call) {
        let authority = self.pool.authority(LATEST).await.unwrap();
        let who = self.operators.iter().find(|who| who.account() == authority).unwrap().clone();
        let epoch = self.pool.head(LATEST).await.unwrap().epoch;
        let pool = &self.pool;
        let call = match dice.below(8) {
            0 | 1 => {
                self.size += 1 + dice.below(5);
                let root = Hash32([self.size as u8; 32]);
                pool.anchor(epoch, self.size, root, root)
            }
            2 => {
                // Two places, and a time that is over ends the entry.
                let soon = self.pool.rpc.header(LATEST).await.unwrap().time_s + 3_600;
                let until = if dice.chance(20) { TimeMs(1_000) } else { TimeMs(soon * 1_000) };
                let places = ["http://a", "http://b"];
                pool.register_component(ComponentKind::Controller, dice.pick::<&str>(&places), until)
            }
            3 if dice.chance(20) => {
                let (owner, heir) = (&self.operators[0], self.other(authority));
                let consent = pool.sign_authority_binding(heir, owner.account(), epoch + 1).unwrap();
                return (owner.clone(), pool.replace_authority(heir.account(), &consent));
            }
            3 => {
                let owner = self.operators[0].clone();
                let payee = owner.address();
                return (owner, pool.cash_out_fees(1 + dice.below(epoch.into()) as u32, payee));
            }
            _ => self.claims(dice, &who, epoch).await,
        };
        (who, call)
    }

    fn other(&self, authority: Account) -> &Signer {
        self.operators.iter().find(|other| other.account() != authority).unwrap()
    }

    /// Vouchers of all renters for two providers, some of them stale or above the balance.
    async fn claims(&self, dice: &mut Dice, authority: &Signer, epoch: u32) -> Call {
        let mut vouchers = Vec::new();
        for (renter, session) in self.renters.iter().zip(&self.sessions) {
            let provider = dice.pick(&self.providers).account();
            let (claimed, _) = self.pool.claimed(provider, renter.account(), LATEST).await.unwrap();
            let voucher = Voucher {
                renter: renter.account(),
                provider,
                cumulative: Amount(claimed.0 + dice.below(4_000)),
                used_through: TimeMs(1_700_000_000_000),
                epoch,
                log_size: 1,
            };
            let key = if dice.chance(40) { &self.delegate } else { session };
            let by = |signer: &Signer| voucher.sign(signer, self.pool.chain_id, self.pool.at.vault).unwrap();
            vouchers.push(voucher.signed(by(key), by(authority)));
        }
        self.pool.claim_many(&vouchers)
    }
}
