//! The log: lines to standard error through a bounded queue and a thread of their own.
//!
//! A full disk or a pipe that nobody reads must not stop requests: a line that finds the queue full, or that cannot be
//! written, is dropped and counted (`tidegate_log_lines_dropped_total`).

use std::{
    io::{self, Write},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use prometheus_client::metrics::counter::Counter;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter, reload};

use crate::{
    app::SetLogLevel,
    metrics::Metrics,
    settings::{Log, LogFormat},
};

/// Lines waiting to be written: a burst of a second; at well under 1 KiB each, a few megabytes.
const QUEUE: usize = 4_096;
/// How long the end of the process waits for the last lines.
const FLUSH: Duration = Duration::from_secs(1);

enum Message {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// Flushes the log when dropped.
#[derive(Debug)]
pub(super) struct Flush(SyncSender<Message>);

impl Drop for Flush {
    fn drop(&mut self) {
        let (done, wait) = sync_channel(1);
        if self.0.try_send(Message::Flush(done)).is_ok() {
            // Late or never: the process ends either way.
            let _late = wait.recv_timeout(FLUSH).is_err();
        }
    }
}

/// Starts the log of the process; what is returned with it changes its level later.
///
/// # Errors
/// A filter that cannot be read, or a log that runs already.
pub(super) fn start(log: &Log, metrics: &Metrics) -> anyhow::Result<(Flush, SetLogLevel)> {
    let filter = filter(&log.level).map_err(anyhow::Error::msg)?;
    let (sender, lines) = sync_channel(QUEUE);
    let dropped = metrics.log_lines_dropped.clone();
    let queue = Queue { sender: sender.clone(), dropped: dropped.clone() };
    thread::Builder::new().name("log".to_owned()).spawn(move || write_lines(&lines, &dropped))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(queue);
    let (started, set_level): (_, SetLogLevel) = match log.format {
        LogFormat::Text => {
            let builder = builder.with_target(false).with_ansi(false).with_filter_reloading();
            let set_level = setter(builder.reload_handle());
            (builder.try_init(), set_level)
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_span_list(false);
            let builder = builder.with_filter_reloading();
            let set_level = setter(builder.reload_handle());
            (builder.try_init(), set_level)
        }
    };
    started.map_err(|error| anyhow::anyhow!("the log cannot be started: {error}"))?;
    Ok((Flush(sender), set_level))
}

fn filter(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(level).map_err(|error| {
        format!(
            "log.level `{level}` is no level (error, warn, info, debug, trace) and no filter: {error}"
        )
    })
}

fn setter<S: 'static>(handle: reload::Handle<EnvFilter, S>) -> SetLogLevel {
    Box::new(move |level| {
        handle.reload(filter(level)?).map_err(|error| format!("log.level: {error}"))
    })
}

fn write_lines(messages: &Receiver<Message>, dropped: &Counter) {
    while let Ok(message) = messages.recv() {
        match message {
            // Nowhere else to say that the log cannot be written.
            Message::Line(line) if io::stderr().write_all(&line).is_err() => drop(dropped.inc()),
            Message::Line(_) => {}
            Message::Flush(done) => drop(done.try_send(())),
        }
    }
}

struct Queue {
    sender: SyncSender<Message>,
    dropped: Counter,
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Write for &Queue {
    /// The subscriber hands over each line in one piece.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.sender.try_send(Message::Line(line.to_vec())).is_err() {
            self.dropped.inc();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
