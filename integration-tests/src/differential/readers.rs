//! The servers of `clients/readers.py`.

use std::{collections::BTreeMap, net::SocketAddr, process::Stdio, time::Duration};

use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::tools::{python, script};

/// How long all of them together may take to start.
const START: Duration = Duration::from_secs(60);

/// Servers that run until this is dropped.
pub(super) struct Readers {
    pub(super) servers: BTreeMap<String, SocketAddr>,
    pub(super) missing: BTreeMap<String, String>,
    _program: Child,
}

#[derive(Deserialize)]
struct Started {
    servers: BTreeMap<String, u16>,
    missing: BTreeMap<String, String>,
}

impl Readers {
    pub(super) async fn start() -> Self {
        let mut command = Command::new(python());
        command.arg(script("readers.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
        // It stops its servers when its standard input closes, at the latest with this process.
        let mut program = command.spawn().expect("Python can be started");
        let said = program.stdout.take().expect("its output is piped");
        let mut lines = BufReader::new(said).lines();
        let line = timeout(START, lines.next_line()).await.expect("the servers start in time");
        let line = line.expect("its output can be read").expect("it says what it started");
        let Started { servers, missing } = serde_json::from_str(&line).expect("it prints JSON");
        let at = |(name, port)| (name, SocketAddr::from(([127, 0, 0, 1], port)));
        Self { servers: servers.into_iter().map(at).collect(), missing, _program: program }
    }
}
