//! A report that somebody stands by: its JSON with his EIP-712 signature.

use selion_api::{Account, Hash32, Signature};
use selion_contracts::audited::{Audited, text_hash};
use selion_contracts::{Signer, SignerError};

use crate::report::Report;

/// A report and who signed it. Its text is its JSON, word for word: any other byte is another report, or none.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedReport {
    /// What was found.
    pub report: Report,
    /// Who audited.
    pub auditor: Account,
    /// Over the EIP-712 digest of [`Audited`].
    pub signature: Signature,
}

/// Why a file is no signed report, or cannot be made one.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// It does not read.
    #[error("it is not a signed report: {0}")]
    Form(#[from] serde_json::Error),
    /// It reads, and was written otherwise.
    #[error("it is not as it was written: a signed report is one line of JSON without spaces")]
    NotCanonical,
    /// What it says is not what was signed.
    #[error("the report was changed after it was signed, or {0} did not sign it")]
    Broken(Account),
    /// The key did not sign.
    #[error(transparent)]
    Signer(#[from] SignerError),
}

impl SignedReport {
    /// The report with a signature of that key.
    ///
    /// # Errors
    ///
    /// [`ReportError::Signer`].
    pub fn sign(report: Report, signer: &Signer) -> Result<Self, ReportError> {
        let signature = signer.sign_digest(audited(&report)?.digest())?;
        Ok(Self { report, auditor: signer.account(), signature })
    }

    /// Its text, as it is kept in a file.
    ///
    /// # Errors
    ///
    /// [`ReportError::Form`].
    pub fn text(&self) -> Result<String, ReportError> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    /// The signed report of a text, whose signature holds.
    ///
    /// # Errors
    ///
    /// [`ReportError`] if a byte of it was changed.
    pub fn read(text: &str) -> Result<Self, ReportError> {
        let signed: Self = serde_json::from_str(text)?;
        if signed.text()? != text {
            return Err(ReportError::NotCanonical);
        }
        match audited(&signed.report)?.recover(&signed.signature) {
            Some(who) if who == signed.auditor => Ok(signed),
            _ => Err(ReportError::Broken(signed.auditor)),
        }
    }
}

/// What is signed of a report: the fields that a contract might read (its entries are the covered ones), and the hash of the report's JSON as `checks`, so
/// that nothing in it is left out.
fn audited(report: &Report) -> Result<Audited, ReportError> {
    Ok(Audited {
        pool: report.pool,
        block: report.block.unwrap_or(0),
        block_hash: report.block_hash.unwrap_or(Hash32::ZERO),
        entries: report.covered,
        root: report.root,
        ok: report.ok,
        checks: text_hash(&serde_json::to_string(report)?),
        version: report.version.clone(),
    })
}
