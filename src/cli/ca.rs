//! `tidegate ca`: the certificate that clients of intercepting rules must trust.

use std::path::PathBuf;

use anyhow::Context as _;

use super::{Global, Outcome, out::Out};
use crate::rules::settings::Settings;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  curl --cacert \"$(tidegate ca path)\" https://shop.example/
  tidegate ca print > tidegate-ca.pem")]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print the path of the certificate
    Path,
    /// Print the certificate (PEM)
    Print,
}

pub(super) fn run(global: &Global, args: &Args, out: &Out) -> anyhow::Result<Outcome> {
    let path = certificate(&global.load()?.settings);
    match args.action {
        Action::Path => out.line(path.display())?,
        Action::Print => {
            let pem = std::fs::read(&path).with_context(|| {
                format!(
                    "{}: the CA is created when a proxy with an intercepting rule first starts",
                    path.display()
                )
            })?;
            out.raw(&pem)?;
        }
    }
    Ok(Outcome::Success)
}

/// The path of the certificate, whether or not it exists. It is absolute, because clients run in
/// other folders.
pub(super) fn certificate(settings: &Settings) -> PathBuf {
    let path = match &settings.ca {
        Some((certificate, _)) => certificate.clone(),
        None => settings.ca_dir.join("ca.pem"),
    };
    std::path::absolute(&path).unwrap_or(path)
}
