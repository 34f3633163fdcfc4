//! What a configuration may say.

use super::*;

#[test]
fn a_chain_beyond_this_machine_without_tls_is_refused_also_where_its_url_stands_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("url");
    let with = |url: &str, insecure: bool| {
        std::fs::write(&file, format!("{url}\n")).unwrap();
        check(&Config { chain_rpc: format!("@{}", file.display()), insecure, ..Config::default() })
    };
    let refused = with("http://chain.example:8545/s3cret", false).unwrap_err().to_string();
    assert!(refused.contains("http://chain.example:8545") && !refused.contains("s3cret"), "{refused}");
    assert!(with("http://chain.example:8545", true).is_ok());
    assert!(with("https://chain.example/s3cret", false).is_ok());
    assert!(with("http://127.0.0.1:8545/s3cret", false).is_ok());
}

#[test]
fn a_server_of_names_on_the_machines_own_loopback_is_refused_and_one_nearby_is_not() {
    let with = |server: &str| check(&Config { resolvers: vec![server.parse().unwrap()], ..Config::default() });
    for own in ["127.0.0.53", "0.0.0.0"] {
        let refused = with(own).unwrap_err().to_string();
        assert!(refused.contains(own), "{refused}");
    }
    assert!(with("192.168.1.1").is_ok() && with("1.1.1.1").is_ok());
}
