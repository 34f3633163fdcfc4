//! A head as a C2SP checkpoint: text for machines of other makes, signed as a note.
//!
//! ```text
//! selion/<chain id>/<address of the pool's Controller contract>
//! <entries>
//! <root, base64>
//! epoch <epoch>
//! term <term>
//! digest <digest of State, 0x and hex>
//! head <the authority's signature of the head itself, 0x and hex>
//!
//! — <origin> <base64: key id, signature of the text above>
//! ```
//!
//! The key id is the specification's, for a signature type that has no number: `0xff`, then [`SIGNATURE_TYPE`], then the
//! 20 bytes of the signer's address. The signature is r, s, v of secp256k1 over the text by EIP-191, as any wallet makes
//! it. The line `head` makes of every checkpoint a [`SignedHead`]: what agents compare and what is evidence on chain.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use selion_api::agent::{Fence, Head, SignedHead};
use selion_api::commit::PoolId;
use selion_api::{Account, Hash32, Signature};
use sha2::{Digest, Sha256};

/// Names the kind of signature within the key id.
const SIGNATURE_TYPE: &[u8] = b"selion/eip191-secp256k1";
/// Longest note that is read, in bytes, and most signatures: cosignatures of others may stand beside ours.
const MAX_NOTE: usize = 1 << 16;
const MAX_SIGNATURES: usize = 64;

/// A signed head with the pool whose log it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The pool.
    pub pool: PoolId,
    /// The head, with the authority's signature of its own.
    pub signed: SignedHead,
}

/// Why a text is no checkpoint of a log of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCheckpoint {
    /// It is no signed note.
    #[error("the checkpoint is no signed note: {0}")]
    Note(&'static str),
    /// A line of its text is not what belongs there.
    #[error("line {line} of the checkpoint is not {what}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What belongs there.
        what: &'static str,
    },
    /// No line of signature is of the log's own name and good.
    #[error("no signature on the checkpoint is by {0}")]
    Unsigned(String),
    /// The signature of the head is another's than that of the text.
    #[error("the checkpoint is signed by {note}, the head in it by {}", head_signer(.head))]
    TwoSigners {
        /// Of the text.
        note: Account,
        /// Of the head, if it is anybody's.
        head: Option<Account>,
    },
}

/// The name of a pool's log: first line of its checkpoints, and the name of the key that signs them.
fn origin(pool: &PoolId) -> String {
    format!("selion/{}/{}", pool.chain_id, pool.controller)
}

impl Checkpoint {
    /// The text that is signed.
    #[must_use]
    pub fn text(&self) -> String {
        let SignedHead { head: Head { size, root, digest, fence: Fence { epoch, term } }, signature } = &self.signed;
        let (origin, root) = (origin(&self.pool), STANDARD.encode(root.0));
        format!("{origin}\n{size}\n{root}\nepoch {epoch}\nterm {term}\ndigest {digest}\nhead {signature}\n")
    }

    /// The whole note, with the signature of `by` over [`Checkpoint::text`].
    #[must_use]
    pub fn note(&self, by: &Account, signature: &Signature) -> String {
        let origin = origin(&self.pool);
        let mut bytes = Vec::from(key_id(&origin, by));
        bytes.extend(signature.0);
        format!("{}\n\u{2014} {origin} {}\n", self.text(), STANDARD.encode(bytes))
    }

    /// The checkpoint in a note, and who signed it: compare that with the pool's authority. `recover` tells who signed
    /// a text by EIP-191.
    ///
    /// # Errors
    ///
    /// [`BadCheckpoint`]: the text is not exactly what [`Checkpoint::text`] writes, or not signed, text and head, by one
    /// key of the log's name. Signatures of other names are left to their readers.
    pub fn read(
        note: &str,
        recover: impl Fn(&[u8], &Signature) -> Option<Account>,
    ) -> Result<(Self, Account), BadCheckpoint> {
        if note.len() > MAX_NOTE {
            return Err(BadCheckpoint::Note("it is longer than any"));
        }
        let end = note.rfind("\n\n").ok_or(BadCheckpoint::Note("no empty line ends its text"))?;
        let (text, signatures) = (note.get(..=end).unwrap_or_default(), note.get(end + 2..).unwrap_or_default());
        let checkpoint = parse(text)?;
        let name = origin(&checkpoint.pool);
        let by = signer(text, signatures, &name, &recover)?;
        let signed = &checkpoint.signed;
        let head = recover(&signed.head.digest_to_sign(&checkpoint.pool).0, &signed.signature);
        if head != Some(by) {
            return Err(BadCheckpoint::TwoSigners { note: by, head });
        }
        Ok((checkpoint, by))
    }
}

fn head_signer(head: &Option<Account>) -> String {
    head.map_or_else(|| "nobody".into(), |head| format!("{head}"))
}

fn key_id(name: &str, by: &Account) -> [u8; 4] {
    let mut hasher = Sha256::new();
    hasher.update(name);
    hasher.update([b'\n', 0xff]);
    hasher.update(SIGNATURE_TYPE);
    hasher.update(by.0);
    let hash: [u8; 32] = hasher.finalize().into();
    [hash[0], hash[1], hash[2], hash[3]]
}

fn parse(text: &str) -> Result<Checkpoint, BadCheckpoint> {
    let mut lines = text.lines().zip(1..);
    let mut line = |what: &'static str| match lines.next() {
        Some((text, line)) => Ok((text, BadCheckpoint::Line { line, what })),
        None => Err(BadCheckpoint::Note("its text ends early")),
    };
    let (origin, bad) = line("the name of a log of ours: selion/<chain id>/<address>")?;
    let pool = || {
        let (chain_id, controller) = origin.strip_prefix("selion/")?.split_once('/')?;
        Some(PoolId { chain_id: chain_id.parse().ok()?, controller: controller.parse().ok()? })
    };
    let pool = pool().ok_or(bad)?;
    let (size, bad) = line("a number of entries")?;
    let size = size.parse().map_err(|_| bad)?;
    let (root, bad) = line("a root in base64")?;
    let root = STANDARD.decode(root).ok().and_then(|root| root.try_into().ok()).map(Hash32).ok_or(bad)?;
    let (epoch, bad) = line("`epoch` and its number")?;
    let epoch = epoch.strip_prefix("epoch ").and_then(|epoch| epoch.parse().ok()).ok_or(bad)?;
    let (term, bad) = line("`term` and its number")?;
    let term = term.strip_prefix("term ").and_then(|term| term.parse().ok()).ok_or(bad)?;
    let (digest, bad) = line("`digest` and 32 bytes of hex")?;
    let digest = digest.strip_prefix("digest ").and_then(|digest| digest.parse().ok()).ok_or(bad)?;
    let (signature, bad) = line("`head` and 65 bytes of hex")?;
    let signature = signature.strip_prefix("head ").and_then(|signature| signature.parse().ok()).ok_or(bad)?;
    let head = Head { size, root, digest, fence: Fence { epoch, term } };
    let checkpoint = Checkpoint { pool, signed: SignedHead { head, signature } };
    // One head has one text: a sign, a leading zero, a capital digit or one more line is another.
    if checkpoint.text() == text { Ok(checkpoint) } else { Err(BadCheckpoint::Note("its text is not canonical")) }
}

/// Who signed `text` under `name`.
fn signer(
    text: &str,
    signatures: &str,
    name: &str,
    recover: &impl Fn(&[u8], &Signature) -> Option<Account>,
) -> Result<Account, BadCheckpoint> {
    if !signatures.ends_with('\n') {
        return Err(BadCheckpoint::Note("its last line has no end"));
    }
    for line in signatures.lines().take(MAX_SIGNATURES) {
        let parts = line.strip_prefix("\u{2014} ").and_then(|rest| rest.split_once(' '));
        let (by, encoded) = parts.ok_or(BadCheckpoint::Note("a line of signature is not a dash, a name and base64"))?;
        let bytes = STANDARD.decode(encoded).map_err(|_| BadCheckpoint::Note("a signature is no base64"))?;
        let Some((id, signature)) = bytes.split_first_chunk::<4>().filter(|_| by == name) else {
            continue;
        };
        let who = signature.try_into().ok().and_then(|bytes| recover(text.as_bytes(), &Signature(bytes)));
        // Under our name, but of a key that we cannot know: the specification says to pass it by.
        if let Some(who) = who.filter(|who| key_id(name, who) == *id) {
            return Ok(who);
        }
    }
    Err(BadCheckpoint::Unsigned(name.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use selion_api::Address;

    const POOL: PoolId = PoolId { chain_id: 31_337, controller: Address([0xab; 20]) };
    const ALICE: Account = Account([0xa1; 20]);
    const EVE: Account = Account([0xee; 20]);

    /// Stands for a signature scheme: the hash of signer and text, with the signer behind it.
    fn sign(by: Account, text: &[u8]) -> Signature {
        let mut bytes = [27; 65];
        bytes[..32].copy_from_slice(&Sha256::new().chain_update(by.0).chain_update(text).finalize());
        bytes[32..52].copy_from_slice(&by.0);
        Signature(bytes)
    }

    fn recover(text: &[u8], signature: &Signature) -> Option<Account> {
        let by = Account(signature.0[32..52].try_into().unwrap());
        (sign(by, text) == *signature).then_some(by)
    }

    fn checkpoint(head_by: Account) -> Checkpoint {
        let fence = Fence { epoch: 3, term: 4 };
        let head = Head { size: 70_000, root: Hash32([1; 32]), digest: Hash32([2; 32]), fence };
        Checkpoint { pool: POOL, signed: SignedHead { head, signature: sign(head_by, &head.digest_to_sign(&POOL).0) } }
    }

    fn note(by: Account) -> String {
        let checkpoint = checkpoint(by);
        checkpoint.note(&by, &sign(by, checkpoint.text().as_bytes()))
    }

    fn read(note: &str) -> Result<(Checkpoint, Account), BadCheckpoint> {
        Checkpoint::read(note, recover)
    }

    #[test]
    fn a_checkpoint_has_the_lines_of_the_specification_and_reads_back() {
        let note = note(ALICE);
        let lines: Vec<&str> = note.lines().collect();
        let origin = "selion/31337/0xabababababababababababababababababababab";
        assert_eq!(lines[..3], [origin, "70000", "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="]);
        assert_eq!((lines[3], lines[4], lines[7]), ("epoch 3", "term 4", ""));
        assert!(lines[8].starts_with(&format!("\u{2014} {origin} ")) && lines.len() == 9, "{note}");
        assert_eq!(read(&note), Ok((checkpoint(ALICE), ALICE)));
    }

    #[test]
    fn signatures_of_other_names_and_keys_are_passed_by_wherever_they_stand() {
        let note = note(ALICE);
        let (text, ours) = note.split_once("\n\n").unwrap();
        let others = "\u{2014} witness.example/one AAAAAGFi\n";
        for lines in [format!("{others}{ours}"), format!("{ours}{others}")] {
            assert_eq!(read(&format!("{text}\n\n{lines}")).unwrap().1, ALICE);
        }
        let refused = read(&format!("{text}\n\n{others}")).unwrap_err();
        assert!(matches!(refused, BadCheckpoint::Unsigned(_)), "{refused}");
    }

    #[test]
    fn a_checkpoint_with_a_line_changed_is_refused_with_its_name() {
        let note = note(ALICE);
        let changed = [
            ("selion/31337", "selion/31338", "Unsigned"),
            ("selion/31337", "selion/031337", "canonical"),
            ("selion/31337", "example.com", "line: 1"),
            ("\n70000", "\n70001", "Unsigned"),
            ("\n70000", "\n+70000", "canonical"),
            ("\nAQEB", "\nAQE", "line: 3"),
            ("\nAQEB", "\nAQEC", "Unsigned"),
            ("epoch 3", "epoch three", "line: 4"),
            ("term 4", "turn 4", "line: 5"),
            ("digest 0x02", "digest 0x03", "Unsigned"),
            ("digest 0x02", "digest 0x2", "line: 6"),
            ("head 0x", "head ", "line: 7"),
            ("\n\n", "\nmore\n\n", "canonical"),
            ("\n\n", "\n", "empty line"),
            ("\u{2014} ", "- ", "a dash"),
        ];
        for (from, to, word) in changed {
            let refused = read(&note.replacen(from, to, 1)).unwrap_err();
            assert!(format!("{refused:?}").contains(word), "{from} as {to}: {refused:?}");
        }
        assert!(read(note.trim_end()).is_err() && read("").is_err() && read(&" ".repeat(1 << 17)).is_err());
    }

    #[test]
    fn text_and_head_have_to_be_signed_by_one_key() {
        let checkpoint = checkpoint(ALICE);
        let text = checkpoint.text();
        let two = checkpoint.note(&EVE, &sign(EVE, text.as_bytes()));
        assert_eq!(read(&two), Err(BadCheckpoint::TwoSigners { note: EVE, head: Some(ALICE) }));
        // A key id of another key than the one that signed is an unknown key's.
        let other = checkpoint.note(&EVE, &sign(ALICE, text.as_bytes()));
        assert!(matches!(read(&other), Err(BadCheckpoint::Unsigned(_))));
    }
}
