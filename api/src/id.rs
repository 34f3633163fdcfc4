//! Ids are types. Byte ids are written as lower-case hex with `0x`; a lease id tells where it was born.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use borsh::{BorshDeserialize, BorshSerialize};

/// Why a text is not the id it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}")]
pub struct BadId {
    /// The text as given.
    pub text: String,
    /// What it should look like.
    pub what: &'static str,
}

macro_rules! byte_id {
    ($(#[$doc:meta])* $name:ident, $len:literal, $what:literal, $pattern:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
        pub struct $name(pub [u8; $len]);

        impl $name {
            /// All bytes zero: stands for nobody and nothing, never for a real one.
            pub const ZERO: Self = Self([0; $len]);
        }

        impl Default for $name {
            fn default() -> Self {
                Self::ZERO
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("0x")?;
                for byte in self.0 {
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                let bad = || BadId { text: String::from(text), what: $what };
                let digits = text.strip_prefix("0x").ok_or_else(bad)?;
                let mut bytes = [0; $len];
                hex::decode_to_slice(digits, &mut bytes).map_err(|_| bad())?;
                Ok(Self(bytes))
            }
        }

        text_on_the_wire!($name, $what, $pattern);
    };
}

/// Serialises a type as the text that `Display` writes and `FromStr` reads.
macro_rules! text_on_the_wire {
    ($name:ident, $what:literal, $pattern:literal) => {
        #[cfg(feature = "wire")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        #[cfg(feature = "wire")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        #[cfg(feature = "wire")]
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                utoipa::openapi::schema::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .description(Some($what))
                    .pattern(Some($pattern))
                    .into()
            }
        }

        #[cfg(feature = "wire")]
        impl utoipa::ToSchema for $name {}
    };
}
pub(crate) use text_on_the_wire;

byte_id!(
    /// An EVM address that is not one of ours: a token, a contract, a session key.
    Address, 20, "a 20-byte address as 0x and 40 hex digits", "^0x[0-9a-fA-F]{40}$"
);
byte_id!(
    /// The EVM address of a person or a company: a renter, a provider, the authority.
    Account, 20, "a 20-byte account as 0x and 40 hex digits", "^0x[0-9a-fA-F]{40}$"
);
byte_id!(
    /// A machine with an agent; its id is the EVM address of its node key.
    NodeId, 20, "a 20-byte node id as 0x and 40 hex digits", "^0x[0-9a-fA-F]{40}$"
);
byte_id!(
    /// SHA-256 or Keccak-256 of something, by context.
    Hash32, 32, "a 32-byte hash as 0x and 64 hex digits", "^0x[0-9a-fA-F]{64}$"
);
byte_id!(
    /// A recoverable secp256k1 signature: r, s, v (27 or 28).
    Signature, 65, "a 65-byte signature as 0x and 130 hex digits", "^0x[0-9a-fA-F]{130}$"
);

/// A physical GPU by its UUID, as NVML prints it (`GPU-` and 8-4-4-4-12 hex digits).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
pub struct GpuId(pub [u8; 16]);

impl fmt::Display for GpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU-")?;
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for GpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for GpuId {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = || BadId { text: String::from(text), what: "a GPU UUID as GPU- and 8-4-4-4-12 hex digits" };
        let digits = text.strip_prefix("GPU-").ok_or_else(bad)?;
        let groups = digits.split('-').map(str::len);
        if !groups.eq([8, 4, 4, 4, 12]) {
            return Err(bad());
        }
        let mut bytes = [0; 16];
        let plain: String = digits.chars().filter(|c| *c != '-').collect();
        hex::decode_to_slice(plain, &mut bytes).map_err(|_| bad())?;
        Ok(Self(bytes))
    }
}
text_on_the_wire!(
    GpuId,
    "a GPU UUID as NVML prints it",
    "^GPU-[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
);

/// A lease, named by the log entry that created it; never random, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
pub struct LeaseId {
    /// Sequence number of the creating entry.
    pub seq: u64,
    /// Index of the creating effect within that entry.
    pub index: u32,
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease-{}-{}", self.seq, self.index)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for LeaseId {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        let parse = || {
            let (seq, index) = text.strip_prefix("lease-")?.split_once('-')?;
            Some(Self { seq: seq.parse().ok()?, index: index.parse().ok()? })
        };
        // Only the canonical text is an id: no sign, no leading zero.
        parse()
            .filter(|id| alloc::format!("{id}") == text)
            .ok_or_else(|| BadId { text: String::from(text), what: "a lease id as lease-<entry>-<index>" })
    }
}
text_on_the_wire!(LeaseId, "a lease id: lease-<entry>-<index>", "^lease-(0|[1-9][0-9]{0,17})-(0|[1-9][0-9]{0,8})$");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_what_they_write() {
        let node = NodeId([0xab; 20]);
        assert_eq!(alloc::format!("{node}").parse(), Ok(node));
        let gpu = GpuId(*b"0123456789abcdef");
        assert_eq!(alloc::format!("{gpu}"), "GPU-30313233-3435-3637-3839-616263646566");
        assert_eq!(alloc::format!("{gpu}").parse(), Ok(gpu));
        let lease = LeaseId { seq: 12, index: 3 };
        assert_eq!("lease-12-3".parse(), Ok(lease));
    }

    #[test]
    fn a_second_spelling_of_a_lease_id_is_refused() {
        for text in ["lease-012-3", "lease-+12-3", "lease-12", "12-3", "lease-12-3-4"] {
            assert!(text.parse::<LeaseId>().is_err(), "{text}");
        }
    }
}
