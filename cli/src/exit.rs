//! How the program ends: one enum, and the one table from a problem to it.

use selion_api::rest::Problem;

/// Exit codes. They are a contract with scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It did not work, for a reason that has no code of its own.
    Failure = 1,
    /// The command line, a file or a value is wrong.
    Usage = 2,
    /// There is no such thing.
    NotFound = 3,
    /// Not logged in, or not allowed.
    Auth = 4,
    /// The thing is not in a state for this.
    Conflict = 5,
    /// Nothing that fits is free, or not at this price.
    NoCapacity = 6,
    /// It took too long.
    Timeout = 7,
    /// Too many requests.
    RateLimited = 8,
    /// The controller or the chain failed, or cannot be reached.
    Server = 9,
    /// `run`: the command did its work, and not all of its outputs were kept.
    Outputs = 10,
    /// Stopped by Ctrl-C.
    Interrupted = 130,
    /// `run`: our own failure, told apart from the remote command's.
    RunFailed = 255,
}

/// Refusals that mean: what you ask for is not free now, or not for you.
const NO_CAPACITY: [&str; 17] = [
    "booked_then",
    "box_too_weak",
    "class_not_allowed",
    "data_elsewhere",
    "gang_incomplete",
    "kept_for_booking",
    "no_matching_slice",
    "no_seat",
    "node_not_schedulable",
    "node_paused",
    "owner_reclaimed",
    "pool_full",
    "price_above_max",
    "sandbox_not_allowed",
    "too_far",
    "too_few_gpus",
    "waits_for_stop",
];

impl Exit {
    /// The exit code of a problem document: by code where one says more than the status.
    pub fn of_problem(problem: &Problem) -> Self {
        if NO_CAPACITY.contains(&problem.code.as_str()) {
            return Self::NoCapacity;
        }
        match problem.status {
            401 | 403 => Self::Auth,
            400 if ["access_denied", "expired_token"].contains(&problem.code.as_str()) => Self::Auth,
            404 => Self::NotFound,
            408 | 504 => Self::Timeout,
            409 => Self::Conflict,
            422 if problem.code == "idempotency_mismatch" => Self::Conflict,
            429 => Self::RateLimited,
            500..=599 => Self::Server,
            400..=499 => Self::Usage,
            _ => Self::Failure,
        }
    }

    /// The number.
    pub fn code(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_problem_has_its_exit_code() {
        let table = [
            (400, "not_json", Exit::Usage),
            (401, "token_expired", Exit::Auth),
            (400, "access_denied", Exit::Auth),
            (403, "not_yours", Exit::Auth),
            (404, "not_found", Exit::NotFound),
            (408, "wait_timeout", Exit::Timeout),
            (409, "state_unreachable", Exit::Conflict),
            (409, "not_live", Exit::Conflict),
            (409, "payment_required", Exit::Conflict),
            (409, "pool_full", Exit::NoCapacity),
            (409, "price_above_max", Exit::NoCapacity),
            (409, "no_matching_slice", Exit::NoCapacity),
            (413, "too_large", Exit::Usage),
            (422, "bad_fields", Exit::Usage),
            (422, "idempotency_mismatch", Exit::Conflict),
            (429, "rate_limited", Exit::RateLimited),
            (500, "internal", Exit::Server),
            (503, "not_ready", Exit::Server),
            (504, "timeout", Exit::Timeout),
            (507, "store_full", Exit::Server),
        ];
        for (status, code, exit) in table {
            let problem = Problem {
                kind: String::new(),
                title: String::new(),
                status,
                detail: String::new(),
                code: code.to_owned(),
                errors: Vec::new(),
                retryable: false,
                suggestion: String::new(),
                nearest: None,
                blocking: None,
                unmatched: Vec::new(),
                means: None,
                trace_id: None,
            };
            assert_eq!(Exit::of_problem(&problem), exit, "{status} {code}");
        }
    }

    #[test]
    fn the_numbers_are_the_documented_ones() {
        use Exit as E;
        let all = [
            (E::Failure, 1),
            (E::Usage, 2),
            (E::NotFound, 3),
            (E::Auth, 4),
            (E::Conflict, 5),
            (E::NoCapacity, 6),
            (E::Timeout, 7),
            (E::RateLimited, 8),
            (E::Server, 9),
            (E::Outputs, 10),
            (E::Interrupted, 130),
            (E::RunFailed, 255),
        ];
        for (exit, number) in all {
            assert_eq!(exit.code(), number);
        }
    }
}
