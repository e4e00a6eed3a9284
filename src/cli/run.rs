//! `tidegate run`: loads the rule file and starts the log, the runtime and the proxy.

use std::{path::PathBuf, sync::Arc};

use anyhow::Context as _;

use super::{Global, Outcome, descriptors, log};
use crate::{
    cli::app::{App, Ended, SetLogLevel},
    observability::{
        event::{Event, Events, watch_panics},
        metrics::Metrics,
    },
    runtime::shutdown,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The rule file, as with `--config`
    file: Option<PathBuf>,
}

impl Args {
    /// The options, with this file as the rule file.
    pub(super) fn over(self, global: Global) -> Global {
        Global { config: self.file.or(global.config), ..global }
    }
}

pub(super) fn run(global: &Global) -> anyhow::Result<Outcome> {
    let mut loaded = global.load()?;
    let verbose = match global.verbose {
        0 => None,
        1 => Some("debug"),
        _ => Some("trace"),
    };
    if let Some(level) = verbose {
        loaded.settings.log.level = level.to_owned();
    }
    let metrics = Metrics::new();
    let (log, set_log_level) = log::start(&loaded.settings.log, &metrics)?;
    // A level from the command line stays in force after a reload.
    let set_log_level: SetLogLevel =
        if verbose.is_some() { Box::new(|_| Ok(())) } else { set_log_level };
    let events = Events::new(Arc::clone(&metrics));
    watch_panics(Arc::clone(&metrics));
    let connections = loaded.settings.limits.connections;
    if let Some(what) = descriptors::too_few(descriptors::raise(), connections) {
        events.emit(Event::Warned { what });
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let ended = runtime.block_on(async {
        let app = App::build(loaded, global.overrides(), metrics, events, set_log_level).await?;
        log.reopen_on_hangup()?;
        app.serve(shutdown::signals()?).await
    });
    // After a drain nothing is left to wait for. After a second signal nothing may be waited for.
    runtime.shutdown_background();
    match ended? {
        Ended::Drained => Ok(Outcome::Success),
        Ended::AtOnce => Ok(Outcome::Negative),
    }
}
