//! `tidegate run`: rule file, log, runtime, proxy.

use std::{panic, sync::Arc};

use anyhow::Context as _;

use super::{Global, Outcome, log};
use crate::{
    app::{App, Ended},
    event::{Events, clean},
    metrics::Metrics,
    shutdown,
};

pub(super) fn run(global: &Global) -> anyhow::Result<Outcome> {
    let loaded = global.load()?;
    let metrics = Metrics::new();
    let _flush = log::start(&loaded.settings.log, &metrics)?;
    let events = Events::new(Arc::clone(&metrics));
    tell_panics();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let ended = runtime.block_on(async {
        let app = App::build(loaded, global.overrides(), metrics, events).await?;
        app.serve(shutdown::signals()?).await
    });
    // After a drain nothing is left to wait for; at a second signal nothing is waited for.
    runtime.shutdown_background();
    match ended? {
        Ended::Drained => Ok(Outcome::Fine),
        Ended::AtOnce => Ok(Outcome::NotFine),
    }
}

/// Says where a panic was and what it said, as a line of the log; the connection that it ends is told as an event.
fn tell_panics() {
    panic::set_hook(Box::new(|info| tracing::error!("{}", clean(&info.to_string()))));
}
