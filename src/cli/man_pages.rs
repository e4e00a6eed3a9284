//! `tidegate completions` and `tidegate man`. Both are generated from the definition of the command
//! line.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
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
    Ok(Outcome::Success)
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tidegate man | man -l -
  tidegate man --dir /usr/local/share/man/man1")]
pub(super) struct Man {
    /// Write the pages of all commands to this folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn man(args: &Man, out: &Out) -> anyhow::Result<Outcome> {
    let command = Args::command();
    if let Some(dir) = &args.dir {
        fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(command, dir))
            .with_context(|| format!("{} cannot be written", dir.display()))?;
        return Ok(Outcome::Success);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    out.raw(&page)?;
    Ok(Outcome::Success)
}
