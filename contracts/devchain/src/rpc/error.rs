//! JSON-RPC errors, with the codes that clients know from other nodes.

use crate::{chain::Refused, node::SubmitError, tx::BadTx};
use revm::primitives::Bytes;
use serde_json::{Value, json};

/// The `error` member of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RpcError {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl RpcError {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The body was no JSON.
    pub(crate) fn parse(message: impl Into<String>) -> Self {
        Self::new(-32_700, message)
    }

    /// The body was no request.
    pub(crate) fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(-32_600, message)
    }

    /// No such method here.
    pub(crate) fn no_method(method: &str) -> Self {
        Self::new(-32_601, format!("the dev chain has no method {method:?}"))
    }

    /// A method that changes history or balances, on a chain that was not started for it (EIP-1474: not supported).
    pub(crate) fn switched_off(method: &str) -> Self {
        let way = if method == "anvil_setBalance" { "--dev-methods coins" } else { "--dev-methods" };
        Self::new(-32_004, format!("{method} is switched off; start the chain with `selion chain {way}`"))
    }

    /// A parameter is missing or wrong.
    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(-32_602, message)
    }

    /// The server cannot answer that.
    pub(crate) fn server(message: impl Into<String>) -> Self {
        Self::new(-32_000, message)
    }

    /// The transaction was not accepted.
    pub(crate) fn rejected(message: impl Into<String>) -> Self {
        Self::new(-32_003, message)
    }

    /// The node failed at its own work.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(-32_603, message)
    }

    /// A call reverted: code 3, with what it returned as data.
    pub(crate) fn reverted(output: &Bytes) -> Self {
        let reason = revert_reason(output).map_or(String::new(), |reason| format!(": {reason}"));
        Self { code: 3, message: format!("execution reverted{reason}"), data: Some(json!(output)) }
    }

    /// As it stands in the answer.
    pub(crate) fn json(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        error
    }
}

impl From<SubmitError> for RpcError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Refused(Refused::BadTx(bad @ (BadTx::Rlp(_) | BadTx::Empty))) => {
                Self::invalid_params(bad.to_string())
            }
            SubmitError::Refused(refused @ (Refused::BadTx(_) | Refused::Invalid(_) | Refused::Known { .. })) => {
                Self::rejected(refused.to_string())
            }
            SubmitError::Refused(refused) => Self::invalid_params(refused.to_string()),
            SubmitError::Journal(error) => {
                tracing::error!(%error, "a record was not accepted");
                Self::internal(error.to_string())
            }
        }
    }
}

/// What a revert says: the text of `Error(string)`, the code of `Panic(uint256)`, or a custom error's selector.
fn revert_reason(output: &[u8]) -> Option<String> {
    let (selector, body) = output.split_first_chunk::<4>()?;
    match selector {
        [0x08, 0xc3, 0x79, 0xa0] => {
            let length = usize::from_be_bytes(*body.get(32..64)?.last_chunk()?);
            let text = body.get(64..)?.get(..length)?;
            Some(String::from_utf8_lossy(text).into_owned())
        }
        [0x4e, 0x48, 0x7b, 0x71] => Some(format!("panic code {:#04x}", body.get(31)?)),
        other => Some(format!("custom error {}", Bytes::copy_from_slice(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revert_says_its_text_its_panic_code_or_its_selector() {
        let mut text = vec![0x08, 0xc3, 0x79, 0xa0];
        text.extend([&[0; 31][..], &[32], &[0; 31], &[4], b"nope", &[0; 28]].concat());
        assert_eq!(revert_reason(&text).as_deref(), Some("nope"));
        let panic = [&[0x4e, 0x48, 0x7b, 0x71][..], &[0; 31], &[0x11]].concat();
        assert_eq!(revert_reason(&panic).as_deref(), Some("panic code 0x11"));
        assert_eq!(revert_reason(&[1, 2, 3, 4]).as_deref(), Some("custom error 0x01020304"));
        assert_eq!(revert_reason(&[]), None);
        assert_eq!(revert_reason(&text[..60]), None, "a text that is cut short");
    }
}
