//! Calls that their caller signs and somebody else sends: requests to the pool's forwarder (ERC-2771), so that an
//! account without gas can join.

use std::fmt;

use ethers_core::abi::{AbiDecode as _, AbiEncode as _, Function};
use ethers_core::types::{Bytes, U256};
use ethers_core::utils::keccak256;
use selion_api::{Account, Address, Hash32, Signature};

use crate::abi::{controller, forwarder as f, token, vault};
use crate::deploy::PoolAddresses;
use crate::pool::{Pool, PoolError};
use crate::rpc::{BlockTag, RpcError};
use crate::signer::{Signer, SignerError, recover_digest};
use crate::voucher::typed_digest;
use crate::word::{address, h160};
use crate::write::Call;

const FORWARDER_NAME: &str = "Selion Forwarder";
const REQUEST_TYPE: &str =
    "ForwardRequest(address from,address to,uint256 value,uint256 gas,uint256 nonce,uint48 deadline,bytes data)";
/// Seconds that 48 bits hold.
const LAST_DEADLINE: u64 = (1 << 48) - 1;
/// What a contract's `isValidSignature` answers when it accepts one (EIP-1271).
const ACCEPTED: [u8; 4] = [0x16, 0x26, 0xba, 0x7e];

/// A call that `from` wants to have made. It never carries coin of the chain: its value is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardRequest {
    /// Whose call it is.
    pub from: Account,
    /// The contract.
    pub to: Address,
    /// Gas that the call itself may use.
    pub gas: u64,
    /// How many requests of `from` went before.
    pub nonce: u64,
    /// Second since 1970 after which it counts no more.
    pub deadline_s: u64,
    /// Selector and arguments.
    pub data: Vec<u8>,
}

impl ForwardRequest {
    /// The EIP-712 digest for the forwarder at this address.
    #[must_use]
    pub fn digest(&self, chain_id: u64, forwarder: Address) -> Hash32 {
        let fields = (
            keccak256(REQUEST_TYPE),
            h160(self.from),
            h160(self.to),
            U256::zero(),
            U256::from(self.gas),
            U256::from(self.nonce),
            self.deadline_s.min(LAST_DEADLINE),
            keccak256(&self.data),
        );
        typed_digest(FORWARDER_NAME, chain_id, forwarder, keccak256(fields.encode()))
    }

    /// Signs it with the account's own key.
    ///
    /// # Errors
    ///
    /// [`SignerError::Refused`].
    pub fn sign(&self, signer: &Signer, chain_id: u64, forwarder: Address) -> Result<Signature, SignerError> {
        signer.sign_digest(self.digest(chain_id, forwarder))
    }

    /// Whose key signed it; `None` if the signature is no key's.
    #[must_use]
    pub fn recover(&self, signature: &[u8], chain_id: u64, forwarder: Address) -> Option<Account> {
        recover_digest(self.digest(chain_id, forwarder), &Signature(signature.try_into().ok()?))
    }

    /// What the target is told: the forwarder appends whose call it is.
    #[must_use]
    pub fn as_told(&self) -> Vec<u8> {
        [&self.data[..], &self.from.0].concat()
    }

    /// The call of the forwarder that makes it happen.
    #[must_use]
    pub fn execute(&self, forwarder: Address, signature: &[u8]) -> Call {
        let request = f::ForwardRequestData {
            from: h160(self.from),
            to: h160(self.to),
            value: U256::zero(),
            gas: U256::from(self.gas),
            deadline: self.deadline_s.min(LAST_DEADLINE),
            data: self.data.clone().into(),
            signature: signature.to_vec().into(),
        };
        Call { to: forwarder, data: f::ExecuteCall { request }.encode() }
    }
}

/// The call that a forwarder makes when it is told this, with its caller appended; `None` if that is no request.
#[must_use]
pub fn made_by(calldata: &[u8]) -> Option<Call> {
    let f::ExecuteCall { request } = f::ExecuteCall::decode(calldata).ok()?;
    Some(Call { to: address(request.to), data: [&request.data[..], request.from.as_bytes()].concat() })
}

/// Why bytes are no call that a pool's contracts have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotACall {
    /// It is for somebody else.
    #[error(
        "{to} is not a contract of this pool; its Controller is {controller}, its Vault {vault}, its token {token}"
    )]
    Elsewhere {
        /// For whom it is.
        to: Address,
        /// The pool's Controller.
        controller: Address,
        /// The pool's Vault.
        vault: Address,
        /// The pool's token.
        token: Address,
    },
    /// The contract has no such function.
    #[error("{contract} at {to} has no function with the selector 0x{}", hex::encode(selector))]
    Unknown {
        /// Which contract.
        contract: Contract,
        /// Where.
        to: Address,
        /// What was asked for; shorter than four bytes if the data is.
        selector: Vec<u8>,
    },
    /// The arguments are not the function's, or not written in the one canonical way.
    #[error("{bytes} bytes of arguments are not those of {signature}")]
    Arguments {
        /// The function.
        signature: String,
        /// How many there are.
        bytes: usize,
    },
}

/// A contract of a pool that takes relayed calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// Registry, authority, anchors.
    Controller,
    /// The money.
    Vault,
    /// What everything is paid in. It takes no relayed calls, but permits.
    Token,
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Controller => "Controller",
            Self::Vault => "Vault",
            Self::Token => "token",
        })
    }
}

/// Which function of a pool a call is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolCall {
    /// Of which contract.
    pub contract: Contract,
    /// The function's name.
    pub name: String,
}

impl PoolCall {
    /// Reads a call to one of the pool's contracts. Every byte must be accounted for.
    ///
    /// # Errors
    ///
    /// [`NotACall`].
    pub fn read(pool: &PoolAddresses, to: Address, data: &[u8]) -> Result<Self, NotACall> {
        let PoolAddresses { controller, vault, token, .. } = *pool;
        let (contract, abi) = if to == controller {
            (Contract::Controller, &*controller::CONTROLLERABI_ABI)
        } else if to == vault {
            (Contract::Vault, &*vault::VAULTABI_ABI)
        } else if to == token {
            (Contract::Token, &*token::TESTTOKENABI_ABI)
        } else {
            return Err(NotACall::Elsewhere { to, controller, vault, token });
        };
        let selector = &data[..data.len().min(4)];
        let function = abi.functions().find(|function| function.short_signature() == selector);
        let function = function.ok_or_else(|| NotACall::Unknown { contract, to, selector: selector.to_vec() })?;
        if !is_exactly(function, data) {
            return Err(NotACall::Arguments { signature: function.signature(), bytes: data.len().saturating_sub(4) });
        }
        Ok(Self { contract, name: function.name.clone() })
    }
}

fn is_exactly(function: &Function, data: &[u8]) -> bool {
    let arguments = data.get(4..).unwrap_or_default();
    let again = function.decode_input(arguments).and_then(|tokens| function.encode_input(&tokens));
    again.is_ok_and(|again| again == data)
}

impl Pool {
    /// The nonce of an account's next request at a forwarder.
    ///
    /// # Errors
    ///
    /// Any [`PoolError`].
    pub async fn forwarder_nonce(&self, forwarder: Address, of: Account) -> Result<u64, PoolError> {
        self.next_nonce(forwarder, of).await
    }

    /// The nonce that `counter` expects next of an account: a forwarder in its requests, a token in its permits.
    ///
    /// # Errors
    ///
    /// Any [`PoolError`].
    pub async fn next_nonce(&self, counter: Address, of: Account) -> Result<u64, PoolError> {
        let bad = || PoolError::BadAnswer { contract: counter, what: "nonces" };
        let call = f::NoncesCall { owner: h160(of) }.encode();
        let answer = self.rpc.call(counter, &call, BlockTag::Latest).await?;
        let nonce = U256::decode(answer).map_err(|_| bad())?;
        u64::try_from(nonce).map_err(|_| bad())
    }

    /// Whether the contract of an account accepts a signature (EIP-1271); an account without code accepts none.
    ///
    /// # Errors
    ///
    /// Any [`RpcError`] but a refusal by that contract, which is an answer.
    pub async fn accepts_signature(&self, who: Account, digest: Hash32, signature: &[u8]) -> Result<bool, RpcError> {
        let at = Address(who.0);
        if self.rpc.code(at).await?.is_empty() {
            return Ok(false);
        }
        // isValidSignature(bytes32,bytes) answers its own selector.
        let call = [&ACCEPTED[..], &(digest.0, Bytes::from(signature.to_vec())).encode()].concat();
        match self.rpc.call(at, &call, BlockTag::Latest).await {
            Ok(answer) => Ok(answer.len() >= 32 && answer.starts_with(&ACCEPTED)),
            Err(RpcError::Reverted { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Runs a request as the chain stands, as the forwarder would make it, and then the forwarder's own call by `sender`.
    ///
    /// # Errors
    ///
    /// [`RpcError::Reverted`] with the pool's own reason if the call is refused, or the forwarder's if the request is.
    pub async fn try_request(
        &self,
        forwarder: Address,
        request: &ForwardRequest,
        signature: &[u8],
        sender: Account,
    ) -> Result<(), RpcError> {
        // By itself first: the forwarder does not pass the pool's reason on.
        let (from, told) = (Account(forwarder.0), request.as_told());
        self.rpc.call_from(from, Some(request.to), &told, BlockTag::Latest).await?;
        let call = request.execute(forwarder, signature);
        self.rpc.call_from(sender, Some(call.to), &call.data, BlockTag::Latest).await.map(drop)
    }
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
