//! The `/etc` of a view: what programs need to start, to find names and to check certificates. Nothing else of the
//! machine's configuration is there, neither accounts nor keys.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::runtime::network::Net;

/// Folders that are shown as they are.
pub(super) const FOLDERS: [&str; 18] = [
    "/etc/OpenCL",
    "/etc/R",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/fonts",
    "/etc/glvnd",
    "/etc/java",
    "/etc/ld.so.conf.d",
    "/etc/perl",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/python3",
    "/etc/ssl/certs",
    "/etc/terminfo",
    "/etc/vdpau_wrapper",
    "/etc/vulkan",
    "/etc/xml",
];

/// Beginnings of the names of more such folders.
pub(super) const FOLDER_NAMES: [&str; 3] = ["ImageMagick-", "java-", "python3."];

/// Files that are copied as they are, wherever a link leads to.
pub(super) const FILES: [&str; 22] = [
    "/etc/bash.bashrc",
    "/etc/bindresvport.blacklist",
    "/etc/ca-certificates.conf",
    "/etc/debian_version",
    "/etc/ethertypes",
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/lsb-release",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/networks",
    "/etc/os-release",
    "/etc/protocols",
    "/etc/rpc",
    "/etc/services",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
];

/// Longest file that is copied, in bytes; a longer one is left out.
const LONGEST: u64 = 1 << 20;

/// Accounts of the view's own, where it has no image's.
pub(super) fn accounts(uid: u32, gid: u32) -> Vec<(&'static str, Vec<u8>)> {
    let home = crate::runtime::rooms::WORK;
    let mut passwd = "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n".to_owned();
    let mut group = "root:x:0:\n".to_owned();
    if uid != 0 {
        passwd += &format!("renter:x:{uid}:{gid}:renter:{home}:/bin/sh\n");
        group += &format!("renter:x:{gid}:\n");
    }
    let lookup = "passwd: files\ngroup: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n";
    vec![
        ("/etc/passwd", passwd.into_bytes()),
        ("/etc/group", group.into_bytes()),
        ("/etc/nsswitch.conf", lookup.into()),
    ]
}

/// How names are found.
pub(super) fn names(network: Option<&Net>) -> Vec<(&'static str, Vec<u8>)> {
    let mut files = vec![("/etc/hosts", b"127.0.0.1 localhost\n::1 localhost\n".to_vec())];
    if let Some(net) = network.filter(|net| net.internet) {
        let servers = net.outlook.resolvers.iter().map(|server| format!("nameserver {server}\n"));
        files.push(("/etc/resolv.conf", servers.collect::<String>().into_bytes()));
    }
    files
}

/// What is in a file that anybody may read. `None` for another, and for one that is not there or too long.
pub(super) fn copy(path: &Path) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.permissions().mode() & 0o004 == 0 || meta.len() > LONGEST {
        return None;
    }
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).ok()?;
    Some(text)
}
