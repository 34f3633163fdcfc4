//! The contracts of a pool as their constructors make them: what an auditor runs to know the code that has to be there.

use ethers_core::abi::{Token, Tokenizable as _, encode};
use ethers_core::types::U256;
use selion_api::Address;

use crate::abi::controller::CONTROLLERABI_BYTECODE;
use crate::abi::court::COURTABI_BYTECODE;
use crate::abi::factory::PoolConfig;
use crate::abi::forwarder::FORWARDERABI_BYTECODE;
use crate::abi::vault::VAULTABI_BYTECODE;
use crate::opened::Opened;
use crate::pool::{Pool, PoolError};
use crate::rpc::BlockTag;
use crate::word::h160;

/// A contract before it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmade {
    /// Its name.
    pub name: &'static str,
    /// Where it is.
    pub at: Address,
    /// The committed creation code, and behind it the arguments by the pool's terms.
    pub creation: Vec<u8>,
    /// Who makes it. The contract there answers the constructor's questions.
    pub maker: Address,
    /// What the constructor asks, by where: code that gives the one answer.
    pub around: Vec<(Address, Vec<u8>)>,
}

/// The factory, as far as a constructor sees it: nothing that is left depends on its address.
const MAKER: Address = Address([0xfa; 20]);

impl Pool {
    /// The contracts that the pool is made of, by the committed code and the terms that it was opened with: forwarder,
    /// vault, controller and court. Where they are, and the token's scale, is what the pool answers: if that is a
    /// lie, what is there is another code than what this gives.
    ///
    /// # Errors
    ///
    /// Any [`PoolError`].
    pub async fn unmade(&self, opened: &Opened, block: BlockTag) -> Result<[Unmade; 4], PoolError> {
        let (forwarder, scale) = (self.forwarder(block).await?, self.scale(block).await?);
        Ok(unmade(self.at.controller, opened, forwarder, scale))
    }
}

fn unmade(controller: Address, opened: &Opened, forwarder: Address, scale: u128) -> [Unmade; 4] {
    let Opened { vault, court, terms } = opened;
    let place = |at: Address| Token::Address(h160(at));
    let number = |number: u64| Token::Uint(number.into());
    let token = place(terms.token);
    let for_vault = [
        place(controller),
        token.clone(),
        Token::Address(h160(terms.authority)),
        number(terms.fee_bps.into()),
        number(terms.thaw_delay_s.into()),
        place(forwarder),
    ];
    let for_court = [
        place(controller),
        place(*vault),
        token,
        number(terms.unbond_delay_s.into()),
        number(terms.min_bond.0),
        place(forwarder),
    ];
    let for_controller = [PoolConfig::from(terms).into_token(), place(forwarder)];
    // A unit is a millionth of a token, and the scale is base units in a unit.
    let decimals = U256::from(scale.checked_ilog10().unwrap_or(0) + 6);
    let asks_token = vec![(terms.token, answering(&[decimals]))];
    let asks_maker = vec![
        (MAKER, answering(&[*vault, *court].map(|part| U256::from_big_endian(&part.0)))),
        (*vault, answering(&[U256::from(scale)])),
    ];
    let with = |name, at, code: &[u8], arguments: &[Token], around| {
        let creation = [code, &encode(arguments)].concat();
        Unmade { name, at, creation, maker: MAKER, around }
    };
    [
        with("forwarder", forwarder, &FORWARDERABI_BYTECODE, &[], Vec::new()),
        with("vault", *vault, &VAULTABI_BYTECODE, &for_vault, asks_token.clone()),
        with("controller", controller, &CONTROLLERABI_BYTECODE, &for_controller, asks_maker),
        with("court", *court, &COURTABI_BYTECODE, &for_court, asks_token),
    ]
}

/// Code that answers every call with these words.
fn answering(words: &[U256]) -> Vec<u8> {
    let mut code = Vec::new();
    let mut length = 0_u8;
    for word in words {
        let mut bytes = [0; 32];
        word.to_big_endian(&mut bytes);
        // PUSH32 word, PUSH1 place, MSTORE
        code.extend([&[0x7f][..], &bytes, &[0x60, length, 0x52]].concat());
        length += 32;
    }
    // PUSH1 length, PUSH0, RETURN
    code.extend([0x60, length, 0x5f, 0xf3]);
    code
}
