//! The vectors of EIP-4361, as the library that we parse with ships them beside its sources.

use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::http::origin::Origin;
use crate::http::siwe::{Site, SiweFault, read};

/// The folder of vectors: cargo knows where the sources lie that this was built from.
fn folder() -> PathBuf {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let asked = ["metadata", "--offline", "--format-version", "1", "--filter-platform", &platform];
    let answer = Command::new(env!("CARGO")).args(asked).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    let told: Value = serde_json::from_slice(&answer.stdout).unwrap();
    let mut packages = told["packages"].as_array().unwrap().iter();
    let package = packages.find(|package| package["name"] == "signinwithethereum").unwrap();
    PathBuf::from(text(package, "manifest_path")).with_file_name("test-vectors").join("vectors")
}

fn vectors(name: &str) -> serde_json::Map<String, Value> {
    let path = folder().join(name).with_extension("json");
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap()
}

/// The message of a vector that has fields.
fn written(fields: &Value) -> String {
    let field = |name: &str| fields.get(name).and_then(Value::as_str);
    let mut message = format!(
        "{} wants you to sign in with your Ethereum account:\n{}\n\n",
        text(fields, "domain"),
        text(fields, "address")
    );
    if let Some(statement) = field("statement") {
        message += &format!("{statement}\n");
    }
    message += &format!(
        "\nURI: {}\nVersion: {}\nChain ID: {}\nNonce: {}\nIssued At: {}",
        text(fields, "uri"),
        text(fields, "version"),
        fields["chainId"],
        text(fields, "nonce"),
        text(fields, "issuedAt")
    );
    let times = [("Expiration Time", "expirationTime"), ("Not Before", "notBefore"), ("Request ID", "requestId")];
    for (tag, name) in times {
        if let Some(value) = field(name) {
            message += &format!("\n{tag}: {value}");
        }
    }
    for (at, resource) in fields["resources"].as_array().into_iter().flatten().enumerate() {
        let head = if at == 0 { "\nResources:" } else { "" };
        message += &format!("{head}\n- {}", resource.as_str().unwrap());
    }
    message
}

/// What our check says of a vector, at its own site.
fn checked(fields: &Value) -> Result<String, String> {
    let named = fields.get("domainBinding").or(fields.get("domain")).and_then(Value::as_str).unwrap();
    let origin = Origin::of(Some(&format!("https://{named}")), "127.0.0.1:1".parse().unwrap()).unwrap();
    let pool = PoolId { chain_id: fields["chainId"].as_u64().unwrap(), ..POOL };
    let time = fields.get("time").and_then(Value::as_str).unwrap_or("2026-11-22T00:00:00Z");
    let time: signinwithethereum::TimeStamp = time.parse().unwrap();
    let now = u64::try_from(time.as_ref().unix_timestamp_nanos() / 1_000_000).unwrap();
    let signature: Signature = text(fields, "signature").parse().map_err(|_| "not a signature".to_owned())?;
    let proven = Site { origin: &origin, pool: &pool }.check(&written(fields), &signature, TimeMs(now));
    let proven = proven.map_err(|fault| match fault {
        SiweFault::Malformed(_) => "malformed".to_owned(),
        SiweFault::ForeignDomain { .. } => "foreign domain".to_owned(),
        SiweFault::Expired(_) => "expired".to_owned(),
        SiweFault::TooEarly(_) => "early".to_owned(),
        SiweFault::Forged(_) => "forged".to_owned(),
        other => other.to_string(),
    })?;
    assert_eq!(proven.account.to_string(), text(fields, "address").to_lowercase());
    let wanted = fields.get("matchNonce").and_then(Value::as_str);
    if wanted.is_some_and(|nonce| nonce != proven.nonce) { Err("another nonce".to_owned()) } else { Ok(proven.nonce) }
}

#[test]
fn j11_every_official_message_is_read() {
    let mut count = 0;
    for (name, key) in [
        ("parsing/parsing_positive", "message"),
        ("parsing/parsing_warnings", "message"),
        ("grammar/valid_specification", "msg"),
        ("grammar/valid_resources", "msg"),
        ("grammar/valid_uris", "msg"),
    ] {
        for (what, vector) in vectors(name) {
            // The library takes no octets with leading zeros: stricter than the grammar.
            if what.starts_with("IPv4address leading zeros") || what.starts_with("IPv4address max value") {
                continue;
            }
            assert!(read(text(&vector, key)).is_ok(), "{name}, {what}: {:?}", read(text(&vector, key)));
            count += 1;
        }
    }
    assert!(count >= 70, "{count} vectors");
}

#[test]
fn j11_every_official_non_message_is_refused() {
    let mut count = 0;
    for name in ["parsing/parsing_negative", "grammar/invalid_resources", "grammar/invalid_uris"] {
        for (what, vector) in vectors(name) {
            assert!(matches!(read(vector.as_str().unwrap()), Err(SiweFault::Malformed(_))), "{name}, {what}");
            count += 1;
        }
    }
    assert!(count >= 70, "{count} vectors");
}

#[test]
fn j11_official_signatures_are_judged_as_they_should_be() {
    for (what, fields) in vectors("verification/verification_positive") {
        let said = checked(&fields);
        // The URI of one is another site than its domain, and its v is 0: a site and a signature have one spelling here.
        // And what was issued in the future of the reader is early, expiry or not.
        let strict = match what.as_str() {
            "recovery byte starting at 0" => Some("foreign domain"),
            "expired message" => Some("early"),
            _ => None,
        };
        let wanted = strict.map_or_else(|| Ok(text(&fields, "nonce").to_owned()), |fault| Err(fault.to_owned()));
        assert_eq!(said, wanted, "{what}");
    }
    let faults = [
        ("expired message", "expired"),
        ("domain binding", "foreign domain"),
        ("custom time", "expired"),
        // Not over its own text: that is seen before the nonce is looked at.
        ("custom nonce", "forged"),
        ("malformed signature", "not a signature"),
        ("wrong signature", "forged"),
        ("not yet valid", "early"),
        ("invalid issuedAt", "malformed"),
        ("invalid notBefore", "malformed"),
        ("invalid expirationTime", "malformed"),
    ];
    let negative = vectors("verification/verification_negative");
    assert_eq!(negative.len(), faults.len());
    for (what, fault) in faults {
        assert_eq!(checked(&negative[what]), Err(fault.to_owned()), "{what}");
    }
}
