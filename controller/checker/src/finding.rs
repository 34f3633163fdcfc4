//! What does not hold, where, and by how much.

use core::fmt;

use selion_api::LeaseId;

macro_rules! rules {
    ($($variant:ident $code:literal $text:literal)*) => {
        /// What must hold of a decision.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Rule {
            $(#[doc = $text] $variant,)*
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// A stable snake_case name.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self { $(Self::$variant => $code),* }
            }

            /// The rule as a sentence.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }
    };
}

rules! {
    Refusal "refusal" "An input that may not be entered is refused and does nothing else."
    Lease "lease" "Effects are about leases that the log created, and about their present run."
    Transition "transition" "A lease goes only from one state to one that may follow it."
    Gang "gang" "The members of a run are granted in one entry: all that it needs, and of the others the next ones."
    Gpus "gpus" "A member has as many different GPUs of one model on one node as it asked for."
    MinNodes "min_nodes" "A gang stands on as many nodes as it asked for."
    Within "within" "All nodes of a run are in one region, rack or machine, if it asked for that."
    Latency "latency" "Any two nodes of a run are as near to each other as it asked for, by what was measured."
    Halted "halted" "Nothing is granted after a reorganisation that went too deep, or when authority has passed on."
    Schedulable "schedulable" "A node takes leases exactly while chain and link say so."
    Party "party" "The renter is the one who asked, the provider the owner of the node."
    Pinned "pinned" "A member stands on a node, GPU and model, and in a region, that it asked for."
    NearData "near_data" "Every member stands on a node with all datasets of the request, if that was asked for."
    Slot "slot" "The slot is of the kind, profile and size that was asked for, on a GPU that the node showed."
    Class "class" "The isolation class is the one on offer, allowed in the pool and accepted by the renter."
    Needs "needs" "A member stands on a node whose box gives and holds all that its request asks for."
    Rate "rate" "The rate is the one on offer, for each GPU."
    MaxRate "max_rate" "The rate of a member, all its GPUs together, is not above the renter's highest."
    Placement "placement" "A MIG instance starts where its profile may start."
    Overlap "overlap" "Nothing is leased twice, and a GPU is in one mode at a time."
    Compute "compute" "What is leased of a GPU has the compute that the GPU has."
    Memory "memory" "What is leased of a GPU has the memory that the GPU has."
    Count "count" "No more slices of a kind stand on a GPU than it may have."
    Cpu "cpu" "What is leased beside GPUs has the CPU that the node has."
    Ram "ram" "What is leased beside GPUs has the memory that the node has."
    Disk "disk" "What is leased beside GPUs has the disk that the node has."
    Net "net" "What is leased beside GPUs has the network bandwidth that the node has."
    Ports "ports" "Every member on a node has a port of its own."
    Freed "freed" "Only what is held is freed, and only when its node says so, comes back, or is lost."
    Left "left" "A lost node holds nothing."
    Path "path" "Money moves only between pockets of one renter, to whom he owes, and in and out as the chain says."
    Short "short" "No pocket gives more than it holds."
    Chain "chain" "What the chain says came in, left or thaws is in the books, and nothing else."
    Reserve "reserve" "A grant keeps what its duration, or the least time, and the grace of a stop cost, rounded up, and what is kept belongs to a run."
    Payable "payable" "A grant is to a renter whose key is live, within what he has free and it may still sign for, and ends before the key."
    Limits "limits" "No account, and not all together, has more leases in the line or of the last day than the policy allows."
    FreeUse "free_use" "Nothing is granted to, and nobody stopped for, an account that in a day had more held or stopped without a bill than its deposit is worth."
    Bill "bill" "A line is floor(rate * ms / 3600000) at the rate granted, of all its GPUs together, once a member, all members or none."
    BillTime "bill_time" "Billed is no more than the node metered, than lies in the log, and than was asked for and a stop may take."
    BillSum "bill_sum" "The lines of a run are not above what was kept for it."
    Voucher "voucher" "A voucher is due for what was made owed between its two parties, and for no more."
    Repair "repair" "Only what was lost with a node is repaired, where its lease asked for it and keeps what it needs, and it is billed from its own start on."
    Licence "licence" "No more members of a renter begin with a licence than it has seats for him on chain, and none once it is over."
    Order "order" "Nobody with an equal want, who could pay and had a seat, waits while one who comes after him is served."
    Preempt "preempt" "Only what ran long enough is stopped, only for a waiting lease of a higher class, or of the same by quota."
    Quota "quota" "Who is stopped for one of his class keeps his quota full, and whom he is stopped for is below his."
    Minimal "minimal" "Nobody is stopped who could have stayed."
    Promise "promise" "What is billed stays promised until it is claimed: new money fills a promise whose own has left before it thaws, is kept for a run or is free."
    Paid "paid" "Nothing runs on money that is about to leave, or on beyond what was kept for it, and nobody is stopped for want of money otherwise."
    Reclaim "reclaim" "What its owner takes back is told once, and nothing stays on it longer than he said; nobody is stopped for him before."
    Released "released" "Only its renter gives a lease back, with a word that counts at that time."
    Limit "limit" "A lease ends at a limit only by the word of its own node, and at the limit that it named."
    Extended "extended" "A lease lasts longer only by a word of its renter that counts at that time, once for its key, by as much as it says, and in all no longer than 30 days."
    Booking "booking" "Room is booked for a lease that waits and fits then, for no time that is past, and one at a time."
    Backfill "backfill" "Who is served while room is kept ends before the booked time, or leaves room for it."
}

/// A rule that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The entry.
    pub entry: u64,
    /// Which of its effects, from 0; `None` if it is about the entry as a whole.
    pub effect: Option<usize>,
    /// Which rule.
    pub rule: Rule,
    /// The lease that is concerned, if one is. For [`Rule::Order`] the one that was passed over, for
    /// [`Rule::Minimal`] the one that could have stayed. [`Rule::Backfill`] needs the booked time and has the end.
    pub lease: Option<LeaseId>,
    /// What the rule asks for, in the unit of what it is about.
    pub need: u64,
    /// What there is.
    pub have: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} It does not hold at entry {}", self.rule.code(), self.rule.text(), self.entry)?;
        if let Some(effect) = self.effect {
            write!(f, ", effect {effect}")?;
        }
        if let Some(lease) = self.lease {
            write!(f, ", {lease}")?;
        }
        // A rule that counts nothing, such as that of the order, is broken without a number.
        if (self.need, self.have) == (0, 0) {
            return Ok(());
        }
        write!(f, ": need {}, have {}", self.need, self.have)
    }
}

/// A rule that does not hold, before it is known where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub rule: Rule,
    pub need: u64,
    pub have: u64,
}

pub(crate) type Verdict = Result<(), Broken>;

/// `need` may be at most `have`.
pub(crate) fn within(rule: Rule, need: impl Into<u128>, have: impl Into<u128>) -> Verdict {
    let (need, have) = (need.into(), have.into());
    let shown = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
    if need <= have { Ok(()) } else { Err(Broken { rule, need: shown(need), have: shown(have) }) }
}

/// `holds` must be true.
pub(crate) fn holds(rule: Rule, holds: bool) -> Verdict {
    within(rule, 1_u8, u8::from(holds))
}

/// `have` must be exactly `need`.
pub(crate) fn equal(rule: Rule, need: u64, have: u64) -> Verdict {
    if need == have { Ok(()) } else { Err(Broken { rule, need, have }) }
}
