//! Archives, byte by byte: also such as no tool writes.

#[derive(Clone, Debug, Default)]
pub struct Tar(Vec<u8>);

impl Tar {
    /// Adds an entry of a kind, as it is: nothing is checked.
    pub fn raw(mut self, path: &[u8], kind: u8, link: &[u8], mode: u32, data: &[u8]) -> Self {
        self.0.extend_from_slice(&header(path, kind, link, mode, data.len() as u64));
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub fn file(self, path: &str, data: &[u8]) -> Self {
        self.raw(path.as_bytes(), b'0', b"", 0o644, data)
    }

    pub fn folder(self, path: &str) -> Self {
        self.raw(path.as_bytes(), b'5', b"", 0o755, b"")
    }

    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.raw(path.as_bytes(), b'2', target.as_bytes(), 0o777, b"")
    }

    pub fn hardlink(self, path: &str, target: &str) -> Self {
        self.raw(path.as_bytes(), b'1', target.as_bytes(), 0o644, b"")
    }

    /// An extended header for the entry that follows.
    pub fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let bytes: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
        self.raw(b"pax", b'x', b"", 0o644, &bytes)
    }

    /// A file of 16 bytes of data and holes up to `real_size`.
    pub fn sparse(self, path: &str, real_size: u64) -> Self {
        let size = real_size.to_string();
        let map = format!("0,8,{},8", real_size.saturating_sub(8));
        self.pax(&[("GNU.sparse.size", size.as_bytes()), ("GNU.sparse.map", map.as_bytes())])
            .file(path, b"headheadtailtail")
    }

    pub fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

fn header(path: &[u8], kind: u8, link: &[u8], mode: u32, size: u64) -> [u8; 512] {
    let mut header = [0; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, path);
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000\x000000000\0");
    put(124, format!("{size:011o}").as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link);
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header
}

fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}
