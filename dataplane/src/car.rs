//! Many blocks in one message: CAR, version 1 (a header, then length, CID and bytes of each block).

use bytes::{Buf, BufMut, Bytes, BytesMut};
use cid::Cid;

/// Media type.
pub const CAR: &str = "application/vnd.ipld.car";
/// Bytes of blocks after which a message takes no more: two of the usual leaves, or many small files.
pub(crate) const FULL: usize = 2 << 20;
/// Most blocks of one message, and most CIDs of one question.
pub(crate) const MOST: usize = 1024;
/// Bytes of the longest message: a full one, one block more, and what stands around them.
pub(crate) const LONGEST: usize = FULL + crate::dag::MAX_BLOCK + MOST * 64;

/// `{"roots": [], "version": 1}` in DAG-CBOR, after its length. Roots mean nothing here.
const HEADER: &[u8] = b"\x11\xa2eroots\x80gversion\x01";

/// A message under way.
pub(crate) struct Writer {
    out: BytesMut,
    blocks: usize,
}

impl Writer {
    pub fn new() -> Self {
        Self { out: BytesMut::from(HEADER), blocks: 0 }
    }

    pub fn add(&mut self, cid: &Cid, bytes: &[u8]) {
        let name = cid.to_bytes();
        put_varint(&mut self.out, name.len() + bytes.len());
        self.out.extend_from_slice(&name);
        self.out.extend_from_slice(bytes);
        self.blocks += 1;
    }

    pub fn is_full(&self) -> bool {
        self.out.len() >= FULL || self.blocks >= MOST
    }

    pub fn finish(self) -> Bytes {
        self.out.freeze()
    }
}

/// The blocks of a message, unverified; at most as many as one may have. `None` if it is no message of this form.
pub(crate) fn read(mut message: Bytes) -> Option<Vec<(Cid, Bytes)>> {
    let header = varint(&mut message)?;
    if header > message.len() {
        return None;
    }
    message.advance(header);
    let mut blocks = Vec::new();
    while !message.is_empty() {
        let length = varint(&mut message)?;
        if length > message.len() || blocks.len() >= MOST {
            return None;
        }
        let mut section = message.split_to(length);
        let mut rest: &[u8] = &section;
        let cid = Cid::read_bytes(&mut rest).ok()?;
        let name = section.len() - rest.len();
        section.advance(name);
        blocks.push((cid, section));
    }
    Some(blocks)
}

fn put_varint(out: &mut BytesMut, mut value: usize) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// At most four bytes: no message is longer.
fn varint(bytes: &mut Bytes) -> Option<usize> {
    let mut value = 0;
    for shift in [0, 7, 14, 21] {
        if bytes.is_empty() {
            return None;
        }
        let byte = bytes.get_u8();
        value |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dag;

    #[test]
    fn blocks_come_back_as_they_went_in_and_a_cut_message_is_none() {
        let mut writer = Writer::new();
        let blocks =
            [b"".as_slice(), b"one", &[7; 300]].map(|bytes| (dag::leaf(bytes).cid, Bytes::copy_from_slice(bytes)));
        blocks.iter().for_each(|(cid, bytes)| writer.add(cid, bytes));
        let message = writer.finish();
        assert_eq!(read(message.clone()).unwrap(), blocks);
        assert_eq!(read(Bytes::from_static(HEADER)).unwrap(), []);
        for length in [0, 1, 10, 20, 60, message.len() - 1] {
            assert!(read(message.slice(..length)).is_none(), "{length}");
        }
        assert!(read(Bytes::from_static(&[0xff; 64])).is_none());
    }
}
