//! What the authority signs when it is asked, beside the heads that the sequencer signs: checkpoints and promises.

use std::sync::{Arc, Mutex, PoisonError};

use selion_api::agent::{Promise, SignedHead, SignedPromise};
use selion_api::commit::PoolId;
use selion_api::{Account, Signature};
use selion_log::Checkpoint;

/// Signs a text by EIP-191.
type Sign = Box<dyn Fn(&[u8]) -> Signature + Send + Sync>;

/// Signs for a pool's authority.
pub struct Pen {
    pool: PoolId,
    authority: Account,
    sign: Sign,
    /// The newest note: one head is signed once, however many ask.
    newest: Mutex<Option<(SignedHead, Arc<str>)>>,
}

impl Pen {
    /// The pen of `authority`, whose key is behind `sign`.
    pub fn new(pool: PoolId, authority: Account, sign: impl Fn(&[u8]) -> Signature + Send + Sync + 'static) -> Self {
        Self { pool, authority, sign: Box::new(sign), newest: Mutex::default() }
    }

    /// The head as a checkpoint: a signed note.
    pub fn checkpoint(&self, signed: SignedHead) -> Arc<str> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, note)) = newest.as_ref().filter(|(head, _)| *head == signed) {
            return note.clone();
        }
        let checkpoint = Checkpoint { pool: self.pool, signed };
        let signature = (self.sign)(checkpoint.text().as_bytes());
        let note: Arc<str> = checkpoint.note(&self.authority, &signature).into();
        *newest = Some((signed, note.clone()));
        note
    }

    /// The promise, signed.
    pub fn promise(&self, promise: Promise) -> SignedPromise {
        SignedPromise { signature: (self.sign)(&promise.digest_to_sign(&self.pool).0), promise }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use selion_api::agent::{Fence, Head};
    use selion_api::{Address, Hash32};
    use selion_contracts::Signer;
    use selion_contracts::signer::recover_text;

    use super::*;

    const POOL: PoolId = PoolId { chain_id: 31_337, controller: Address([1; 20]) };

    fn pen() -> Pen {
        let key = Signer::from_bytes(&[5; 32]).unwrap();
        Pen::new(POOL, key.account(), move |text| key.sign_text(text).unwrap())
    }

    #[test]
    fn a_checkpoint_of_the_pen_reads_back_with_its_signer() {
        let pen = pen();
        let head = Head { size: 7, root: Hash32([1; 32]), digest: Hash32([2; 32]), fence: Fence { epoch: 1, term: 2 } };
        let signed = SignedHead { head, signature: (pen.sign)(&head.digest_to_sign(&POOL).0) };
        let note = pen.checkpoint(signed);
        let (checkpoint, by) = Checkpoint::read(&note, recover_text).unwrap();
        assert_eq!((checkpoint, by), (Checkpoint { pool: POOL, signed }, pen.authority));
        assert!(Arc::ptr_eq(&note, &pen.checkpoint(signed)), "signed once");
        let later = SignedHead { head: Head { size: 8, ..head }, ..signed };
        assert_ne!(pen.checkpoint(later), note);
    }

    #[test]
    fn a_promise_of_the_pen_is_the_authoritys_and_the_same_each_time() {
        let pen = pen();
        let promise =
            |seq| Promise { account: Account([3; 20]), seq, leaf: Hash32([4; 32]), fence: Fence { epoch: 1, term: 1 } };
        let signed = pen.promise(promise(1));
        assert_eq!(signed, pen.promise(promise(1)));
        let began = Instant::now();
        for seq in 0..1_000 {
            let signed = pen.promise(promise(seq));
            assert_ne!(signed.signature, Signature::ZERO);
        }
        println!("1,000 promises signed in {:?}", began.elapsed());
        let digest = signed.promise.digest_to_sign(&POOL);
        assert_eq!(recover_text(&digest.0, &signed.signature), Some(pen.authority));
    }
}
