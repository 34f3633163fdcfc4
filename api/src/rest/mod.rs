//! The JSON of the REST interface. Unknown fields in requests are refused; answers may grow new fields.

mod extra;
mod lease;
mod login;
mod named;
mod pool;
mod problem;
mod quote;
mod relay;
mod secrets;
mod terms;

pub use crate::commit::Network;
pub use extra::BillPage;
pub use lease::{
    Attempt, Candidate, DatasetMount, ImageView, Lease, LeaseEvent, LeaseMember, LeaseOutput, LeaseOutputs, LeasePage,
    LogLine, NewLease, OutputRef, PlacementView, PlainRoot, StagedView, Waiting,
};
pub use login::{
    ApiKey, ApiKeyPage, ApiKeyView, Device, DeviceToken, DeviceView, LoginView, NewApiKey, NewDevice, NewNonce, Nonce,
    Refresh, Revoke, Revoked, Role, Scope, Session, SignedLogin, Token, UserCode, Whoami,
};
pub use named::{Called, LeaseRef, MAX_LABELS, MAX_NAME, is_lease_name};
pub use pool::{
    AccountView, BillView, ComponentView, Dataset, DatasetPage, EntryPage, Extend, GpuView, GroupView, HeadView,
    Health, LicencePage, LicenceView, LoggedEntry, NewDataset, NodePage, NodeView, Offer, OfferPage, PoolView,
    ProviderView, Reclaim, ReclaimView, RegistryView, ShareView, SharesView, SlotView, VoucherPage, VoucherView, Word,
};
pub use problem::{FieldError, MeansView, Problem, Unmatched};
pub use quote::{FragmentationView, Quote, QuotedPlace, QuotedPrice};
pub use relay::{Hex, NewRelay, RelayState, RelayView};
pub use secrets::{GiveSecrets, KeptSecret, SealKeyView, SealedMember, SecretsMember, SecretsView};
pub use terms::Terms;

/// Response header: the last log entry that the answer depends on.
pub const ENTRY_HEADER: &str = "selion-entry";
/// Response header: size and root of the newest signed head, as `size:0xroot`.
pub const HEAD_HEADER: &str = "selion-head";
/// Response header: the promise that the caller's input stands in the log, as hex of the canonical bytes of a
/// [`SignedPromise`](crate::agent::SignedPromise).
pub const PROMISE_HEADER: &str = "selion-promise";
/// Response header: the last chain block in the log, as `number:0xhash`.
pub const BLOCK_HEADER: &str = "selion-block";
/// Response header, only while the chain cannot be followed: the height behind which nothing of it is known here.
pub const STALE_HEADER: &str = "selion-stale";
