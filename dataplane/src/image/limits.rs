//! How much of an image is taken.

/// Bounds of one image. What passes one is refused by its name before, or as soon as, it is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageLimits {
    /// Bytes of an index, of a manifest, and of the configuration, each. They are held in memory.
    pub document_bytes: u64,
    /// Bytes of all layers as they are sent.
    pub compressed_bytes: u64,
    /// Bytes of all layers unpacked, holes of sparse files included.
    pub unpacked_bytes: u64,
    /// How many times its compressed size a layer may unpack to. Holds from 64 MiB unpacked on.
    pub ratio: u64,
    /// Number of layers.
    pub layers: usize,
    /// Entries of all layers: files, folders, links, marks, and what is skipped.
    pub entries: u64,
    /// Names in the path of an entry.
    pub depth: usize,
    /// Bytes of one name in a path.
    pub name_bytes: usize,
    /// Bytes of a whole path, and of the target of a link.
    pub path_bytes: usize,
    /// Bytes of names and values of the extended attributes of one entry.
    pub xattr_bytes: usize,
}

/// Unpacked bytes below which the ratio does not count: a small file of zeros is no bomb.
pub(super) const RATIO_FROM: u64 = 64 << 20;

/// For images of any size that is rented: 64 GiB sent, 160 GiB unpacked, 127 layers, two million entries.
impl Default for ImageLimits {
    fn default() -> Self {
        Self {
            document_bytes: 4 << 20,
            compressed_bytes: 64 << 30,
            unpacked_bytes: 160 << 30,
            ratio: 200,
            layers: 127,
            entries: 2_000_000,
            depth: 128,
            name_bytes: 255,
            path_bytes: 4095,
            xattr_bytes: 64 << 10,
        }
    }
}
