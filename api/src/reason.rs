//! Why: one stable snake_case code for every refusal, wait and end, numbered by the party it belongs to.

use borsh::{BorshDeserialize, BorshSerialize};

/// Whose side a reason lies on. It decides who pays and what a reader should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema),
    serde(rename_all = "snake_case")
)]
pub enum Party {
    /// The account that asked.
    Renter,
    /// The owner of the node.
    Provider,
    /// The pool's controller and its rules.
    Pool,
    /// The chain of record.
    Chain,
}

macro_rules! reasons {
    ($($number:literal $variant:ident $code:literal $text:literal)*) => {
        /// A reason. The number is its encoding and tells the party: 1xx renter, 2xx provider, 3xx pool, 4xx chain.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
        // Each code is its variant in snake case; the description of the REST surface knows them by this.
        #[cfg_attr(feature = "wire", serde(rename_all = "snake_case"))]
        #[repr(u16)]
        pub enum Reason {
            $(#[doc = $text] #[cfg_attr(feature = "wire", serde(rename = $code))] $variant = $number,)*
        }

        impl Reason {
            /// Every reason, in order of number.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The stable code that clients match on.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self { $(Self::$variant => $code),* }
            }

            /// One sentence for people.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            /// The reason of that number, if there is one.
            #[must_use]
            pub fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

reasons! {
    101 PriceAboveMax "price_above_max" "Every slice that fits costs more than the request's max_rate."
    102 PaymentRequired "payment_required" "The renter's free deposit, or the grant of the pool's key, does not cover the lease."
    103 Released "released" "The renter released the lease."
    104 Completed "completed" "The command ended with exit code 0."
    105 CommandFailed "command_failed" "The command ended with another exit code."
    106 Expired "expired" "The lease reached its duration."
    107 WaitedTooLong "waited_too_long" "The request was not placed within its wait_ms."
    108 BadRequest "bad_request" "The request contradicts itself or exceeds a limit."
    109 IdempotencyMismatch "idempotency_mismatch" "The same Idempotency-Key came before with another body."
    110 NotYours "not_yours" "The lease belongs to another renter."
    111 NotLive "not_live" "The lease has ended already."
    112 NoSuchLease "no_such_lease" "The pool knows no lease of this id."
    113 NoSeat "no_seat" "All seats of its licence that the renter holds are taken, or kept for a lease of his that is booked."
    114 NoLicence "no_licence" "The renter's account holds no licence in force of this issuer and product with so many seats."
    115 TooManyLeases "too_many_leases" "The account has as many leases as the pool allows it: in the line, or of the last day."
    116 FreeUseSpent "free_use_spent" "What the account had held or stopped in a day without a bill is worth more than its deposit."
    117 StaleWord "stale_word" "The word was signed for a time that is more than five minutes from when it came."
    118 TooLong "too_long" "The lease would last longer than 30 days in all, or was made longer 64 times already."
    119 MoneyLeaves "money_leaves" "More of the renter's deposit thaws than is free: no lease of his can last longer than that is paid."
    121 OutOfMemory "out_of_memory" "The command used up the memory of its lease; billed up to then."
    122 DiskFull "disk_full" "The command used up the disk of its lease, or filled its node's; billed up to then."
    123 SecretsMissing "secrets_missing" "The secrets that the lease named were not sealed to its node in time; nothing is billed."
    201 NodeLost "node_lost" "The node's link fell silent; nothing is billed past its last signed report."
    202 PrepareTimeout "prepare_timeout" "A member was not ready before its deadline; nothing is billed."
    203 StartTimeout "start_timeout" "A member did not run before its deadline; nothing is billed."
    204 StagingFailed "staging_failed" "A dataset could not be fetched or did not match its CID; nothing is billed."
    205 SliceFailed "slice_failed" "The agent could not make the slice."
    206 RuntimeFailed "runtime_failed" "The agent could not start the command."
    207 NodePaused "node_paused" "The owner paused the node."
    208 NodeNotSchedulable "node_not_schedulable" "Chain and link do not agree on the node, or it is not linked."
    209 OwnerReclaimed "owner_reclaimed" "The owner took the GPU back."
    210 OfferClosed "offer_closed" "The provider closed the offer on chain."
    211 UnknownNode "unknown_node" "No provider registered this node."
    212 SpecMismatch "spec_mismatch" "The agent's hardware is not the one of its offer on chain."
    213 StaleReport "stale_report" "The report carries an old fence, an old sequence number or an old attempt."
    214 NotAssigned "not_assigned" "The report names a lease, GPUs or a slice that the node was not given."
    215 StopUnconfirmed "stop_unconfirmed" "The agent did not confirm the stop before its deadline."
    216 StakeTooLow "stake_too_low" "The owner's stake is below the pool's minimum."
    301 NoMatchingSlice "no_matching_slice" "No node of the pool offers such a slice."
    302 PoolFull "pool_full" "Slices that fit exist, but all are leased."
    303 GangIncomplete "gang_incomplete" "Some members fit now, not all of them."
    304 Queued "queued" "The request waits for its turn."
    305 WaitsForStop "waits_for_stop" "Room is being freed by leases that are ending."
    306 StaleFence "stale_fence" "Another controller took over."
    307 UnknownVersion "unknown_version" "This release does not know that version of the rules."
    308 ClassNotAllowed "class_not_allowed" "The pool was created without this isolation class."
    309 SandboxNotAllowed "sandbox_not_allowed" "The pool was created without unsandboxed nodes."
    310 KeptForBooking "kept_for_booking" "There is room now, but another lease is booked on it before this one would end."
    311 Preempted "preempted" "A lease of a higher class needed the room; billed up to the stop."
    312 QuotaReclaimed "quota_reclaimed" "A group below its guaranteed quota needed the room; billed up to the stop."
    313 TooFewGpus "too_few_gpus" "No node of the pool has so many matching GPUs of one model."
    314 PoolAtLimit "pool_at_limit" "The pool has as many leases as its operator allows: in the line, or of the last day."
    315 BookedThen "booked_then" "Another lease is booked on a place of it, from a time before its later end."
    321 DataElsewhere "data_elsewhere" "No node that could take it has all datasets of the request staged."
    322 TooFar "too_far" "Nodes that could take it together are not known to be as near to each other as it asks."
    323 BoxTooWeak "box_too_weak" "No node that could take it has a box that gives and holds all that it asks."
    401 ChainUnconfirmed "chain_unconfirmed" "The fact is on chain but not final."
    402 ChainBroken "chain_broken" "A reorganisation went deeper than the pool's finality rule; no new grants."
}

impl Reason {
    /// Whose side the reason lies on.
    #[must_use]
    pub fn party(self) -> Party {
        match self as u16 / 100 {
            1 => Party::Renter,
            2 => Party::Provider,
            3 => Party::Pool,
            _ => Party::Chain,
        }
    }

    /// True of an end that the command brought about at a limit of its lease.
    #[must_use]
    pub fn is_limit(self) -> bool {
        matches!(self, Self::OutOfMemory | Self::DiskFull)
    }

    /// True if the time in which a run was prepared counts as free use of its renter where it ended for this reason: the
    /// renter ended it, or what he wanted staged or run may be why it failed.
    #[must_use]
    pub fn counts_as_free_use(self) -> bool {
        self.party() == Party::Renter
            || matches!(self, Self::PrepareTimeout | Self::StagingFailed | Self::RuntimeFailed)
    }
}

impl core::fmt::Display for Reason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.code())
    }
}

impl BorshSerialize for Reason {
    fn serialize<W: borsh::io::Write>(&self, to: &mut W) -> borsh::io::Result<()> {
        (*self as u16).serialize(to)
    }
}

impl BorshDeserialize for Reason {
    fn deserialize_reader<R: borsh::io::Read>(from: &mut R) -> borsh::io::Result<Self> {
        Self::from_number(u16::deserialize_reader(from)?)
            .ok_or_else(|| borsh::io::Error::new(borsh::io::ErrorKind::InvalidData, "no such reason"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_leads_back_to_its_reason() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_number(*reason as u16), Some(*reason));
        }
        assert_eq!(Reason::from_number(999), None);
        assert_eq!(Reason::NodeLost.party(), Party::Provider);
    }
}
