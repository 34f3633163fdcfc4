//! A report that its auditor signed.

use selion_audit::{Report, ReportError, SignedReport};

use super::book::{audit, key, story};

fn report() -> Report {
    let (book, _) = story();
    audit(&book.seal().unwrap())
}

#[test]
fn a_signed_report_reads_back_with_its_auditor() {
    let signed = SignedReport::sign(report(), &key(50)).unwrap();
    let read = SignedReport::read(&signed.text().unwrap()).unwrap();
    assert_eq!((read.auditor, read.report.ok), (key(50).account(), true));
    assert_eq!(read, signed);
}

#[test]
fn a_report_with_any_byte_changed_is_refused() {
    let text = SignedReport::sign(report(), &key(50)).unwrap().text().unwrap();
    for at in 0..text.len() {
        for other in [b'0', b'1', b' ', b'"', b'x'] {
            let mut bytes = text.clone().into_bytes();
            if bytes[at] == other || !bytes[at].is_ascii() {
                continue;
            }
            bytes[at] = other;
            if let Ok(changed) = String::from_utf8(bytes) {
                assert!(SignedReport::read(&changed).is_err(), "byte {at} as {}", char::from(other));
            }
        }
    }
    assert!(SignedReport::read(&text[..text.len() - 1]).is_err());
    assert!(SignedReport::read(&format!("{text} ")).is_err());
}

#[test]
fn every_part_of_a_report_is_signed() {
    let signed = SignedReport::sign(report(), &key(50)).unwrap();
    let changes: [fn(&mut Report); 11] = [
        |report| report.ok = false,
        |report| report.pool.chain_id += 1,
        |report| report.checks[3].detail.push('x'),
        |report| drop(report.checks.pop()),
        |report| report.newest_head = None,
        |report| report.anchored_size += 1,
        |report| report.covered -= 1,
        |report| report.judged_from += 1,
        |report| report.signatures.unsigned += 1,
        |report| report.rpcs.push("http://other".into()),
        |report| report.not_proved.clear(),
    ];
    for (at, change) in changes.iter().enumerate() {
        let mut other = signed.clone();
        change(&mut other.report);
        let error = SignedReport::read(&other.text().unwrap()).unwrap_err();
        assert!(matches!(error, ReportError::Broken(_)), "change {at}: {error}");
    }
    let somebody = SignedReport { auditor: key(51).account(), ..signed };
    let error = SignedReport::read(&somebody.text().unwrap()).unwrap_err();
    assert!(matches!(error, ReportError::Broken(_)), "{error}");
}
