//! What is asked of a person before something is done that is hard to take back.

use std::io::{IsTerminal, Write};

use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::output::Output;

/// Asks the person at the terminal. Nobody is asked where `yes` was given, or where programs read or type.
///
/// # Errors
///
/// `not_agreed` for every answer but yes.
pub fn agreed(out: Output, yes: bool, question: &str) -> Done {
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if yes || out.is_json() || !terminal || confirmed(question)? {
        return Ok(());
    }
    Err(Failure::new(Exit::Failure, "not_agreed", "nothing was sent", "answer y, or give --yes"))
}

fn confirmed(question: &str) -> Done<bool> {
    let failed = |error: std::io::Error| Failure::new(Exit::Failure, "terminal", error, "give --yes");
    let mut stdout = std::io::stdout();
    write!(stdout, "{question} [y/N] ").and_then(|()| stdout.flush()).map_err(failed)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(failed)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
