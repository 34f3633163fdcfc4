//! Licences: an issuer lets a holder run so many members at once with a product of his. The chain says how many.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use borsh::{BorshDeserialize, BorshSerialize};

use crate::id::{Account, BadId, Hash32, text_on_the_wire};

/// Longest name of a product in bytes: one byte is left, so that a name always ends in a zero and a hash seldom does.
pub const MAX_PRODUCT: usize = 31;

const WHAT: &str = "a licence as ISSUER/PRODUCT: an account, and 0x with 64 hex digits or a name of 1 to 31 visible \
                    ASCII characters";

/// A product of an issuer. With the renter's account as holder it names the seats that a lease takes: one a member.
///
/// Text: `ISSUER/PRODUCT`, where PRODUCT is a name that was padded with zeros on the right, else `0x` and 64 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
pub struct Licence {
    /// Who grants it.
    pub issuer: Account,
    /// Which of the issuer's products.
    pub product: Hash32,
}

/// The bytes of a product's name, padded with zeros on the right; `None` if it is no name.
fn padded(name: &str) -> Option<Hash32> {
    let sound = (1..=MAX_PRODUCT).contains(&name.len()) && !name.starts_with("0x");
    let mut bytes = [0; 32];
    if !sound || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    Some(Hash32(bytes))
}

/// The name that was padded to these bytes, if they are one.
fn name_of(product: &Hash32) -> Option<&str> {
    let ends = product.0.iter().position(|byte| *byte == 0)?;
    let name = core::str::from_utf8(product.0.get(..ends)?).ok()?;
    (padded(name).as_ref() == Some(product)).then_some(name)
}

impl fmt::Display for Licence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name_of(&self.product) {
            Some(name) => write!(f, "{}/{name}", self.issuer),
            None => write!(f, "{}/{}", self.issuer, self.product),
        }
    }
}

impl FromStr for Licence {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = || BadId { text: String::from(text), what: WHAT };
        let (issuer, product) = text.split_once('/').ok_or_else(bad)?;
        let issuer = issuer.parse().map_err(|_| bad())?;
        let product = padded(product).map_or_else(|| product.parse().map_err(|_| bad()), Ok)?;
        Ok(Self { issuer, product })
    }
}

text_on_the_wire!(
    Licence,
    "a licence as ISSUER/PRODUCT: an account, and 0x with 64 hex digits or a name",
    "^0x[0-9a-fA-F]{40}/.+$"
);

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    const ISSUER: &str = "0x1111111111111111111111111111111111111111";

    fn product(text: &str) -> Option<Hash32> {
        alloc::format!("{ISSUER}/{text}").parse::<Licence>().ok().map(|licence| licence.product)
    }

    #[test]
    fn a_product_is_a_name_padded_on_the_right_or_its_32_bytes_and_both_lead_back_to_their_text() {
        let mut bytes = [0; 32];
        bytes[..6].copy_from_slice(b"solver");
        assert_eq!(product("solver"), Some(Hash32(bytes)));
        assert_eq!(product(&Hash32(bytes).to_string()), Some(Hash32(bytes)), "the same product by its bytes");
        let longest = "x".repeat(MAX_PRODUCT);
        for text in ["solver", "a/b", longest.as_str(), &Hash32([7; 32]).to_string(), &Hash32::ZERO.to_string()] {
            let licence: Licence = alloc::format!("{ISSUER}/{text}").parse().unwrap();
            assert_eq!(licence.to_string(), alloc::format!("{ISSUER}/{text}"));
        }
        let mut gap = bytes;
        gap[9] = b'x';
        let licence = Licence { issuer: Account([0x11; 20]), product: Hash32(gap) };
        assert_eq!(licence.to_string().parse(), Ok(licence), "not a name: written as bytes");
    }

    #[test]
    fn what_is_neither_a_name_nor_32_bytes_is_refused_and_told_what_is_right() {
        let long = "x".repeat(MAX_PRODUCT + 1);
        for text in ["", "two words", "0xabc", "caf\u{e9}", long.as_str()] {
            assert_eq!(product(text), None, "{text}");
        }
        let error = "solver".parse::<Licence>().unwrap_err().to_string();
        assert!(error.contains("ISSUER/PRODUCT"), "{error}");
        assert!("0x11/solver".parse::<Licence>().is_err());
    }
}
