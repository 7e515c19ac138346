//! `offsetfs completions` and `offsetfs man`: what a shell and man(1) want to know of the command line, made from its definition.

use super::tree::output;
use super::{Cli, Exit, Failure, Outcome};
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use std::io::{self, Write};

/// Prints the completions for a shell.
pub(super) fn completions(shell: Shell) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "offsetfs", &mut text);
    print(&text)
}

/// Prints the manual page of the program, or of one of its commands, for man(1).
pub(super) fn man(command: Option<&str>) -> Outcome {
    let mut all = Cli::command();
    all.build();
    let page = match command {
        None => all,
        Some(name) => {
            let found = all.find_subcommand(name).filter(|command| !command.is_hide_set()).cloned();
            found.ok_or_else(|| Failure::new(Exit::Usage, format!("{name}: there is no such command")))?
        }
    };
    let mut text = Vec::new();
    Man::new(page).render(&mut text)?;
    print(&text)
}

fn print(text: &[u8]) -> Outcome {
    let mut out = io::stdout().lock();
    output(out.write_all(text).and_then(|()| out.flush()))?;
    Ok(Exit::Done)
}
