//! Extended headers: `LENGTH KEY=VALUE\n`, many times. A value may hold any byte, newlines too.

/// What the extended header of one entry says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pax {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub uid: Option<u64>,
    pub gid: Option<u64>,
    /// Seconds since 1970.
    pub mtime: Option<i64>,
    /// Names and values.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub sparse: PaxSparse,
}

/// What it says of holes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PaxSparse {
    pub version: Option<(u64, u64)>,
    pub real_size: Option<u64>,
    pub map: Option<Vec<u8>>,
    pub name: Option<Vec<u8>>,
    /// There are records of version 0.0, which is not read here.
    pub oldest: bool,
}

const XATTR: &[u8] = b"SCHILY.xattr.";

impl Pax {
    /// Reads the records. `None` if they do not follow the format.
    pub fn read(mut rest: &[u8]) -> Option<Self> {
        let mut pax = Self::default();
        // What is padded with NUL ends there.
        while rest.first().is_some_and(|byte| *byte != 0) {
            let space = rest.iter().take(20).position(|byte| *byte == b' ')?;
            let length: usize = number(&rest[..space])?.try_into().ok()?;
            let record = rest.get(space + 1..length)?;
            let (newline, record) = record.split_last()?;
            let equals = record.iter().position(|byte| *byte == b'=')?;
            if *newline != b'\n' {
                return None;
            }
            pax.set(&record[..equals], &record[equals + 1..])?;
            rest = &rest[length..];
        }
        Some(pax)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let text = || (!value.is_empty()).then(|| value.to_vec());
        match key {
            b"path" => self.path = text(),
            b"linkpath" => self.link = text(),
            b"size" => self.size = Some(number(value)?),
            b"uid" => self.uid = Some(number(value)?),
            b"gid" => self.gid = Some(number(value)?),
            b"mtime" => self.mtime = seconds(value),
            b"GNU.sparse.major" => {
                self.sparse.version = Some((number(value)?, self.sparse.version.unwrap_or_default().1))
            }
            b"GNU.sparse.minor" => {
                self.sparse.version = Some((self.sparse.version.unwrap_or_default().0, number(value)?))
            }
            b"GNU.sparse.realsize" | b"GNU.sparse.size" => self.sparse.real_size = Some(number(value)?),
            b"GNU.sparse.map" => self.sparse.map = Some(value.to_vec()),
            b"GNU.sparse.name" => self.sparse.name = text(),
            b"GNU.sparse.offset" => self.sparse.oldest = true,
            _ => {
                if let Some(name) = key.strip_prefix(XATTR) {
                    self.xattrs.retain(|(known, _)| known != name);
                    self.xattrs.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        Some(())
    }
}

/// Decimal digits, nothing else.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Whole seconds of `-12.5`; `None` for what is no time, which then is that of the header.
fn seconds(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    text.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, value: &[u8]) -> Vec<u8> {
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
    }

    #[test]
    fn a_value_may_hold_newlines_and_the_last_of_a_key_holds() {
        let bytes = [
            record("path", b"a\nb"),
            record("SCHILY.xattr.user.x", b"1\n2=3"),
            record("SCHILY.xattr.user.x", b"\n"),
            record("mtime", b"12.75"),
            record("comment", b"ignored"),
        ]
        .concat();
        let pax = Pax::read(&bytes).unwrap();
        assert_eq!((pax.path.as_deref(), pax.mtime), (Some(b"a\nb".as_slice()), Some(12)));
        assert_eq!(pax.xattrs, [(b"user.x".to_vec(), b"\n".to_vec())]);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for bad in
            ["5", "x path=a\n", "99 path=a\n", "9 path=ab\n", "4 a\n", "0 path=a\n", "10 size=-1\n", "11 path=a\nxx"]
        {
            assert_eq!(Pax::read(bad.as_bytes()), None, "{bad}");
        }
    }
}
