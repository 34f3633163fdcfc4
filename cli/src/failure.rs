//! Why a command did not do its job: what was wrong, with what value, and what to do.

use std::error::Error;
use std::fmt::Display;

use selion_api::blocking::{Blocking, Constraint};
use selion_api::lease::{NearestMiss, Resource};
use selion_api::rest::{FieldError, MeansView, Problem, Unmatched};
use selion_client::ClientError;
use selion_contracts::{PoolError, RpcError, SignerError, TxError};
use serde::Serialize;

use crate::exit::Exit;
use crate::reverted;
use crate::unit::show_money;

/// A failure, ready to be shown. Boxed inside, so that results stay small.
#[derive(Debug)]
pub struct Failure(Box<Body>);

/// What is shown. In JSON this is the value of `error`.
#[derive(Debug, Serialize)]
pub struct Body {
    /// The process's exit code.
    #[serde(skip)]
    pub exit: u8,
    /// Stable snake_case code: scripts branch on it.
    pub code: String,
    /// What was wrong, with the value.
    pub detail: String,
    /// What to do next.
    pub suggestion: String,
    /// Faults of single fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// The candidate that came closest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<NearestMiss>,
    /// What of the request stands in its way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocking: Option<Blocking>,
    /// Names in the request that match nothing in the pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmatched: Vec<Unmatched>,
    /// What the account can pay with, where that is what falls short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub means: Option<MeansView>,
    /// The controller's name for the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}

/// The flag that sets a constraint.
fn flag_of(constraint: Constraint) -> &'static str {
    use Constraint as C;
    match constraint {
        C::MaxRate => "--max-rate",
        C::Classes => "--class",
        C::Needs => "--enforced, --image, --root or --secret",
        C::Models => "--model",
        C::Node => "--node",
        C::Gpu => "--gpu",
        C::Regions => "--region",
        C::NearData => "--near-data",
        C::MaxLatency => "--max-latency",
        C::Within => "--within",
        C::MinNodes => "--min-nodes",
        C::Cpu => "--cpu",
        C::Ram => "--ram",
        C::Disk => "--disk",
        C::Net => "--net",
        C::Slice => "--slice",
        C::Gpus => "--gpus",
        C::Licence => "--licence",
        C::Room => "--wait",
    }
}

/// What every command returns.
pub type Done<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure of that kind.
    pub fn new(exit: Exit, code: &str, detail: impl Display, suggestion: impl Display) -> Self {
        Self(Box::new(Body {
            exit: exit.code(),
            code: code.to_owned(),
            detail: detail.to_string(),
            suggestion: suggestion.to_string(),
            errors: Vec::new(),
            nearest: None,
            blocking: None,
            unmatched: Vec::new(),
            means: None,
            trace_id: None,
        }))
    }

    /// A wrong value on the command line, in a file or in the environment.
    pub fn usage(detail: impl Display, suggestion: impl Display) -> Self {
        Self::new(Exit::Usage, "usage", detail, suggestion)
    }

    /// A file or folder that could not be read or written. One that is not there, or not ours to read, is a wrong value.
    pub fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied, StorageFull};
        let wrong = matches!(error.kind(), NotFound | PermissionDenied | NotADirectory);
        let exit = if wrong { Exit::Usage } else { Exit::Failure };
        let suggestion = match error.kind() {
            NotFound => "check the path",
            PermissionDenied => "check who owns it, or name another place",
            StorageFull => "free some space and try again",
            _ => "check the disk and the path",
        };
        Self::new(exit, "file", format!("{}: {error}", path.display()), suggestion)
    }

    /// The remote command ended with this code: nothing more to say.
    pub fn remote(code: u8) -> Self {
        let mut failure = Self::new(Exit::Failure, "", "", "");
        failure.0.exit = code;
        failure
    }

    /// Whether there is anything to show beside the exit code.
    pub fn is_silent(&self) -> bool {
        self.0.code.is_empty()
    }

    /// The same failure under another exit code.
    pub fn with_exit(mut self, exit: Exit) -> Self {
        self.0.exit = exit.code();
        self
    }

    /// The same failure with something else to do.
    pub fn suggesting(mut self, suggestion: &str) -> Self {
        suggestion.clone_into(&mut self.0.suggestion);
        self
    }

    /// What is shown.
    pub fn body(&self) -> &Body {
        &self.0
    }
}

/// An error with its causes, in one line. A cause that the text before it repeats already is left out.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = cause.source();
    }
    text
}

/// What the command line calls the fields of requests.
const FLAGS: &[(&str, &str)] = &[
    ("duration_ms", "--duration"),
    ("wait_ms", "--wait"),
    ("max_rate", "--max-rate"),
    ("max_latency_us", "--max-latency"),
    ("min_members", "--min-count"),
    ("min_nodes", "--min-nodes"),
    ("members", "--count"),
    ("within", "--within"),
    ("regions", "--region"),
    ("classes", "--class"),
    ("needs", "--enforced, --image, --root or --secret"),
    ("enforced", "--enforced"),
    ("models", "--model"),
    ("gpus", "--gpus"),
    ("gpu", "--gpu"),
    ("node", "--node"),
    ("slice", "--slice"),
    ("profile", "--slice"),
    ("compute_permille", "--slice"),
    ("mem_bytes", "--slice"),
    ("cpu_milli", "--cpu"),
    ("ram_bytes", "--ram"),
    ("disk_bytes", "--disk"),
    ("net_mbps", "--net"),
    ("datasets", "--data"),
    ("near_data", "--near-data"),
    ("env", "--env"),
    ("command", "the command"),
    ("on_node_loss", "--on-node-loss"),
    ("priority", "--priority"),
    ("licence", "--licence"),
    ("expires_ms", "--expires"),
    ("scopes", "--scope"),
    ("name", "--name"),
    ("notice_ms", "--notice"),
    ("for_ms", "--for"),
];

/// The faults of a request in the words of the command line; `None` if there are none.
fn in_flags(errors: &[FieldError]) -> Option<String> {
    let told: Vec<String> = errors.iter().map(in_flag).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn in_flag(error: &FieldError) -> String {
    let flag = |name: &str| FLAGS.iter().find(|(field, _)| *field == name).map(|(_, flag)| *flag);
    let named = error.pointer.rsplit('/').find_map(flag).unwrap_or(&error.pointer);
    let words = error.detail.split(' ').map(|word| {
        let bare = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        // Only names that no sentence has as a word.
        flag(bare).filter(|_| bare.contains('_')).map_or_else(|| word.to_owned(), |flag| word.replace(bare, flag))
    });
    let detail = words.collect::<Vec<_>>().join(" ");
    if detail.starts_with(named) || named.is_empty() { detail } else { format!("{named}: {detail}") }
}

/// What to type next, where the controller can only name its own paths.
fn next(problem: &Problem) -> Option<String> {
    let words = match problem.code.as_str() {
        "no_token" | "token_expired" | "token_revoked" | "bad_token" | "bad_api_key" | "bad_nonce"
        | "bad_refresh_token" => "run: selion login --controller URL".to_owned(),
        "price_above_max" => match &problem.nearest {
            Some(near) => format!("raise --max-rate to at least {}", show_money(near.need.max(near.have))),
            None => "raise --max-rate; `selion offers` shows the prices".to_owned(),
        },
        "no_matching_slice" | "class_not_allowed" | "sandbox_not_allowed" | "too_few_gpus" | "box_too_weak" | "pool_full"
        | "gang_incomplete" | "waits_for_stop" => in_the_way(problem),
        "too_many_leases" => "release leases that wait: `selion lease list`; leases that are over count for a day".to_owned(),
        "pool_at_limit" => "try again later, or ask the pool's operator".to_owned(),
        "free_use_spent" => {
            "wait some hours, or deposit more: `selion account deposit AMOUNT --wait`; what runs is billed and does not count"
                .to_owned()
        }
        "too_long" => "extend by less, or ask for another lease that goes on where this one ends".to_owned(),
        "money_leaves" => {
            "`selion account thaw 0` or `selion account deposit AMOUNT --wait` lets it run on; or extend by less".to_owned()
        }
        "booked_then" => "extend by less, to an end before the booked time; or ask for another lease".to_owned(),
        "no_seat" => "add --wait 10m to wait for a seat; `selion licence list` shows those that are taken".to_owned(),
        "no_licence" => "`selion licence list` shows what the account holds; its issuer sets seats on chain".to_owned(),
        "too_far" => "raise --max-latency, or add --within node".to_owned(),
        "data_elsewhere" => "leave out --near-data: the datasets are then fetched to where there is room".to_owned(),
        "kept_for_booking" => {
            "add --wait 10m to wait, or a shorter --duration that ends before the booked time".to_owned()
        }
        "payment_required" => {
            let mend = match problem.means.map(|means| means.short) {
                Some(Resource::Deposit) => "`selion account deposit AMOUNT --wait`",
                Some(Resource::Grant) => "`selion account grant CAP --wait`",
                Some(Resource::GrantUntilMs) => "`selion account grant CAP --wait` for longer",
                _ => "`selion account deposit AMOUNT --wait` and `selion account grant CAP --wait`",
            };
            format!("run {mend}, or shorten --duration; an amount counts once its block is final")
        }
        "node_not_schedulable"
        | "node_paused"
        | "owner_reclaimed"
        | "offer_closed"
        | "spec_mismatch"
        | "stake_too_low"
        | "node_lost"
        | "stop_unconfirmed" => {
            "leave out --node, or add --wait 10m; `selion node list` shows which nodes can be leased".to_owned()
        }
        "unknown_dataset" => "run `selion data add PATH` first".to_owned(),
        _ => return None,
    };
    Some(words)
}

/// What to change where there is no place: waiting is named only where it helps.
fn in_the_way(problem: &Problem) -> String {
    if let Some(names) = problem.unmatched.first() {
        let flag = flag_of(names.constraint);
        return format!("give another {flag}, or leave it out; `selion offers` shows what there is");
    }
    let Some(blocking) = &problem.blocking else {
        return "`selion offers` shows what can be leased; ask for one of those".to_owned();
    };
    let waits = blocking.now && blocking.constraints == [Constraint::Room];
    if waits {
        return "add --wait 10m to wait for room, or ask for a smaller slice".to_owned();
    }
    let flags: Vec<&str> =
        blocking.constraints.iter().filter(|one| **one != Constraint::Room).copied().map(flag_of).collect();
    format!("change {}: as it is it does not fit, however long it waits", flags.join(" and "))
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let (exit, code, suggestion) = match &error {
            ClientError::Problem(problem) => {
                let mut failure =
                    Self::new(Exit::of_problem(problem), &problem.code, &problem.detail, &problem.suggestion);
                failure.0.errors.clone_from(&problem.errors);
                if let Some(detail) = in_flags(&problem.errors) {
                    // Said once, in the words of the command line; programs read the fields in `errors`.
                    failure.0.detail = detail;
                    failure.0.suggestion =
                        "correct what is named; `selion help COMMAND` shows what it takes".to_owned();
                }
                failure.0.nearest.clone_from(&problem.nearest);
                failure.0.blocking.clone_from(&problem.blocking);
                failure.0.unmatched.clone_from(&problem.unmatched);
                failure.0.means = problem.means;
                failure.0.trace_id.clone_from(&problem.trace_id);
                if let Some(words) = next(problem) {
                    failure.0.suggestion = words;
                }
                return failure;
            }
            ClientError::Unreachable { url, why, remedy } => {
                let detail = format!("{url} cannot be reached: {why}");
                return Self::new(Exit::Server, "unreachable", detail, remedy);
            }
            ClientError::Promise { .. } => {
                (Exit::Server, "promise_broken", "`selion lease list` shows whether a lease was made")
            }
            ClientError::Sealing { .. } => {
                (Exit::Server, "not_sealed", "release the lease and ask again; tell the pool's operator if it goes on")
            }
            ClientError::Protocol { .. } => (Exit::Server, "protocol", "check the controller's URL and release"),
            ClientError::BadUrl { .. } => (Exit::Usage, "bad_url", "give http://HOST[:PORT] or https://HOST[:PORT]"),
            ClientError::NoLogin => (Exit::Auth, "no_login", "run: selion login --controller URL"),
            ClientError::Wallet(_) => (Exit::Auth, "wallet", "check the key file that the profile names"),
            ClientError::Kept(_) => (Exit::Failure, "login_not_kept", "check the profile's folder, then log in again"),
            ClientError::Random(_) => (Exit::Failure, "random", "check /dev/urandom"),
            ClientError::File { .. } => (Exit::Failure, "file", "check the path and who may read it"),
        };
        Self::new(exit, code, &error, suggestion)
    }
}

/// A contract said no: in words where it is an error that we know.
fn contract_refused(reason: &str) -> Failure {
    let (detail, suggestion) = match reverted::words(reason) {
        Some(words) => (words.detail, words.suggestion),
        None => (reason.to_owned(), "the contract's reason says what to change"),
    };
    Failure::new(Exit::Conflict, "contract_refused", format!("the pool's contract refused: {detail}"), suggestion)
}

impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Self {
        const NODE: &str = "check --chain-rpc, and that the chain's node runs";
        let (exit, code, suggestion) = match &error {
            RpcError::BadUrl { .. } => (Exit::Usage, "bad_chain_url", NODE),
            RpcError::Reverted { reason, .. } => return contract_refused(reason),
            _ => (Exit::Server, "chain_unreachable", NODE),
        };
        Self::new(exit, code, chain(&error), suggestion)
    }
}

impl From<SignerError> for Failure {
    fn from(error: SignerError) -> Self {
        let suggestion = "name a file with 64 hex digits that only you can read, or a path where one can be made";
        Self::new(Exit::Usage, "key_file", chain(&error), suggestion)
    }
}

impl From<TxError> for Failure {
    fn from(error: TxError) -> Self {
        let (exit, code, suggestion) = match error {
            TxError::Rpc(error) => return error.into(),
            TxError::Signer(error) => return error.into(),
            TxError::Reverted { ref reason, .. } => return contract_refused(reason),
            TxError::Late { .. } => (Exit::Timeout, "transaction_late", "look for its receipt before sending again"),
            TxError::NoGas { .. } | TxError::NoGift { .. } => {
                (Exit::Conflict, "no_gas", "send the account some of the chain's coin")
            }
            #[expect(unreachable_patterns, reason = "the enum may grow")]
            _ => (Exit::Server, "transaction", "check the chain's node"),
        };
        Self::new(exit, code, chain(&error), suggestion)
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Rpc(error) => error.into(),
            PoolError::Tx(error) => error.into(),
            PoolError::Signer(error) => error.into(),
            PoolError::NoPool { .. } => Self::new(
                Exit::NotFound,
                "no_pool",
                &error,
                "check --pool and --chain-rpc; `selion pool create` makes one",
            ),
            other => Self::new(Exit::Server, "contract", chain(&other), "check that this release matches the pool's"),
        }
    }
}

impl From<selion_dataplane::StoreError> for Failure {
    fn from(error: selion_dataplane::StoreError) -> Self {
        let suggestion = "see what the message names, then run the same command again: nothing is lost";
        Self::new(Exit::Failure, "content", chain(&error), suggestion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is to be typed next after a refusal with these more fields.
    fn suggested(code: &str, more: serde_json::Value) -> String {
        let mut problem = serde_json::json!({
            "type": "", "title": "", "status": 409, "detail": "", "code": code, "retryable": true, "suggestion": "",
        });
        for (name, value) in more.as_object().unwrap() {
            problem[name] = value.clone();
        }
        let problem: Problem = serde_json::from_value(problem).unwrap();
        Failure::from(ClientError::Problem(Box::new(problem))).body().suggestion.clone()
    }

    #[test]
    fn waiting_is_suggested_only_where_it_helps_and_else_the_flag_that_is_in_the_way() {
        let blocking = |now: bool, constraints: &[&str]| serde_json::json!({ "blocking": { "now": now, "constraints": constraints } });
        assert!(suggested("pool_full", blocking(true, &["room"])).contains("--wait 10m"));
        let never = suggested("gang_incomplete", blocking(false, &["cpu"]));
        assert!(never.contains("change --cpu") && !never.contains("--wait 10m"), "{never}");
        let mars =
            serde_json::json!({ "unmatched": [{ "constraint": "regions", "asked": ["mars"], "there": ["eu"] }] });
        assert!(suggested("no_matching_slice", mars).contains("another --region"));
    }

    #[test]
    fn who_cannot_pay_is_told_the_command_that_mends_what_is_short() {
        let short = |short: &str| {
            let means = serde_json::json!({ "short": short, "deposit": "5", "grant": "0", "grant_until_ms": 0 });
            suggested("payment_required", serde_json::json!({ "means": means }))
        };
        assert!(short("deposit").contains("account deposit") && !short("deposit").contains("grant"));
        assert!(short("grant").contains("account grant") && !short("grant").contains("deposit"));
    }

    #[test]
    fn the_json_of_an_error_is_a_contract() {
        let failure = Failure::usage("`4hours` is not a duration", "write 90s, 15m, 4h or 2d");
        let json = serde_json::to_string(&serde_json::json!({ "error": failure.body() })).unwrap();
        let golden = r#"{"error":{"code":"usage","detail":"`4hours` is not a duration","suggestion":"write 90s, 15m, 4h or 2d"}}"#;
        assert_eq!(json, golden);
        assert_eq!(failure.body().exit, 2);
    }

    #[test]
    fn a_refusal_says_which_flag_to_change_in_our_units() {
        let problem: Problem = serde_json::from_value(serde_json::json!({
            "type": "", "title": "", "status": 409, "detail": "too dear", "code": "price_above_max",
            "retryable": false, "suggestion": "raise max_rate to at least `nearest.need`",
            "nearest": { "node": format!("0x{}", "01".repeat(20)), "gpu": null, "reason": "price_above_max",
                         "resource": "rate", "need": 396_250, "have": 100_000 },
        }))
        .unwrap();
        let failure = Failure::from(ClientError::Problem(Box::new(problem)));
        assert_eq!(failure.body().suggestion, "raise --max-rate to at least 0.39625");
        assert_eq!((failure.body().exit, failure.body().code.as_str()), (6, "price_above_max"));
        let near = failure.body().nearest.as_ref().map(crate::output::nearest).unwrap();
        assert!(near.ends_with("asks 0.39625 an hour, the limit is 0.10"), "{near}");
    }

    #[test]
    fn faults_of_fields_are_told_once_and_as_flags() {
        let error = |pointer: &str, detail: &str| FieldError {
            pointer: pointer.to_owned(),
            code: "bad_value".to_owned(),
            detail: detail.to_owned(),
        };
        let told = in_flags(&[
            error("/duration_ms", "duration_ms is 1 to 2592000000 (30 days)"),
            error("/members/0/gpus", "only whole GPUs go together in one member"),
            error("/min_nodes", "min_nodes is at most min_members: the other members may get no place"),
            error("/command", "command names at least a program"),
        ]);
        assert_eq!(
            told.as_deref(),
            Some(
                "--duration is 1 to 2592000000 (30 days); --gpus: only whole GPUs go together in one member; \
                 --min-nodes is at most --min-count: the other members may get no place; \
                 the command: command names at least a program"
            )
        );
        assert_eq!(in_flags(&[]), None);
    }

    #[test]
    fn a_silent_failure_carries_the_remote_code_only() {
        let failure = Failure::remote(42);
        assert!(failure.is_silent());
        assert_eq!(failure.body().exit, 42);
    }
}
