//! From the bytes of a layer as it is sent to those of its archive.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Frames with the first bytes 0x50 to 0x5f and these are to be skipped.
const SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];
const BUFFER: usize = 256 << 10;
/// Most memory that a zstd frame may ask for: what `zstd --long=27` and `--ultra -22` need.
const WINDOW: u64 = 128 << 20;

/// Reads through whatever the first bytes say that `input` is compressed with: what the manifest says of it is not
/// heeded, the digest of what comes out decides.
pub(in crate::image) fn decode<'a>(input: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut input = BufReader::with_capacity(BUFFER, input);
    let start = input.fill_buf()?;
    if start.starts_with(&GZIP) {
        Ok(Box::new(MultiGzDecoder::new(input)))
    } else if start.starts_with(&ZSTD) || is_skippable(start) {
        Ok(Box::new(Zstd::new(input)))
    } else {
        Ok(Box::new(input))
    }
}

fn is_skippable(magic: &[u8]) -> bool {
    matches!(magic, [first, rest @ ..] if first & 0xf0 == 0x50 && rest.starts_with(&SKIPPABLE))
}

/// One zstd frame after the other.
struct Zstd<R> {
    input: R,
    frame: FrameDecoder,
    /// A frame has begun and not ended.
    inside: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(input: R) -> Self {
        let mut frame = FrameDecoder::new();
        frame.set_max_window_size(WINDOW);
        Self { input, frame, inside: false }
    }

    /// Begins the next frame. `false` at the end of the input.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.input.fill_buf()?.is_empty() {
                return Ok(false);
            }
            let mut magic = [0; 4];
            self.input.read_exact(&mut magic)?;
            if !is_skippable(&magic) {
                self.frame.reset(magic.chain(&mut self.input)).map_err(malformed)?;
                return Ok(true);
            }
            let mut length = [0; 4];
            self.input.read_exact(&mut length)?;
            let length = u64::from(u32::from_le_bytes(length));
            if io::copy(&mut self.input.by_ref().take(length), &mut io::sink())? < length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.inside {
                while self.frame.can_collect() == 0 && !self.frame.is_finished() {
                    if self.input.fill_buf()?.is_empty() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    self.frame
                        .decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1))
                        .map_err(malformed)?;
                }
                let count = self.frame.read(buffer)?;
                if count > 0 || buffer.is_empty() {
                    return Ok(count);
                }
                self.inside = false;
            }
            if !self.next_frame()? {
                return Ok(0);
            }
            self.inside = true;
        }
    }
}

fn malformed(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("zstd: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;

    fn decoded(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        decode(bytes)?.read_to_end(&mut out)?;
        Ok(out)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn several_members_and_frames_are_read_as_one() {
        let data: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let (head, tail) = data.split_at(700_001);
        assert_eq!(decoded(&[gzip(head), gzip(tail)].concat()).unwrap(), data);
        let zstd = |part: &[u8]| compress_to_vec(part, CompressionLevel::Fastest);
        let note = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        assert_eq!(decoded(&[note.clone(), zstd(head), note, zstd(tail)].concat()).unwrap(), data);
        assert_eq!(decoded(&data).unwrap(), data);
        assert_eq!(decoded(b"").unwrap(), b"");
    }

    #[test]
    fn what_is_cut_or_damaged_fails() {
        let data = vec![7; 400_000];
        for whole in [gzip(&data), compress_to_vec(data.as_slice(), CompressionLevel::Fastest)] {
            assert!(decoded(&whole[..whole.len() - 3]).is_err());
            assert!(decoded(&whole[..8]).is_err());
        }
    }

    #[test]
    fn a_frame_that_asks_for_too_much_memory_is_refused() {
        // Magic, a descriptor without single segment, and a window of 2^41 bytes.
        let frame = [&ZSTD[..], &[0x00, 0xf8, 1, 0, 0]].concat();
        assert!(decoded(&frame).is_err());
    }
}
