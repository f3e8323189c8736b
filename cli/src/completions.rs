//! `nagaya completions`: completion scripts for shells.

use clap_complete::{Shell, generate};
use nagaya_server::Failure;

const EXAMPLES: &str = "\
Examples:
  nagaya completions bash > ~/.local/share/bash-completion/completions/nagaya
  nagaya completions zsh > ~/.zfunc/_nagaya
  nagaya completions fish > ~/.config/fish/completions/nagaya.fish";

/// Print a completion script for a shell
///
/// With it the shell completes nagaya's commands and options. See nagaya-completions(1).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// The shell: bash, zsh or fish
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(["bash", "zsh", "fish"]),
          hide_possible_values = true)]
    shell: String,
}

/// Prints the script for these commands and options.
pub fn completions(options: &Options, mut all: clap::Command) -> Result<i32, Failure> {
    let shell = match options.shell.as_str() {
        "bash" => Shell::Bash,
        "zsh" => Shell::Zsh,
        _ => Shell::Fish,
    };
    generate(shell, &mut all, "nagaya", &mut std::io::stdout());
    Ok(0)
}
