//! Running a constructor where its contract is, to know which code it leaves there.

use crate::{
    block::{Block, Header},
    evm::{self, Purpose, World},
    fees,
};
use revm::{
    context::{TxEnv, result::ExecutionResult},
    primitives::{Address, Bytes, TxKind},
    state::{AccountInfo, Bytecode},
};

/// An address and the code there.
pub type Coded = ([u8; 20], Vec<u8>);

/// Why a constructor left no code.
#[derive(Debug, thiserror::Error)]
pub enum ConstructError {
    /// The EVM did not begin.
    #[error("the constructor was not run: {0}")]
    NotRun(String),
    /// The constructor refused what it was given.
    #[error("the constructor refused: 0x{0}")]
    Refused(String),
}

/// The code that `creation`, with its arguments behind it, leaves at `at` on a chain, when the contract `maker` makes it;
/// and that of every account which the constructor makes itself. `around` are contracts that it asks, `maker` among them.
///
/// # Errors
///
/// [`ConstructError`].
pub fn construct(
    chain_id: u64,
    (at, maker): ([u8; 20], [u8; 20]),
    creation: Vec<u8>,
    around: Vec<Coded>,
) -> Result<(Vec<u8>, Vec<Coded>), ConstructError> {
    let mut world = World::default();
    // The constructor runs as the account's code: its address, its maker and its arguments are what they would be. A
    // contract's first nonce is 1 (EIP-161), so what it makes has the addresses that it would have.
    for (address, code) in around.into_iter().chain([(at, creation)]) {
        let info = AccountInfo { nonce: 1, ..AccountInfo::default() }.with_code(Bytecode::new_raw(Bytes::from(code)));
        world.insert_account_info(Address::from(address), info);
    }
    let header = Header::after(&Block::seal(Header::first(1), None), 2, 0);
    let tx = TxEnv {
        caller: Address::from(maker),
        kind: TxKind::Call(Address::from(at)),
        gas_limit: fees::BLOCK_GAS_LIMIT,
        chain_id: Some(chain_id),
        ..TxEnv::default()
    };
    let ran = evm::run(&world, &header, chain_id, tx, Purpose::Ask);
    let ran = ran.map_err(|error| ConstructError::NotRun(error.to_string()))?;
    let ExecutionResult::Success { output, .. } = ran.result else {
        let said = ran.result.output().map(ToString::to_string).unwrap_or_default();
        return Err(ConstructError::Refused(said.trim_start_matches("0x").to_owned()));
    };
    let made = ran.state.iter().filter(|(_, account)| account.is_created());
    let made = made.filter_map(|(address, account)| {
        Some((address.into_array(), account.info.code.as_ref()?.original_byte_slice().to_vec()))
    });
    Ok((output.into_data().to_vec(), made.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAIN: u64 = 31_337;
    const PLACES: ([u8; 20], [u8; 20]) = ([7; 20], [8; 20]);

    #[test]
    fn a_constructor_sees_its_address_its_maker_and_its_argument() {
        // Memory: ADDRESS, CALLER, and the 32 bytes behind these 18 of code; all of it is the code that is left.
        let code = [0x30, 0x5f, 0x52, 0x33, 0x60, 32, 0x52, 0x60, 32, 0x60, 18, 0x60, 64, 0x39, 0x60, 96, 0x5f, 0xf3];
        let creation = [&code[..], &[9; 32]].concat();
        let (code, made) = construct(CHAIN, PLACES, creation, Vec::new()).unwrap();
        let expected = [&[0; 12][..], &[7; 20], &[0; 12], &[8; 20], &[9; 32]].concat();
        assert_eq!((code, made), (expected, Vec::new()));
    }

    #[test]
    fn what_a_constructor_refuses_is_told() {
        let error = construct(CHAIN, PLACES, vec![0x5f, 0x5f, 0xfd], Vec::new()).unwrap_err();
        assert!(matches!(error, ConstructError::Refused(_)), "{error}");
    }
}
