//! `tidegate completions` and `tidegate man`: made from the command line's own definition, so they cannot be stale.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Args, Outcome, out::Out};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tidegate completions bash > /etc/bash_completion.d/tidegate
  tidegate completions zsh > \"${fpath[1]}/_tidegate\"
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish")]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

pub(super) fn completions(args: &Completions, out: &Out) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "tidegate", &mut script);
    out.raw(&script)?;
    Ok(Outcome::Fine)
}

pub(super) fn man(out: &Out) -> anyhow::Result<Outcome> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Args::command()).render(&mut page)?;
    out.raw(&page)?;
    Ok(Outcome::Fine)
}
