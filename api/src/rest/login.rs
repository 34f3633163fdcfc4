//! Words of logging in: what a caller may do, how he proved who he is, and what he was given for it.

use alloc::string::String;
use alloc::vec::Vec;

use crate::id::{Account, NodeId, Signature};
use crate::unit::TimeMs;

/// What a login may do. An API key has those that it was made with.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
pub enum Scope {
    /// See one's leases, their logs and why they wait.
    #[serde(rename = "lease:read")]
    LeaseRead,
    /// Ask for leases and release them: this spends money.
    #[serde(rename = "lease:write")]
    LeaseWrite,
    /// List one's datasets and read blocks.
    #[serde(rename = "data:read")]
    DataRead,
    /// Add datasets and blocks.
    #[serde(rename = "data:write")]
    DataWrite,
    /// See deposit, bills and vouchers.
    #[serde(rename = "money:read")]
    MoneyRead,
    /// Pause, reclaim and resume one's nodes.
    #[serde(rename = "node:write")]
    NodeWrite,
    /// Make and revoke API keys, approve devices, end all logins. No API key and no device has it.
    #[serde(rename = "login")]
    Login,
}

impl Scope {
    /// Every scope, in order.
    pub const ALL: [Self; 7] = [
        Self::LeaseRead,
        Self::LeaseWrite,
        Self::DataRead,
        Self::DataWrite,
        Self::MoneyRead,
        Self::NodeWrite,
        Self::Login,
    ];

    /// As on the wire.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::LeaseRead => "lease:read",
            Self::LeaseWrite => "lease:write",
            Self::DataRead => "data:read",
            Self::DataWrite => "data:write",
            Self::MoneyRead => "money:read",
            Self::NodeWrite => "node:write",
            Self::Login => "login",
        }
    }

    /// The scope of that name, if there is one.
    #[must_use]
    pub fn of(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.code() == code)
    }
}

/// What an account is in this pool, by chain and configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everybody may lease.
    Renter,
    /// It is registered as a provider.
    Provider,
    /// It is the pool's authority, or named in the controller's configuration.
    Operator,
}

/// How a token was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LoginView {
    /// By a signature, or by the approval of a device.
    Session {
        /// Its id.
        id: u64,
    },
    /// With an API key.
    ApiKey {
        /// Its id.
        id: u64,
    },
}

/// `GET /v1/whoami`: whom the token stands for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Whoami {
    /// An account.
    Renter {
        /// Its address.
        account: Account,
        /// What it is here.
        roles: Vec<Role>,
        /// What this login may do.
        scopes: Vec<Scope>,
        /// How it logged in.
        login: LoginView,
    },
    /// A node's agent.
    Node {
        /// Its id.
        node: NodeId,
    },
}

/// `POST /v1/auth/nonce`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewNonce {
    /// The account that will sign: with it the answer has a ready message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
    /// The code of a device that the message is to approve, instead of a login of one's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_code: Option<String>,
}

/// A nonce: good for one login within five minutes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Nonce {
    /// The nonce: letters and digits.
    pub nonce: String,
    /// The EIP-4361 message to sign with EIP-191, if an account was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it lapses.
    pub expires_ms: TimeMs,
}

/// `POST /v1/auth/siwe` and `POST /v1/auth/device/siwe`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignedLogin {
    /// The EIP-4361 message, byte for byte as it was signed.
    pub message: String,
    /// EIP-191 signature over it by the account that it names.
    pub signature: Signature,
    /// A name of the login for people; empty if none.
    #[serde(default)]
    pub name: String,
}

/// A login: a short access token, and a refresh token for the next pair. Each refresh token counts once; a second use
/// ends the session.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Session {
    /// Who logged in.
    pub account: Account,
    /// JWT for `Authorization: Bearer`.
    pub token: String,
    /// When the token lapses.
    pub expires_ms: TimeMs,
    /// For `POST /v1/auth/refresh`, once.
    pub refresh_token: String,
    /// When the refresh token lapses.
    pub refresh_expires_ms: TimeMs,
}

/// `POST /v1/auth/refresh`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Refresh {
    /// The newest refresh token of the session.
    pub refresh_token: String,
}

/// `POST /v1/auth/token` with `Authorization: ApiKey <key>`: a short bearer token.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Token {
    /// JWT for `Authorization: Bearer`.
    pub token: String,
    /// When it lapses.
    pub expires_ms: TimeMs,
}

/// `POST /v1/auth/device`: a machine without a key asks to be let in.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDevice {
    /// What it calls itself; shown to whoever approves it. Letters, digits, blanks and punctuation of ASCII, at most 64.
    pub name: String,
}

/// What the device shows and asks with (RFC 8628).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Device {
    /// The device's secret, for `POST /v1/auth/device/token`.
    pub device_code: String,
    /// For people to type, as `BCDF-GHJK`.
    pub user_code: String,
    /// Where they approve it.
    pub verification_uri: String,
    /// The same with the code filled in, behind `#`: a browser does not send it.
    pub verification_uri_complete: String,
    /// Seconds until the codes lapse.
    pub expires_in: u64,
    /// Least seconds between two questions.
    pub interval: u64,
}

/// `POST /v1/auth/device/token`. Until it is approved: problem `authorization_pending`, or `slow_down`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceToken {
    /// As it was given.
    pub device_code: String,
}

/// Names a device by its code: to look at it, approve or deny it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserCode {
    /// The code; small letters and a missing dash are fine.
    pub user_code: String,
}

/// Who asks to be let in: look at this before you approve it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct DeviceView {
    /// The code.
    pub user_code: String,
    /// What it calls itself.
    pub name: String,
    /// The address that it asked from, as the controller saw it.
    pub from: String,
    /// When it asked.
    pub asked_ms: TimeMs,
    /// When the code lapses.
    pub expires_ms: TimeMs,
    /// What it may do once approved.
    pub scopes: Vec<Scope>,
}

/// `POST /v1/api-keys`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewApiKey {
    /// A name for people; empty if none.
    #[serde(default)]
    pub name: String,
    /// What it may do: at least one scope, never `login`.
    pub scopes: Vec<Scope>,
    /// When it ends by itself; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<TimeMs>,
}

/// A new API key. It is shown once; the controller keeps its hash only.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct ApiKey {
    /// Id, for revoking.
    pub id: u64,
    /// The key.
    pub api_key: String,
}

/// An API key as its owner sees it later: never the key itself.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct ApiKeyView {
    /// Id, for revoking.
    pub id: u64,
    /// Name for people.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// When it was made.
    pub created_ms: TimeMs,
    /// When it ends by itself, if it does.
    pub expires_ms: Option<TimeMs>,
    /// When a token was last made with it.
    pub used_ms: Option<TimeMs>,
}

/// The caller's live API keys.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct ApiKeyPage {
    /// Keys in order of id.
    pub api_keys: Vec<ApiKeyView>,
    /// Pass as `page_token` for the next page.
    pub next_page_token: Option<String>,
}

/// `POST /v1/operator/revoke`: ends whatever an account logged in with.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// Whose.
    pub account: Account,
}

/// What was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Revoked {
    /// Sessions.
    pub sessions: u64,
    /// API keys; only an operator ends those along with the sessions.
    pub api_keys: u64,
}
