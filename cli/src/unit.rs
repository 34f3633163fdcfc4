//! Units as people write them. Everywhere else: milliseconds, bytes and token base units.

use std::str::FromStr;

use selion_api::id::BadId;
use selion_api::{Amount, Rate, TimeMs};
use selion_contracts::audited::text_hash;

/// A text that is not a value of its unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is {}{what}; write {how}", if text.starts_with('-') { "below zero, which is not " } else { "not " })]
pub struct BadUnit {
    text: String,
    what: &'static str,
    how: &'static str,
}

const SPANS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
const SIZES: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
/// Sizes by powers of ten. They are read and never written.
const DECIMAL_SIZES: [(&str, u64); 4] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1_000)];
/// Decimals of the pool's token, and base units of one.
const DECIMALS: usize = 6;
const ONE: u64 = 1_000_000;

/// A number with its unit, such as `90s` or `1.5h`, in the smallest unit; and the rest of the text. `None` where the
/// number is not whole in the smallest unit.
fn one_part<'a>(text: &'a str, units: &[(&str, u64)]) -> Option<(u64, u64, &'a str)> {
    let end = |text: &str, of: fn(char) -> bool| text.find(|letter| !of(letter)).unwrap_or(text.len());
    let (number, rest) = text.split_at(end(text, |letter| letter.is_ascii_digit() || letter == '.'));
    let (unit, rest) = rest.split_at(end(rest, |letter| letter.is_ascii_alphabetic()));
    let (_, factor) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 9 {
        return None;
    }
    let ten = 10_u128.pow(u32::try_from(part.len()).ok()?);
    let scaled = part.parse::<u128>().ok()?.checked_mul(u128::from(*factor))?;
    let part = scaled.is_multiple_of(ten).then(|| u64::try_from(scaled / ten).ok())??;
    let value = whole.parse::<u64>().ok()?.checked_mul(*factor)?.checked_add(part)?;
    Some((value, *factor, rest))
}

/// One number with its unit, and nothing else.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    one_part(text, units).filter(|(_, _, rest)| rest.is_empty()).map(|(value, ..)| value)
}

/// Numbers with their units, the larger unit first: `1h30m`.
fn summed(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (mut total, mut last, mut rest) = (0_u64, u64::MAX, text);
    loop {
        let (value, factor, more) = one_part(rest, units).filter(|(_, factor, _)| *factor < last)?;
        total = total.checked_add(value)?;
        if more.is_empty() {
            return Some(total);
        }
        (last, rest) = (factor, more);
    }
}

/// The shortest exact text in `units`, which end with the smallest.
fn written(value: u64, units: &[(&str, u64)]) -> String {
    let exact = units.iter().find(|(_, factor)| value != 0 && value.is_multiple_of(*factor));
    match exact.or(units.last()) {
        Some((name, factor)) => format!("{}{name}", value / factor),
        None => value.to_string(),
    }
}

/// `90s`, `15m`, `1.5h`, `1h30m`, `2d`, `250ms`: milliseconds.
pub fn duration(text: &str) -> Result<u64, BadUnit> {
    let bad = || BadUnit { text: text.to_owned(), what: "a duration", how: "90s, 15m, 1h30m or 2d" };
    summed(text, &SPANS).ok_or_else(bad)
}

/// The duration of a lease: more than nothing and at most 30 days.
pub fn lease_duration(text: &str) -> Result<u64, BadUnit> {
    let bad =
        || BadUnit { text: text.to_owned(), what: "how long a lease may run", how: "a time up to 30d, such as 90s" };
    duration(text)
        .and_then(|ms| if (1..=selion_api::lease::MAX_DURATION_MS).contains(&ms) { Ok(ms) } else { Err(bad()) })
}

/// The text that [`duration`] reads.
pub fn show_duration(ms: u64) -> String {
    written(ms, &SPANS)
}

/// A measured time for people: three figures or so, not exact.
pub fn show_elapsed(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{}m{:02}s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{}h{:02}m", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// A time as `2026-11-20 16:05:09Z`.
pub fn show_time(at: TimeMs) -> String {
    let (days, of_day) = (at.0 / 86_400_000, at.0 % 86_400_000 / 1_000);
    // Gregorian years repeat every 400, which are 146,097 days; counted from 0000-03-01 the leap day comes last.
    let since_march_0 = days.saturating_add(719_468);
    let (era, day) = (since_march_0 / 146_097, since_march_0 % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year + 400 * era + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day % 3_600 / 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// A time as [`show_time`] writes it, with how far it is from `now`: `.. (in 12m00s)`.
pub fn show_when(at: TimeMs, now: TimeMs) -> String {
    let (away, ago) = (at.since(now), now.since(at));
    let near = if away > 0 { format!("in {}", show_elapsed(away)) } else { format!("{} ago", show_elapsed(ago)) };
    format!("{} ({near})", show_time(at))
}

/// A time as [`show_time`] writes it, or with `T` between, or as milliseconds since 1970: UTC always.
pub fn time(text: &str) -> Result<TimeMs, BadUnit> {
    let bad = || BadUnit { text: text.to_owned(), what: "a time", how: "2026-11-20T16:05:09Z (UTC) or milliseconds" };
    if let Ok(ms) = text.parse::<u64>() {
        return Ok(TimeMs(ms));
    }
    let (day, clock) = text.trim_end_matches('Z').split_once(['T', ' ']).ok_or_else(bad)?;
    let day = numbers(day, '-').and_then(days_since_1970).ok_or_else(bad)?;
    let [hour, minute, second] = numbers(clock, ':').ok_or_else(bad)?;
    if hour > 23 || minute > 59 || second > 59 {
        return Err(bad());
    }
    Ok(TimeMs(day * 86_400_000 + (hour * 3_600 + minute * 60 + second) * 1_000))
}

fn numbers(text: &str, between: char) -> Option<[u64; 3]> {
    let part = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?;
    let parts: Option<Vec<u64>> = text.split(between).map(part).collect();
    parts?.try_into().ok()
}

/// Days from 1970-01-01; `None` if there is no such day from then to 9999. The inverse of what [`show_time`] does.
fn days_since_1970([year, month, day]: [u64; 3]) -> Option<u64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let february = if leap { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = lengths.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    if !(1970..=9999).contains(&year) || !(1..=*length).contains(&day) {
        return None;
    }
    let past = year - 1;
    let leaps = |years: u64| years / 4 - years / 100 + years / 400;
    let years = (year - 1970) * 365 + leaps(past) - leaps(1969);
    let months: u64 = lengths.iter().take(usize::try_from(month).ok()? - 1).sum();
    Some(years + months + day - 1)
}

/// `24GiB`, `512MiB`, `1.5GiB` by powers of two, `16GB` by powers of ten: bytes.
pub fn memory(text: &str) -> Result<u64, BadUnit> {
    let how = "512MiB, 24GiB or 16GB (1GiB is 2^30 bytes, 1GB is 10^9)";
    let bad = || BadUnit { text: text.to_owned(), what: "an amount of memory", how };
    scaled(text, &SIZES).or_else(|| scaled(text, &DECIMAL_SIZES)).ok_or_else(bad)
}

/// A count, such as megabits a second.
pub fn count(text: &str) -> Result<u32, BadUnit> {
    text.parse().map_err(|_| BadUnit { text: text.to_owned(), what: "a whole number", how: "it in digits, as 100" })
}

/// The text that [`memory`] reads.
pub fn show_memory(bytes: u64) -> String {
    written(bytes, &SIZES)
}

/// Bytes for people: one decimal at most, not exact.
pub fn show_size(bytes: u64) -> String {
    match SIZES.iter().find(|(_, factor)| bytes >= *factor) {
        Some((name, factor)) if bytes.is_multiple_of(*factor) => format!("{}{name}", bytes / factor),
        Some((name, factor)) => format!("{}.{}{name}", bytes / factor, bytes % factor * 10 / factor),
        None => "0B".to_owned(),
    }
}

/// `0.80` tokens: base units.
fn money(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > DECIMALS {
        return None;
    }
    let part: u64 = format!("{part:0<DECIMALS$}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(ONE)?.checked_add(part)
}

/// An amount in tokens, as `12.50`.
pub fn amount(text: &str) -> Result<Amount, BadUnit> {
    let bad = || BadUnit {
        text: text.to_owned(),
        what: "an amount of tokens",
        how: "it as 12.50: digits with at most six after the point, up to 18446744073709.551615",
    };
    money(text).map(Amount).ok_or_else(bad)
}

/// A rate in tokens per hour, as `0.80`.
pub fn rate(text: &str) -> Result<Rate, BadUnit> {
    let bad = || BadUnit {
        text: text.to_owned(),
        what: "a rate in tokens per hour",
        how: "it as 0.80: digits with at most six after the point, up to 18446744073709.551615",
    };
    money(text).map(Rate).ok_or_else(bad)
}

/// An address, or the account of one, that money goes to or that may move it. Letters of both cases carry a checksum
/// (EIP-55): one that does not fit was mistyped.
///
/// # Errors
///
/// What is wrong with it.
pub fn payee<A: FromStr<Err = BadId>>(text: &str) -> Result<A, String> {
    let address = text.parse().map_err(|error: BadId| error.to_string())?;
    let letters = || text.strip_prefix("0x").unwrap_or_default().bytes().filter(u8::is_ascii_alphabetic);
    let has_both =
        letters().any(|letter| letter.is_ascii_uppercase()) && letters().any(|letter| letter.is_ascii_lowercase());
    if has_both && text != with_checksum(text) {
        return Err(format!(
            "the checksum of `{text}`, its large and small letters, does not fit: some of it was mistyped; copy it again"
        ));
    }
    Ok(address)
}

/// An address with the letters that are large by its checksum.
fn with_checksum(address: &str) -> String {
    let small = address.trim_start_matches("0x").to_ascii_lowercase();
    let hash = text_hash(&small).to_string();
    let nibbles = hash.trim_start_matches("0x").bytes();
    let letters = small.chars().zip(nibbles);
    let cased = letters.map(|(letter, nibble)| if nibble >= b'8' { letter.to_ascii_uppercase() } else { letter });
    format!("0x{}", cased.collect::<String>())
}

/// The text that [`amount`] and [`rate`] read: exact, at least two decimals.
pub fn show_money(base_units: u64) -> String {
    let part = format!("{:06}", base_units % ONE);
    let part = part.trim_end_matches('0');
    format!("{}.{part:0<2}", base_units / ONE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use selion_api::{Account, Address};

    use super::*;

    #[test]
    fn an_address_whose_checksum_does_not_fit_is_refused_and_one_without_is_taken() {
        // The examples of EIP-55.
        for good in [
            "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
            "0x52908400098527886E0F7030069857D2E4169EE7",
            "0xde709f2102306220921060314715629080e2fb77",
        ] {
            let small = good.to_ascii_lowercase();
            assert_eq!(payee::<Address>(good), payee(&small), "{good}");
            assert_eq!(payee::<Account>(good).unwrap().to_string(), small);
        }
        // A wrong digit, a wrong case.
        for bad in ["0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAe0", "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD"] {
            let said = payee::<Address>(bad).unwrap_err();
            assert!(said.contains(bad) && said.contains("checksum"), "{said}");
        }
        assert!(payee::<Address>("0x00").unwrap_err().contains("20-byte"));
    }

    proptest! {
        #[test]
        fn every_value_reads_back_as_it_was_written(value: u64) {
            prop_assert_eq!(duration(&show_duration(value)), Ok(value));
            prop_assert_eq!(memory(&show_memory(value)), Ok(value));
            prop_assert_eq!(amount(&show_money(value)), Ok(Amount(value)));
            prop_assert_eq!(rate(&show_money(value)), Ok(Rate(value)));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = (duration(&text), memory(&text), amount(&text));
        }
    }

    #[test]
    fn how_long_a_lease_may_run_is_told_in_the_units_that_people_write() {
        assert_eq!(lease_duration("30d").unwrap(), 2_592_000_000);
        for wrong in ["0s", "400d", "x"] {
            let told = lease_duration(wrong).unwrap_err().to_string();
            assert!(told.contains(wrong) && !told.contains("2592000000"), "{told}");
        }
    }

    #[test]
    fn people_write_what_they_mean() {
        assert_eq!(duration("90s"), Ok(90_000));
        assert_eq!(duration("2d"), Ok(172_800_000));
        assert_eq!(duration("1h30m"), Ok(5_400_000));
        assert_eq!(duration("1.5h"), Ok(5_400_000));
        assert_eq!(duration("1d12h0.5s"), Ok(129_600_500));
        assert_eq!(memory("24GiB"), Ok(24 << 30));
        assert_eq!(memory("24gib"), Ok(24 << 30));
        assert_eq!(memory("1.5GiB"), Ok(3 << 29));
        assert_eq!(memory("16GB"), Ok(16_000_000_000));
        assert_eq!(rate("0.80"), Ok(Rate(800_000)));
        assert_eq!(amount("7"), Ok(Amount(7_000_000)));
        assert_eq!(show_money(800_000), "0.80");
        assert_eq!(show_money(1), "0.000001");
        assert_eq!(show_duration(3_600_000), "1h");
        assert_eq!(show_elapsed(61_500), "1m01s");
        assert_eq!(show_size((3 << 30) / 2), "1.5GiB");
    }

    #[test]
    fn a_time_says_how_far_it_is() {
        let now = TimeMs(1_795_190_709_000);
        assert_eq!(show_when(now.plus(720_000), now), "2026-11-20 16:17:09Z (in 12m00s)");
        assert_eq!(show_when(now, now.plus(1_500)), "2026-11-20 16:05:09Z (1.5s ago)");
    }

    #[test]
    fn times_are_gregorian_and_utc() {
        let table = [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_400_000, "2000-02-29 00:00:00Z"),
            (951_868_799_999, "2000-02-29 23:59:59Z"),
            (1_795_190_709_000, "2026-11-20 16:05:09Z"),
            (4_107_542_400_000, "2100-03-01 00:00:00Z"),
        ];
        for (ms, text) in table {
            assert_eq!(show_time(TimeMs(ms)), text);
        }
        assert!(!show_time(TimeMs(u64::MAX)).is_empty());
    }

    #[test]
    fn a_time_is_read_as_it_is_written() {
        for ms in [0, 951_782_400_000, 951_868_799_000, 1_795_190_709_000, 4_107_542_400_000] {
            assert_eq!(time(&show_time(TimeMs(ms))), Ok(TimeMs(ms)));
        }
        assert_eq!(time("2026-11-20T16:05:09Z"), Ok(TimeMs(1_795_190_709_000)));
        assert_eq!(time("1795190709000"), Ok(TimeMs(1_795_190_709_000)));
        for bad in
            ["", "14:03", "2026-02-29T00:00:00Z", "2026-13-01 00:00:00", "1969-12-31T23:59:59Z", "2026-1-1T24:0:0"]
        {
            assert!(time(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_wrong_text_is_named_with_the_right_form() {
        let error = duration("4hours").unwrap_err().to_string();
        assert_eq!(error, "`4hours` is not a duration; write 90s, 15m, 1h30m or 2d");
        let error = duration("-5m").unwrap_err().to_string();
        assert_eq!(error, "`-5m` is below zero, which is not a duration; write 90s, 15m, 1h30m or 2d");
        for bad in ["", "h", "-1h", "4 h", "30m1h", "1h1h", "1.h", ".5h", "0.0001s", "1h30", "20000000000000000000d"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
        for bad in ["24G", "1GiB512MiB", "0.3B", "GiB", "-1GiB"] {
            assert!(memory(bad).is_err(), "{bad:?}");
        }
        for bad in ["-1", "1e3", ".5", "5.", "0.1234567", "1,5", "18446744073709.551616"] {
            assert!(amount(bad).is_err(), "{bad:?}");
        }
        assert_eq!(amount("18446744073709.551615"), Ok(Amount(u64::MAX)));
    }
}
