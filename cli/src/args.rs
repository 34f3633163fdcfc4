//! The command line.

use std::ffi::OsString;

use tracing_subscriber::EnvFilter;

use crate::command::{
    account, agent, audit, authority, chain, controller, data, demo, evidence, image, key, lease, licence, login, node,
    offers, pool, run, simulate, why,
};
use crate::output::Format;
use crate::up;

/// Rent slices of pooled GPUs, offer your own, audit both.
///
/// Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 not logged in or not allowed, 5 conflict, 6 no capacity,
/// 7 timeout, 8 rate limited, 9 server or network, 130 interrupted. `run` ends with the remote command's code; its
/// own failures are 255.
#[derive(Debug, clap::Parser)]
#[command(name = "selion", version, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// How results are printed
    #[arg(long, short, global = true, value_enum, default_value_t, env = "SELION_OUTPUT", hide_env = true)]
    output: Format,
    /// More of the log on stderr: -v, -vv; RUST_LOG wins
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Ends when the process of this id, which started this one, ends
    #[arg(long, global = true, hide = true, value_name = "PID")]
    pub parent: Option<i32>,
}

/// Every command.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Tells the whole story of a pool in one run, on this machine alone
    Demo(demo::Args),
    /// Starts a whole pool on this machine: chain, controller, one agent, and a renter's profile
    Up(up::Args),
    /// Logs in at a pool and keeps a profile of it
    Login(login::Args),
    /// Ends the login
    Logout(login::LogoutArgs),
    /// Shows whom the pool takes us for
    Whoami,
    /// Lets a device in that shows a code
    Approve(login::ApproveArgs),
    /// Makes, lists and revokes API keys
    Key {
        /// What to do.
        #[command(subcommand)]
        command: key::Command,
    },
    /// Shows and moves the renter's money
    Account {
        /// What to do.
        #[command(subcommand)]
        command: account::Command,
    },
    /// Shows what can be leased now, and its price
    Offers(offers::Args),
    /// Leases slices, runs a command on them, and ends with its exit code
    Run(Box<run::Args>),
    /// Asks for, watches and gives back slices
    Lease {
        /// What to do.
        #[command(subcommand)]
        command: lease::Command,
    },
    /// Shows licences with seats
    Licence {
        /// What to do.
        #[command(subcommand)]
        command: licence::Command,
    },
    /// Brings data to the pool, and results back
    Data {
        /// What to do.
        #[command(subcommand)]
        command: data::Command,
    },
    /// Makes container images without a container engine
    Image {
        /// What to do.
        #[command(subcommand)]
        command: image::Command,
    },
    /// Shows the pool's nodes; their owner pauses and resumes them
    Node {
        /// What to do.
        #[command(subcommand)]
        command: node::Command,
    },
    /// Shows every account's part of the pool, in order of service
    Shares,
    /// Shows components and providers, as the log knows them from the chain
    Registry,
    /// Checks a pool from the chain and its log alone
    Audit(audit::Args),
    /// Tries the market out: its engine on traces and made work, or a real pool's log with something changed
    Simulate {
        /// What to try.
        #[command(subcommand)]
        command: simulate::Command,
    },
    /// Says why a lease waited, and what would have happened otherwise, by replay of the log
    Why(why::Args),
    /// Offers this machine's GPUs in a pool
    Agent {
        /// What to do.
        #[command(subcommand)]
        command: agent::Command,
    },
    /// Runs a controller
    Controller(controller::Args),
    /// Runs a development chain
    Chain(chain::Args),
    /// The authority of a pool: its bond, and who takes over
    Authority {
        /// What to do.
        #[command(subcommand)]
        command: authority::Command,
    },
    /// Brings evidence against an authority before the pool's court
    Evidence {
        /// What to do.
        #[command(subcommand)]
        command: evidence::Command,
    },
    /// Makes pools
    Pool {
        /// What to do.
        #[command(subcommand)]
        command: pool::Command,
    },
}

impl Cli {
    /// The form of results.
    pub fn format(&self) -> Format {
        match &self.command {
            Command::Agent { command } if command.json() => Format::Json,
            Command::Audit(args) if args.json => Format::Json,
            Command::Demo(args) if args.json => Format::Json,
            Command::Simulate { command } if command.json() => Format::Json,
            Command::Why(args) if args.json => Format::Json,
            _ => self.output,
        }
    }
}

impl Command {
    /// Whether stdout carries a stream, in which an error of ours has no place.
    pub fn streams(&self) -> bool {
        match self {
            Self::Run(_) => true,
            Self::Lease { command } => command.streams(),
            _ => false,
        }
    }
}

/// Whether a command line that cannot be read asks for JSON.
pub fn wants_json(words: &[OsString]) -> bool {
    // What stands behind `--` is the remote command's.
    let ours: Vec<&str> = words.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--").collect();
    let joined = ours.iter().any(|word| ["--output=json", "-ojson", "-o=json"].contains(word));
    let apart = ours.windows(2).any(|pair| ["--output", "-o"].contains(&pair[0]) && pair[1] == "json");
    joined || apart || std::env::var_os("SELION_OUTPUT").is_some_and(|value| value == "json")
}

/// Whether a command line that cannot be read asks for `run`: the first word that is neither a flag of every command nor
/// the value of one.
pub fn asks_to_run(words: &[OsString]) -> bool {
    const WITH_VALUE: [&str; 3] = ["--output", "-o", "--parent"];
    let mut words = words.iter().skip(1).filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(&word) {
            words.next();
        } else if !word.starts_with('-') {
            return word == "run";
        }
    }
    false
}

/// The log goes to stderr: warnings, with `-v` what happens, with `-vv` the details.
pub fn log(verbose: u8) {
    let default = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    // Only a second call in one process could fail.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).try_init();
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    fn parse(line: &str) -> Result<Cli, String> {
        Cli::try_parse_from(line.split(' ')).map_err(|error| error.to_string())
    }

    #[test]
    fn the_lines_of_the_documentation_are_read() {
        for line in [
            "selion run --slice 1g.10gb -- sh -c ls",
            "selion run --slice share:250:4GiB --count 3 --min-nodes 2 --max-rate 0.80 --duration 4h --wait 10m \
             --data bafy:in --env A=b --keep -- python train.py --epochs 3",
            "selion lease create --slice whole -- true",
            "selion run --slice WHOLE --duration 1h30m --wait 1.5h --ram 16GB -- true",
            "selion run --slice mig:1g.10gb -- true",
            "selion lease events lease-12-0 --no-follow",
            "selion lease create --slice whole --dry-run -- true",
            "selion run --slice whole --licence 0x1111111111111111111111111111111111111111/solver -- ls",
            "selion licence list -o json",
            "selion run --dry-run --slice 1g.10gb -- sh -c ls",
            "selion lease wait lease-12-0 --state ended --timeout 90s --output json",
            "selion login --controller http://h:1 --device",
            "selion login --controller http://h:1 --api-key-file -",
            "selion logout --all",
            "selion approve BCDF-GHJK --deny",
            "selion key create --scope lease:read --scope data:read --name ci --expires 30d",
            "selion key revoke 3",
            "selion account deposit 12.50 --dev",
            "selion account grant 5 --until 30d",
            "selion account revoke",
            "selion account revoke 0x0101010101010101010101010101010101010101 --yes --wait",
            "selion account own-key 0x0101010101010101010101010101010101010101 --until 2d --deposit 5",
            "selion account keys -o json",
            "selion agent show --state-dir d",
            "selion agent close-offer --node 0x0101010101010101010101010101010101010101",
            "selion agent retire --yes --relay",
            "selion agent unbond 2.50 --controller http://h:1 --chain-rpc http://h:2 --state-dir d",
            "selion agent withdraw-stake --config agent.toml",
            "selion agent set-payout 0x0101010101010101010101010101010101010101 --key-file cold.key",
            "selion agent leave --controller http://h:1 --chain-rpc http://h:2 --state-dir d",
            "selion -o json offers",
            "selion audit --rpc http://h:1 --pool 0x0101010101010101010101010101010101010101 --log f --json",
            "selion simulate philly --jobs j.csv --nodes 50 --gpus-per-node 8 --first 2000 --policy hold=5s --json",
            "selion simulate philly --jobs j.csv --group-by org,user --org lab=a,b --quotas 80% --policy quota.lab=40%",
            "selion simulate log --from-log log.jsonl --change price=+10% --change hold=5s --all --check",
            "selion why lease-12-0 --at 2026-11-20T14:03:00Z --if max_rate=+10% --if wait=2h --log log.jsonl --json",
            "selion why lease-12-0 --if price.A100=-20% --if policy.bookings=false --if quota.lab/vision=25%",
            "selion simulate openb --nodes n.csv --pods a.csv --pods b.csv --policy best-fit --seeds 2 --json",
            "selion simulate churn --nodes n.csv --pods a.csv --load 0.9,1.0,1.1,1.3 --lives trace --discipline queue \
             --bookings --policy fgd --seeds 3 --json",
            "selion simulate mig --mix large-heavy --load 1.3",
            "selion simulate load --nodes 19408 --gpus 99392 --classes 91 --policy fill --gang 4 --json",
            "selion simulate load --case kai --policy fgd --json",
            "selion pool create --chain-rpc http://h:1 --key-file k --finality-depth finalized --thaw 3d",
        ] {
            let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(parse(&line).is_ok(), "{line}: {:?}", parse(&line).err());
        }
    }

    #[test]
    fn a_wrong_value_says_what_is_right() {
        let table = [
            ("selion run --slice half -- ls", "write 1g.10gb, whole or share:250:4GiB"),
            (
                "selion run --slice whole --duration 4hours -- ls",
                "`4hours` is not a duration; write 90s, 15m, 1h30m or 2d",
            ),
            ("selion run --slice whole --max-rate -1 -- ls", "`-1` is below zero, which is not a rate"),
            ("selion run --slice whole --duration -5m -- ls", "`-5m` is below zero, which is not a duration"),
            ("selion run --slice whole --cpu -1 -- ls", "`-1` is not a number of cores; write 2 or 0.5"),
            ("selion run --slice whole --count -1 -- ls", "-1 is not in 1..=64"),
            ("selion run --slice whole --net fast -- ls", "`fast` is not a whole number"),
            ("selion account thaw -5", "`-5` is below zero, which is not an amount of tokens"),
            ("selion lease list --limit 0", "0 is not in 1.."),
            ("selion run --slice whole --licence solver -- ls", "a licence as ISSUER/PRODUCT"),
            ("selion run --slice whole", "COMMAND"),
            ("selion why lease-1-0 --at 14:03", "`14:03` is not a time"),
            ("selion why lease-1-0 --if mood=good", "write max_rate=0.80, max_rate=+10%"),
            ("selion simulate log --from-log f", "--change"),
            ("selion simulate log --change price=10", "`price=10` is not a change; write price=+10%"),
            ("selion simulate philly", "--jobs"),
            ("selion key create --scope login", "`login` is not a scope of API keys; use lease:read"),
            ("selion key create --name ci", "--scope"),
            ("selion login --controller http://h:1 --device --key-file k", "cannot be used with"),
            ("selion lease show lease-12", "neither the id of a lease, lease-NUMBER-NUMBER, nor a name of one"),
            ("selion account deposit 1e3", "is not an amount of tokens"),
            ("selion agent unbond -1", "`-1` is below zero, which is not an amount of tokens"),
            ("selion agent set-payout 0x12", "a 20-byte address as 0x and 40 hex digits"),
            ("selion agent set-payout", "ADDRESS"),
            ("selion simulate openb --nodes n --pods p --policy best", "use market, fill, fgd, best-fit or random"),
            ("selion simulate mig --mix odd", "use uniform, large-heavy or small-heavy"),
            ("selion rnu", "unrecognized subcommand"),
        ];
        for (line, words) in table {
            let error = parse(line).expect_err(line);
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn run_is_found_behind_the_flags_of_every_command() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for line in ["selion run --bad", "selion -v run", "selion -o json run --bad", "selion --output=json -vv run"] {
            assert!(asks_to_run(&words(line)), "{line}");
        }
        for line in ["selion", "selion -o run", "selion lease run", "selion -v lease show run"] {
            assert!(!asks_to_run(&words(line)), "{line}");
        }
    }

    #[test]
    fn the_form_of_an_error_is_found_in_a_line_that_cannot_be_read() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(wants_json(&words("selion rnu --output json")));
        assert!(wants_json(&words("selion -ojson rnu")));
        assert!(!wants_json(&words("selion rnu")));
        assert!(!wants_json(&words("selion run -- tool --output json")));
    }
}
