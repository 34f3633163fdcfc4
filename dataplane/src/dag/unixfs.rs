//! The UnixFS message inside a DAG-PB node: eight optional protobuf fields, read and written by hand.

use bytes::Bytes;

use super::PERMISSIONS;

/// The fields that mean something to us.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Meta {
    pub kind: u64,
    pub data: Option<Bytes>,
    pub size: Option<u64>,
    pub sizes: Vec<u64>,
    /// Permission bits, where the message has any.
    pub mode: Option<u32>,
}

pub(super) const KIND_RAW: u64 = 0;
pub(super) const KIND_FOLDER: u64 = 1;
pub(super) const KIND_FILE: u64 = 2;
pub(super) const KIND_LINK: u64 = 4;

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// The message of a folder.
pub(super) fn folder(mode: Option<u32>) -> Vec<u8> {
    let mut out = vec![0x08, KIND_FOLDER as u8];
    put_mode(&mut out, mode);
    out
}

/// The message of a symbolic link.
pub(super) fn link(target: &str) -> Vec<u8> {
    let mut out = vec![0x08, KIND_LINK as u8, 0x12];
    put_varint(&mut out, target.len() as u64);
    out.extend_from_slice(target.as_bytes());
    out
}

/// The message of an interior node of a file whose children hold `sizes` bytes.
pub(super) fn file(sizes: impl Iterator<Item = u64> + Clone, mode: Option<u32>) -> Vec<u8> {
    let mut out = vec![0x08, KIND_FILE as u8, 0x18];
    put_varint(&mut out, sizes.clone().sum());
    for size in sizes {
        out.push(0x20);
        put_varint(&mut out, size);
    }
    put_mode(&mut out, mode);
    out
}

fn put_mode(out: &mut Vec<u8>, mode: Option<u32>) {
    if let Some(mode) = mode {
        out.push(0x38);
        put_varint(out, u64::from(mode));
    }
}

/// Reads a message; the error says what is wrong with it.
pub(super) fn read(bytes: &Bytes) -> Result<Meta, &'static str> {
    let mut rest = Reader { bytes, at: 0 };
    let mut meta = Meta::default();
    let mut kind = None;
    while rest.at < bytes.len() {
        let tag = rest.varint()?;
        match (tag >> 3, tag & 7) {
            (1, VARINT) => kind = Some(rest.varint()?),
            (2, LENGTH) => meta.data = Some(rest.slice()?),
            (3, VARINT) => meta.size = Some(rest.varint()?),
            (4, VARINT) => meta.sizes.push(rest.varint()?),
            (4, LENGTH) => {
                let packed = rest.slice()?;
                let mut packed = Reader { bytes: &packed, at: 0 };
                while packed.at < packed.bytes.len() {
                    meta.sizes.push(packed.varint()?);
                }
            }
            (7, VARINT) => meta.mode = Some((rest.varint()? & u64::from(PERMISSIONS)) as u32),
            // Hash type, fan-out, time and whatever comes later: not ours, skipped by shape.
            (_, VARINT) => drop(rest.varint()?),
            (_, LENGTH) => drop(rest.slice()?),
            (_, FIXED64) => rest.skip(8)?,
            (_, FIXED32) => rest.skip(4)?,
            _ => return Err("unknown protobuf wire type in the UnixFS message"),
        }
    }
    meta.kind = kind.ok_or("the UnixFS message has no type")?;
    Ok(meta)
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

struct Reader<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl Reader<'_> {
    fn varint(&mut self) -> Result<u64, &'static str> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or("the UnixFS message is cut short")?;
            self.at += 1;
            if shift == 63 && byte > 1 {
                return Err("a number in the UnixFS message is over 64 bits");
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number in the UnixFS message is over 64 bits")
    }

    fn slice(&mut self) -> Result<Bytes, &'static str> {
        let length = usize::try_from(self.varint()?).map_err(|_| "a field of the UnixFS message is too long")?;
        let start = self.at;
        self.skip(length)?;
        Ok(self.bytes.slice(start..self.at))
    }

    fn skip(&mut self, length: usize) -> Result<(), &'static str> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        self.at = end.ok_or("a field of the UnixFS message runs past its end")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_message_reads_back_as_it_was_written() {
        let bytes = Bytes::from(file([1u64, 300, 1 << 40].into_iter(), Some(0o755)));
        let meta = read(&bytes).unwrap();
        assert_eq!((meta.kind, meta.size, meta.mode), (KIND_FILE, Some(1 + 300 + (1 << 40)), Some(0o755)));
        assert_eq!(meta.sizes, [1, 300, 1 << 40]);
    }

    #[test]
    fn packed_sizes_are_read_like_single_ones() {
        let meta = read(&Bytes::from_static(&[0x08, 2, 0x22, 3, 1, 0xac, 2])).unwrap();
        assert_eq!(meta.sizes, [1, 300]);
    }

    #[test]
    fn a_field_that_runs_past_the_end_is_refused() {
        assert!(read(&Bytes::from_static(&[0x08, 2, 0x12, 5, 1])).is_err());
        assert!(
            read(&Bytes::from_static(&[0x08, 2, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]))
                .is_err()
        );
        assert!(read(&Bytes::from_static(&[0x08, 0x80])).is_err());
        assert!(read(&Bytes::from_static(&[0x18, 1])).is_err());
    }
}
