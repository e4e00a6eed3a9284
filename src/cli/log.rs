//! The log: lines go to standard error through a bounded queue and a thread of their own.
//!
//! A full disk or an unread pipe must not stop requests. If the queue is full or a line cannot be
//! written, the line is dropped and counted (`tidegate_log_lines_dropped_total`).

mod format;

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::PathBuf,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use prometheus_client::metrics::counter::Counter;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::{
    filter::Targets,
    fmt::{self, MakeWriter},
    layer::SubscriberExt as _,
    registry, reload,
    util::SubscriberInitExt as _,
};

use self::format::Form;
use crate::{
    cli::app::SetLogLevel,
    observability::{event::Access, metrics::Metrics},
    rules::settings::Log,
};

/// Lines waiting to be written: one second of a burst. At well under 1 KiB each, they take a few
/// megabytes.
const QUEUE: usize = 4_096;
/// How long the end of the process waits for the last lines.
const FLUSH: Duration = Duration::from_secs(1);

enum Message {
    Line(Vec<u8>),
    Access(Vec<u8>),
    Reopen,
    Flush(SyncSender<()>),
}

/// Flushes the log when dropped.
#[derive(Debug)]
pub(super) struct Flush(SyncSender<Message>);

impl Flush {
    /// Reopens the file of the access log on SIGHUP, for log rotation.
    ///
    /// # Errors
    /// The system refuses the handler. Needs a tokio runtime.
    pub(super) fn reopen_on_hangup(&self) -> io::Result<()> {
        let mut hang_up = signal(SignalKind::hangup())?;
        let lines = self.0.clone();
        tokio::spawn(async move {
            while hang_up.recv().await.is_some() {
                let lines = lines.clone();
                // A full queue must not block the runtime, and the signal must not be lost.
                tokio::task::spawn_blocking(move || lines.send(Message::Reopen)).await.ok();
            }
        });
        Ok(())
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        let (done, wait) = sync_channel(1);
        if self.0.try_send(Message::Flush(done)).is_ok() {
            // The process ends in any case.
            let _late = wait.recv_timeout(FLUSH).is_err();
        }
    }
}

/// Starts the log of the process. The returned function changes its level.
///
/// # Errors
/// An invalid filter, an access log that cannot be written, or a log that already runs.
pub(super) fn start(log: &Log, metrics: &Metrics) -> anyhow::Result<(Flush, SetLogLevel)> {
    let filter = filter(&log.level).map_err(anyhow::Error::msg)?;
    let access = log.access_file.clone().map(AccessFile::open).transpose()?;
    let (sender, messages) = sync_channel(QUEUE);
    let dropped = metrics.member.log_lines_dropped.clone();
    let queue =
        Queue { sender: sender.clone(), dropped: dropped.clone(), access: access.is_some() };
    let write = move || write_lines(&messages, access, &dropped);
    thread::Builder::new().name("log".to_owned()).spawn(write)?;
    let form = Form(log.format);
    let lines =
        fmt::layer().with_writer(queue).with_ansi(false).fmt_fields(form).event_format(form);
    let (filter, handle) = reload::Layer::new(filter);
    let log = registry().with(filter).with(lines);
    log.try_init().map_err(|error| anyhow::anyhow!("the log cannot be started: {error}"))?;
    Ok((Flush(sender), setter(handle)))
}

/// The filter for `level`. A bare level applies to Tidegate only; libraries log if a filter names
/// them (`info,hyper=debug`). `log.access` controls the access log, whatever the level.
fn filter(level: &str) -> Result<Targets, String> {
    let own = |part: &str| match part.trim() {
        named if named.contains('=') => named.to_owned(),
        level => format!("tidegate={level}"),
    };
    let mut parts: Vec<String> = level.split(',').map(own).collect();
    if level.trim() != "off" && !level.contains(Access::TARGET) {
        parts.push(format!("{}=info", Access::TARGET));
    }
    parts.join(",").parse().map_err(|error| {
        format!(
            "log.level `{level}` is neither a level (error, warn, info, debug, trace) nor a filter: {error}"
        )
    })
}

fn setter<S: 'static>(handle: reload::Handle<Targets, S>) -> SetLogLevel {
    Box::new(move |level| {
        handle.reload(filter(level)?).map_err(|error| format!("log.level: {error}"))
    })
}

/// The file of the access log.
struct AccessFile {
    path: PathBuf,
    file: File,
    /// Whether the last line could not be written.
    is_failing: bool,
}

impl AccessFile {
    fn open(path: PathBuf) -> anyhow::Result<Self> {
        let opened = OpenOptions::new().create(true).append(true).open(&path);
        let file = opened.with_context(|| {
            format!("log.access_file: {} cannot be opened for writing", path.display())
        })?;
        Ok(Self { path, file, is_failing: false })
    }

    /// Writes a line. The first of several errors in a row is reported.
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(line);
        let was_failing = std::mem::replace(&mut self.is_failing, written.is_err());
        if let Err(error) = &written
            && !was_failing
        {
            let path = self.path.display();
            let report = format!(
                "error: log.access_file: {path} cannot be written, its lines are lost: {error}\n"
            );
            io::stderr().write_all(report.as_bytes()).ok();
        }
        written
    }
}

fn write_lines(messages: &Receiver<Message>, mut access: Option<AccessFile>, dropped: &Counter) {
    let to_stderr = |line: &[u8]| io::stderr().write_all(line);
    while let Ok(message) = messages.recv() {
        let written = match (message, &mut access) {
            (Message::Access(line), Some(access)) => access.write(&line),
            (Message::Line(line) | Message::Access(line), _) => to_stderr(&line),
            (Message::Reopen, Some(open)) => match AccessFile::open(open.path.clone()) {
                Ok(new) => {
                    access = Some(new);
                    Ok(())
                }
                // The previous file stays in use.
                Err(error) => to_stderr(format!("error: {error:#}\n").as_bytes()),
            },
            (Message::Reopen, None) => Ok(()),
            (Message::Flush(done), _) => {
                done.try_send(()).ok();
                Ok(())
            }
        };
        if written.is_err() {
            // An error of the log cannot be logged.
            dropped.inc();
        }
    }
}

struct Queue {
    sender: SyncSender<Message>,
    dropped: Counter,
    /// Whether the access log has its own file.
    access: bool,
}

impl Queue {
    fn send(&self, message: Message) {
        if self.sender.try_send(message).is_err() {
            self.dropped.inc();
        }
    }
}

/// The destination of one line.
struct Line<'a> {
    queue: &'a Queue,
    is_access: bool,
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { queue: self, is_access: false }
    }

    fn make_writer_for(&'a self, metadata: &tracing::Metadata<'_>) -> Line<'a> {
        Line { queue: self, is_access: self.access && metadata.target() == Access::TARGET }
    }
}

impl Write for Line<'_> {
    /// The subscriber writes each line with a single call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = line.to_vec();
        self.queue.send(if self.is_access { Message::Access(text) } else { Message::Line(text) });
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::filter;

    #[test]
    fn a_bare_level_is_the_programs_own() {
        let said = |level| filter(level).expect("a filter").to_string();
        let parts = |level| {
            let text = said(level);
            let mut parts: Vec<String> = text.split(',').map(str::to_owned).collect();
            parts.sort();
            parts
        };
        assert_eq!(parts("warn"), ["tidegate::access=info", "tidegate=warn"]);
        assert_eq!(
            parts("info,hyper=debug"),
            ["hyper=debug", "tidegate::access=info", "tidegate=info"]
        );
        assert_eq!(parts("off"), ["tidegate=off"]);
    }
}
