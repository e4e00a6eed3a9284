//! The format of log lines: logfmt (`key=value`) or JSON, with the same fields in the same order.

use std::fmt;

use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{
        FmtContext, FormatEvent, FormatFields, FormattedFields,
        format::Writer,
        time::{FormatTime as _, SystemTime},
    },
    registry::LookupSpan,
};

use crate::rules::settings::LogFormat;

/// The format of log lines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form(pub(super) LogFormat);

impl<'w> FormatFields<'w> for Form {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut pairs = Pairs { format: self.0, out: writer, done: Ok(()) };
        fields.record(&mut pairs);
        pairs.done
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> FormatEvent<S, Self> for Form {
    fn format_event(
        &self,
        context: &FmtContext<'_, S, Self>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let (level, target) = (event.metadata().level(), event.metadata().target());
        match self.0 {
            LogFormat::Text => write!(writer, "timestamp={time} level={level}")?,
            LogFormat::Json => write!(writer, r#"{{"timestamp":"{time}","level":"{level}""#)?,
        }
        self.format_fields(writer.by_ref(), event)?;
        for span in context.event_scope().into_iter().flatten() {
            if let Some(fields) = span.extensions().get::<FormattedFields<Self>>() {
                writer.write_str(fields)?;
            }
        }
        // Tidegate's own module names do not help readers; those of libraries do.
        if !target.starts_with("tidegate") {
            let mut pairs = Pairs { format: self.0, out: writer.by_ref(), done: Ok(()) };
            pairs.text("target", target);
            pairs.done?;
        }
        writer.write_str(if self.0 == LogFormat::Json { "}\n" } else { "\n" })
    }
}

/// Writes fields one by one.
struct Pairs<'w> {
    format: LogFormat,
    out: Writer<'w>,
    done: fmt::Result,
}

impl Pairs<'_> {
    /// Writes a text value.
    fn text(&mut self, key: &str, value: &str) {
        let written = match self.format {
            LogFormat::Text if is_bare(value) => write!(self.out, " {key}={value}"),
            LogFormat::Text | LogFormat::Json => {
                let quoted = serde_json::Value::from(value);
                match self.format {
                    LogFormat::Text => write!(self.out, " {key}={quoted}"),
                    LogFormat::Json => write!(self.out, r#","{key}":{quoted}"#),
                }
            }
        };
        self.done = self.done.and(written);
    }

    /// Writes a value that needs no quotes in either format.
    fn bare(&mut self, key: &str, value: impl fmt::Display) {
        let written = match self.format {
            LogFormat::Text => write!(self.out, " {key}={value}"),
            LogFormat::Json => write!(self.out, r#","{key}":{value}"#),
        };
        self.done = self.done.and(written);
    }
}

/// Whether a value needs no quotes in logfmt.
fn is_bare(value: &str) -> bool {
    let good = |c: char| c > ' ' && c != '"' && c != '=' && c != '\\' && !c.is_control();
    !value.is_empty() && value.chars().all(good)
}

impl Visit for Pairs<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.bare(field.name(), value);
        } else {
            self.text(field.name(), &value.to_string());
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.bare(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.bare(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.bare(field.name(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field.name(), &format!("{value:?}"));
    }
}
