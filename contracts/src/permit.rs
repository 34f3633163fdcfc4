//! Allowances that their owner signs and anybody brings (EIP-2612), so that an account without gas can let a pool take
//! its tokens.

use ethers_core::abi::{AbiDecode as _, AbiEncode as _};
use ethers_core::types::U256;
use ethers_core::utils::keccak256;
use selion_api::{Account, Address, Hash32, Signature};

use crate::abi::token as t;
use crate::pool::{Pool, PoolError};
use crate::rpc::{BlockTag, RpcError};
use crate::signer::{Signer, SignerError, recover_digest};
use crate::voucher::typed_under;
use crate::word::{account, address, h160};
use crate::write::Call;

const PERMIT_TYPE: &str = "Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)";

/// What `owner` lets `spender` take of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    /// Whose tokens.
    pub owner: Account,
    /// Who may take them.
    pub spender: Address,
    /// How many permits of `owner` the token took before.
    pub nonce: u64,
    /// Second since 1970 after which it counts no more.
    pub deadline_s: u64,
    /// Base units.
    value: U256,
}

impl Permit {
    /// Lets `spender` take whatever `owner` has, without end, as [`Pool::approve_controller`] does.
    #[must_use]
    pub const fn endless(owner: Account, spender: Address, nonce: u64, deadline_s: u64) -> Self {
        Self { owner, spender, nonce, deadline_s, value: U256::MAX }
    }

    /// The EIP-712 digest under a token's domain: see [`Pool::permit_domain`].
    #[must_use]
    pub fn digest(&self, domain: Hash32) -> Hash32 {
        let fields = (
            keccak256(PERMIT_TYPE),
            h160(self.owner),
            h160(self.spender),
            self.value,
            U256::from(self.nonce),
            U256::from(self.deadline_s),
        );
        typed_under(domain.0, keccak256(fields.encode()))
    }

    /// Signs it with the owner's key.
    ///
    /// # Errors
    ///
    /// [`SignerError::Refused`].
    pub fn sign(&self, signer: &Signer, domain: Hash32) -> Result<Signature, SignerError> {
        signer.sign_digest(self.digest(domain))
    }

    /// Whether its owner's key signed it. The malleable twin of a signature (a high `s`) is none.
    #[must_use]
    pub fn is_signed(&self, signature: &Signature, domain: Hash32) -> bool {
        recover_digest(self.digest(domain), signature) == Some(self.owner)
    }

    /// The call of `token` that makes it count.
    #[must_use]
    pub fn call(&self, token: Address, signature: &Signature) -> Call {
        let (r, s, v) = parts(signature);
        let call = t::PermitCall {
            owner: h160(self.owner),
            spender: h160(self.spender),
            value: self.value,
            deadline: self.deadline_s.into(),
            v,
            r,
            s,
        };
        Call { to: token, data: call.encode() }
    }

    /// Reads that call; which nonce was signed it does not say. `None` if it is another call, or its deadline is beyond
    /// 64 bits.
    #[must_use]
    pub fn read(data: &[u8], nonce: u64) -> Option<(Self, Signature)> {
        let t::PermitCall { owner, spender, value, deadline, v, r, s } = t::PermitCall::decode(data).ok()?;
        let deadline_s = u64::try_from(deadline).ok()?;
        let permit = Self { owner: account(owner), spender: address(spender), nonce, deadline_s, value };
        let mut signature = [v; 65];
        signature[..32].copy_from_slice(&r);
        signature[32..64].copy_from_slice(&s);
        Some((permit, Signature(signature)))
    }
}

/// `r`, `s` and `v`.
fn parts(signature: &Signature) -> ([u8; 32], [u8; 32], u8) {
    let (mut r, mut s) = ([0; 32], [0; 32]);
    r.copy_from_slice(&signature.0[..32]);
    s.copy_from_slice(&signature.0[32..64]);
    (r, s, signature.0[64])
}

impl Pool {
    /// The domain under which the pool's token takes permits; `None` if it takes none.
    ///
    /// # Errors
    ///
    /// Any [`RpcError`] but a refusal by the token, which is an answer.
    pub async fn permit_domain(&self) -> Result<Option<Hash32>, RpcError> {
        // Nobody has the account 0; a token that counts permits says 0 for it, another one refuses or says nothing.
        let counts = t::NoncesCall { owner: h160(Address::ZERO) }.encode();
        if self.word_of_token(&counts).await?.is_none() {
            return Ok(None);
        }
        Ok(self.word_of_token(&t::DomainSeparatorCall.encode()).await?.map(Hash32))
    }

    async fn word_of_token(&self, call: &[u8]) -> Result<Option<[u8; 32]>, RpcError> {
        match self.rpc.call(self.at.token, call, BlockTag::Latest).await {
            Ok(answer) => Ok(answer.try_into().ok()),
            Err(RpcError::Reverted { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The nonce of an account's next permit.
    ///
    /// # Errors
    ///
    /// Any [`PoolError`].
    pub async fn permit_nonce(&self, of: Account) -> Result<u64, PoolError> {
        self.next_nonce(self.at.token, of).await
    }
}

#[cfg(test)]
#[path = "permit_tests.rs"]
mod tests;
