//! Output for people: one locked standard output, with colours only on a terminal that supports
//! them.

use std::{
    env,
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
};

/// A colour or weight; the numbers are SGR parameters (ECMA-48 section 8.3.117).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Warn,
    Bad,
}

/// `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Colour {
    Auto,
    Always,
    Never,
}

/// Standard output.
#[derive(Debug)]
pub(super) struct Out {
    colour: bool,
}

impl Out {
    /// Colours as requested. `auto` means only on a terminal, and not if `NO_COLOR` is set.
    pub(super) fn new(colour: Colour) -> Self {
        let wanted = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let able = env::var_os("TERM").is_none_or(|term| term != "dumb");
        let colour = match colour {
            Colour::Auto => wanted && able && io::stdout().is_terminal(),
            Colour::Always => true,
            Colour::Never => false,
        };
        Self { colour }
    }

    /// Writes a line.
    pub(super) fn line(&self, text: impl Display) -> io::Result<()> {
        writeln!(io::stdout().lock(), "{text}")
    }

    /// Writes raw bytes.
    pub(super) fn raw(&self, bytes: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()
    }

    /// Writes JSON, indented.
    pub(super) fn json(&self, value: &serde_json::Value) -> io::Result<()> {
        self.line(format_args!("{value:#}"))
    }

    /// `text` in `style`, if this output has colours.
    pub(super) fn paint(&self, style: Style, text: impl Display) -> String {
        let code = match style {
            _ if !self.colour => return text.to_string(),
            Style::Plain => return text.to_string(),
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Good => "32",
            Style::Warn => "33",
            Style::Bad => "31",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}
