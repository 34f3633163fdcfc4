//! The one binary: joins the parts of Selion, and holds no rules of its own.

mod args;
mod change;
mod command;
mod consent;
mod dev;
mod exit;
mod failure;
mod layers;
mod logged;
mod output;
mod profile;
mod reverted;
mod serving;
mod session;
mod slice;
mod stop;
mod unit;
mod up;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Cli, Command};
use exit::Exit;
use failure::{Done, Failure};
use output::{Format, Output};

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    // The agent's sandbox enters namespaces, which a process with threads cannot.
    if words.get(1).is_some_and(|word| word == selion_agent::SANDBOX_COMMAND) {
        selion_agent::sandbox_main();
    }
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => return misuse(&words, &error),
    };
    let out = Output::new(cli.format());
    let on_stdout = !cli.command.streams();
    // `run` keeps small codes for the remote command, also where it never came so far.
    let own_code = matches!(cli.command, Command::Run(_));
    match start(out, cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            out.failure(&failure, on_stdout);
            let ours = own_code && !failure.is_silent();
            ExitCode::from(if ours { Exit::RunFailed.code() } else { failure.body().exit })
        }
    }
}

fn start(out: Output, cli: Cli) -> Done {
    if let Some(parent) = cli.parent {
        stop::with_parent(parent)?;
    }
    args::log(cli.verbose);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Failure::new(Exit::Failure, "runtime", error, "check the limits of threads and open files (ulimit -a)")
    })?;
    // On this thread: a child of `up` is tied to the thread that starts it.
    let done = runtime.block_on(dispatch(out, cli.command));
    // A question to a name server that never comes back must not hold the end up.
    runtime.shutdown_background();
    done
}

async fn dispatch(out: Output, command: Command) -> Done {
    match command {
        Command::Demo(args) => command::demo::main(out, args).await,
        Command::Up(args) => up::main(out, args).await,
        Command::Login(args) => command::login::main(out, args).await,
        Command::Logout(args) => command::login::logout(out, args).await,
        Command::Approve(args) => command::login::approve(out, args).await,
        Command::Key { command } => command::key::main(out, command).await,
        Command::Whoami => command::login::whoami(out).await,
        Command::Account { command } => command::account::main(out, command).await,
        Command::Offers(args) => command::offers::main(out, args).await,
        Command::Lease { command } => command::lease::main(out, command).await,
        Command::Run(args) => command::run::main(out, *args).await,
        Command::Licence { command } => command::licence::main(out, command).await,
        Command::Data { command } => command::data::main(out, command).await,
        Command::Image { command } => command::image::main(out, command),
        Command::Node { command } => command::node::main(out, command).await,
        Command::Shares => command::shares::main(out).await,
        Command::Registry => command::registry::main(out).await,
        Command::Audit(args) => command::audit::main(out, args).await,
        Command::Simulate { command } => command::simulate::main(out, command).await,
        Command::Why(args) => command::why::main(out, args).await,
        Command::Agent { command } => command::agent::main(out, command).await,
        Command::Controller(args) => command::controller::main(out, args).await,
        Command::Chain(args) => command::chain::main(out, args).await,
        Command::Authority { command } => command::authority::main(out, command).await,
        Command::Evidence { command } => command::evidence::main(out, command).await,
        Command::Pool { command } => command::pool::main(out, command).await,
    }
}

/// A command line that cannot be read: help and version are no faults, the rest is in the asked form.
fn misuse(words: &[OsString], error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Nothing to do about a stdout that is gone.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    // `run` keeps small codes for the remote command.
    let exit = if args::asks_to_run(words) { Exit::RunFailed } else { Exit::Usage };
    if !args::wants_json(words) {
        let _ = error.print();
        return ExitCode::from(exit.code());
    }
    let text = error.render().to_string();
    let detail = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let failure = Failure::usage(detail, "`selion help COMMAND` shows what it takes");
    Output::new(Format::Json).failure(&failure, exit == Exit::Usage);
    ExitCode::from(exit.code())
}
