//! The keys of the log.

use super::{
    Default::{Absent, Is},
    Kind, Section, key,
};

/// `log`.
pub(in crate::config) static LOG: Section = Section {
    name: "log",
    doc: "Logging.",
    keys: &[
        key(
            "level",
            Kind::Text(1000),
            Is("info"),
            "`off`, `error`, `warn`, `info`, `debug`, `trace`, or a filter such as \
             `info,tidegate::store=debug`.",
        ),
        key(
            "format",
            Kind::Word(&["text", "json"]),
            Is("text"),
            "logfmt (`key=value`), or one JSON object per line with the same fields.",
        ),
        key("access", Kind::Flag, Is("false"), "Adds [one line per request](operations.md#logs)."),
        key(
            "access_file",
            Kind::Path,
            Absent("standard error"),
            "File for these lines; it implies `access`. SIGHUP reopens it after a rotation.",
        ),
    ],
};
