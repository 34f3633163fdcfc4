//! The JSON of the REST interface. Unknown fields in requests are refused; answers may grow new fields.

mod extra;
mod lease;
mod pool;
mod problem;
mod quote;

pub use extra::{ApiKeyPage, ApiKeyView, BillPage, Whoami};
pub use lease::{
    Attempt, Candidate, DatasetMount, Lease, LeaseEvent, LeaseMember, LeasePage, LogLine, NewLease, PlacementView,
    StagedView, Waiting,
};
pub use pool::{
    AccountView, ApiKey, BillView, ComponentView, Dataset, DatasetPage, EntryPage, GpuView, GroupView, HeadView,
    Health, LoggedEntry, NewApiKey, NewDataset, NodePage, NodeView, Nonce, Offer, OfferPage, PoolView, ProviderView,
    Reclaim, ReclaimView, RegistryView, ShareView, SharesView, SlotView, Token, VoucherPage, VoucherView,
};
pub use problem::{FieldError, Problem};
pub use quote::{FragmentationView, Quote, QuotedPlace, QuotedPrice};

/// Response header: the last log entry that the answer depends on.
pub const ENTRY_HEADER: &str = "selion-entry";
/// Response header: size and root of the newest signed head, as `size:0xroot`.
pub const HEAD_HEADER: &str = "selion-head";
/// Response header: the last chain block in the log, as `number:0xhash`.
pub const BLOCK_HEADER: &str = "selion-block";
