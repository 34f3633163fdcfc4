//! Signed transactions: reading the raw bytes and finding who signed them.

use alloy_rlp::{Decodable, Encodable, Header};
use revm::{
    context::TxEnv,
    context_interface::transaction::AccessList,
    precompile::crypto,
    primitives::{Address, B256, Bytes, TxKind, U256, keccak256, uint},
};

/// Half the order of secp256k1; a larger `s` is refused since EIP-2, so that a transaction has one hash.
const HALF_ORDER: U256 = uint!(0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0_U256);

/// A transaction whose signature was checked.
#[derive(Clone, Debug)]
pub(crate) struct SignedTx {
    pub(crate) hash: B256,
    pub(crate) from: Address,
    /// 0 legacy, 1 EIP-2930, 2 EIP-1559.
    pub(crate) kind: u8,
    /// Absent in legacy transactions from before EIP-155.
    pub(crate) chain_id: Option<u64>,
    pub(crate) nonce: u64,
    /// Wei per gas: the price of types 0 and 1, the cap of type 2.
    pub(crate) max_fee: u128,
    /// Wei per gas; type 2 only.
    pub(crate) tip: Option<u128>,
    pub(crate) gas_limit: u64,
    pub(crate) to: TxKind,
    pub(crate) value: U256,
    pub(crate) input: Bytes,
    pub(crate) access_list: AccessList,
    /// As signed: 27, 28 or 35 + 2 * chain id + parity for legacy, else the parity.
    pub(crate) v: u64,
    pub(crate) r: U256,
    pub(crate) s: U256,
    pub(crate) raw: Bytes,
}

/// Why raw bytes are no transaction of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadTx {
    #[error("failed to decode signed transaction: {0}")]
    Rlp(#[from] alloy_rlp::Error),
    #[error("failed to decode signed transaction: it is empty")]
    Empty,
    #[error("transaction type {0} is not supported by the dev chain; send type 0, 1 or 2")]
    Type(u8),
    #[error("invalid signature: v, r or s is out of range")]
    Signature,
    #[error("invalid chain id for signer: have {have} want {want}; sign for chain {want}")]
    ChainId { have: u64, want: u64 },
}

impl SignedTx {
    /// Reads a raw transaction of types 0, 1 and 2 for chain `chain_id` and recovers its sender.
    pub(crate) fn decode(raw: &Bytes, chain_id: u64) -> Result<Self, BadTx> {
        let (kind, mut rest) = match raw.first() {
            None => return Err(BadTx::Empty),
            Some(0xc0..) => (0, &raw[..]),
            Some(kind @ (1 | 2)) => (*kind, &raw[1..]),
            Some(kind) => return Err(BadTx::Type(*kind)),
        };
        let payload = Header::decode_bytes(&mut rest, true)?;
        if !rest.is_empty() {
            return Err(alloy_rlp::Error::UnexpectedLength.into());
        }
        let mut tx = Self::fields(kind, payload)?;
        if let Some(have) = tx.chain_id
            && have != chain_id
        {
            return Err(BadTx::ChainId { have, want: chain_id });
        }
        tx.hash = keccak256(raw);
        tx.raw = raw.clone();
        Ok(tx)
    }

    fn fields(kind: u8, payload: &[u8]) -> Result<Self, BadTx> {
        let mut rest = payload;
        let at = &mut rest;
        let typed_chain = if kind == 0 { None } else { Some(u64::decode(at)?) };
        let nonce = u64::decode(at)?;
        let tip = if kind == 2 { Some(u128::decode(at)?) } else { None };
        let max_fee = u128::decode(at)?;
        let gas_limit = u64::decode(at)?;
        let to = TxKind::decode(at)?;
        let value = U256::decode(at)?;
        let input = Bytes::decode(at)?;
        let access_list = if kind == 0 { AccessList::default() } else { AccessList::decode(at)? };
        let signed_part = &payload[..payload.len() - at.len()];
        let v = u64::decode(at)?;
        let r = U256::decode(at)?;
        let s = U256::decode(at)?;
        if !at.is_empty() {
            return Err(alloy_rlp::Error::UnexpectedLength.into());
        }
        let (parity, chain_id) = match (kind, v) {
            (0, 27 | 28) => (v == 28, None),
            (0, 35..) => ((v - 35) % 2 == 1, Some((v - 35) / 2)),
            (1 | 2, 0 | 1) => (v == 1, typed_chain),
            _ => return Err(BadTx::Signature),
        };
        let from = recover(signing_hash(kind, signed_part, chain_id), parity, r, s).ok_or(BadTx::Signature)?;
        let (hash, raw) = (B256::ZERO, Bytes::new());
        Ok(Self {
            hash,
            from,
            kind,
            chain_id,
            nonce,
            max_fee,
            tip,
            gas_limit,
            to,
            value,
            input,
            access_list,
            v,
            r,
            s,
            raw,
        })
    }

    /// The transaction as the EVM takes it.
    pub(crate) fn env(&self) -> TxEnv {
        TxEnv {
            tx_type: self.kind,
            caller: self.from,
            gas_limit: self.gas_limit,
            gas_price: self.max_fee,
            kind: self.to,
            value: self.value,
            data: self.input.clone(),
            nonce: self.nonce,
            chain_id: self.chain_id,
            access_list: self.access_list.clone(),
            gas_priority_fee: self.tip,
            ..TxEnv::default()
        }
    }
}

/// What the sender signed: the fields before the signature, under the type's envelope.
fn signing_hash(kind: u8, signed_part: &[u8], chain_id: Option<u64>) -> B256 {
    let mut suffix = Vec::new();
    if let (0, Some(chain_id)) = (kind, chain_id) {
        chain_id.encode(&mut suffix); // EIP-155
        0u8.encode(&mut suffix);
        0u8.encode(&mut suffix);
    }
    let mut out = Vec::with_capacity(signed_part.len() + suffix.len() + 10);
    if kind != 0 {
        out.push(kind);
    }
    Header { list: true, payload_length: signed_part.len() + suffix.len() }.encode(&mut out);
    out.extend_from_slice(signed_part);
    out.extend_from_slice(&suffix);
    keccak256(out)
}

fn recover(hash: B256, parity: bool, r: U256, s: U256) -> Option<Address> {
    if r.is_zero() || s.is_zero() || s > HALF_ORDER {
        return None;
    }
    let mut signature = [0; 64];
    signature[..32].copy_from_slice(&r.to_be_bytes::<32>());
    signature[32..].copy_from_slice(&s.to_be_bytes::<32>());
    let word = crypto().secp256k1_ecrecover(&signature, u8::from(parity), &hash.0).ok()?;
    Some(Address::from_word(word.into()))
}
