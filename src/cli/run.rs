//! `tidegate run`: rule file, log, runtime, proxy.

use std::sync::Arc;

use anyhow::Context as _;

use super::{Global, Outcome, descriptors, log};
use crate::{
    app::{App, Ended},
    event::{Event, Events, watch_panics},
    metrics::Metrics,
    shutdown,
};

pub(super) fn run(global: &Global) -> anyhow::Result<Outcome> {
    let loaded = global.load()?;
    let metrics = Metrics::new();
    let (log, set_log_level) = log::start(&loaded.settings.log, &metrics)?;
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
    // After a drain nothing is left to wait for; at a second signal nothing is waited for.
    runtime.shutdown_background();
    match ended? {
        Ended::Drained => Ok(Outcome::Fine),
        Ended::AtOnce => Ok(Outcome::NotFine),
    }
}
