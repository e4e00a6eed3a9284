//! Applies a changed rule file as a whole or not at all.

use std::{collections::BTreeMap, fmt, future, net::SocketAddr, sync::Arc};

use crate::{
    admin,
    config::{self, Loaded, Overrides, Problems, reload::Reloader},
    observability::{
        event::{Event, Events},
        status::ConfigStatus,
    },
    proxy,
    runtime::clock,
};

/// Changes the level or filter of the log. The error is a message for people.
pub type SetLogLevel = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// Applies the files that the watcher reads.
pub(super) struct Reload {
    watcher: Option<Reloader>,
    /// The file at the start, for settings that need a restart.
    started: Loaded,
    /// The current file.
    loaded: Loaded,
    set_log_level: SetLogLevel,
    proxy: Arc<proxy::Context>,
    admin: Arc<admin::Context>,
    events: Arc<Events>,
}

impl Reload {
    /// Watches the file that `loaded` was read from, unless it is the built-in default.
    pub(super) fn new(
        overrides: Overrides,
        loaded: Loaded,
        proxy: Arc<proxy::Context>,
        admin: Arc<admin::Context>,
        events: Arc<Events>,
        set_log_level: SetLogLevel,
    ) -> Self {
        let watcher = loaded
            .path
            .as_deref()
            .map(|path| Reloader::new(path, &loaded, overrides, Arc::new(config::process_env)));
        Self { watcher, started: loaded.clone(), loaded, set_log_level, proxy, admin, events }
    }

    /// Requests a reload, even of an unchanged file.
    pub(super) fn ask(&self) {
        match &self.watcher {
            Some(watcher) => watcher.trigger().reload(),
            None => self.events.emit(Event::Warned {
                what: "nothing to reload: the built-in defaults are in force; name a rule file \
                       with --config"
                    .to_owned(),
            }),
        }
    }

    /// The next changed file. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Loaded, Problems> {
        match &mut self.watcher {
            Some(watcher) => watcher.next().await,
            None => future::pending().await,
        }
    }

    /// Applies a valid file. An invalid one is reported and changes nothing.
    pub(super) fn take(&mut self, read: Result<Loaded, Problems>) {
        match read {
            Ok(loaded) => self.replace(loaded),
            Err(problems) => {
                self.refuse(problems.as_slice().iter().map(ToString::to_string).collect());
            }
        }
    }

    fn refuse(&self, problems: Vec<String>) {
        self.admin.config.lock().problems.clone_from(&problems);
        self.events.emit(Event::ReloadFailed { problems });
    }

    fn replace(&mut self, loaded: Loaded) {
        let listen = self.proxy.live().settings.listen;
        if loaded.settings.lacks_auth_on(listen) {
            return self.refuse(vec![open_to_everybody(listen)]);
        }
        let ca_pem = match super::ca_pem(&loaded, &self.proxy) {
            Ok(pem) => pem,
            Err(error) => return self.refuse(vec![error.to_string()]),
        };
        if let Err(error) = (self.set_log_level)(&loaded.settings.log.level) {
            return self.refuse(vec![error]);
        }
        let diff = config::diff(&self.loaded, &loaded);
        // Compared with the start instead of the previous file: a setting needs a restart until the
        // restart, or until the change is undone.
        let needs_restart: Vec<String> = config::diff(&self.started, &loaded)
            .needs_restart
            .into_iter()
            .map(str::to_owned)
            .collect();
        let mut settings = loaded.settings.clone();
        {
            // Ports and connections from the start stay.
            let now = self.proxy.live();
            settings.listen = now.settings.listen;
            settings.admin.clone_from(&now.settings.admin);
            settings.store = now.settings.store.clone();
        }
        self.proxy.gate.set_lease(super::lease(&settings));
        self.proxy.gate.reload(loaded.rules.clone());
        self.proxy.reload(settings);
        let mut status = config_status(&loaded);
        status.needs_restart.clone_from(&needs_restart);
        *self.admin.config.lock() = status;
        self.admin.ca_pem.store(Arc::new(ca_pem));
        self.admin.values.store(Arc::new(values(&loaded)));
        self.events.emit(Event::Reloaded { changes: diff.lines, needs_restart });
        for warning in &loaded.warnings {
            self.events.emit(Event::Warned { what: warning.one_line() });
        }
        self.loaded = loaded;
    }
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reload").field("watcher", &self.watcher).finish_non_exhaustive()
    }
}

/// The file's own check uses its `listen`, but until a restart the proxy may be bound to another
/// address.
fn open_to_everybody(listen: SocketAddr) -> String {
    format!(
        "auth: the proxy listens on {listen} until a restart, where anybody could use it without \
         `auth`; give `auth.users` or `auth.networks`, or write `auth: none`"
    )
}

/// The status of the current rule file.
pub(super) fn config_status(loaded: &Loaded) -> ConfigStatus {
    ConfigStatus {
        file: loaded.path.as_ref().map(|path| path.display().to_string()),
        loaded_ms: clock::unix_ms(),
        ..ConfigStatus::default()
    }
}

/// Every key with its current value; secrets are `***`.
pub(super) fn values(loaded: &Loaded) -> BTreeMap<String, String> {
    loaded.values().map(|(path, value)| (path.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        gate::Gate,
        observability::metrics::Metrics,
        store::{Backend, Memory},
    };

    fn read(text: &str) -> Loaded {
        config::parse(text, "rules.yaml", &|_| None).unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// The reload of a proxy that was started with `text`, without ports.
    fn started_with(text: &str) -> Reload {
        let loaded = read(text);
        let metrics = Metrics::new();
        let events = Events::new(Arc::clone(&metrics));
        let store = Backend::Memory(Memory::default());
        let (gate_metrics, gate_events) = (Arc::clone(&metrics), Arc::clone(&events));
        let gate = Gate::new(
            loaded.rules.clone(),
            store,
            gate_metrics,
            gate_events,
            Duration::from_secs(60),
        );
        let settings = loaded.settings.clone();
        let proxy = proxy::Context::new(settings, gate, metrics, Arc::clone(&events), None, vec![]);
        let (status, stop) = (config_status(&loaded), CancellationToken::new());
        let admin = admin::Context::new(Arc::clone(&proxy), status, values(&loaded), stop);
        let set_log_level = Box::new(|_: &str| Ok(()));
        Reload::new(Overrides::default(), loaded, proxy, admin, events, set_log_level)
    }

    #[tokio::test]
    async fn a_change_that_needs_a_restart_is_still_reported_after_the_next_reload() {
        let mut reload = started_with("listen: 127.0.0.1:3128\n");
        let pending = |reload: &Reload| reload.admin.config.lock().needs_restart.clone();
        reload.take(Ok(read("listen: 127.0.0.1:3129\n")));
        assert_eq!(pending(&reload), ["listen"]);
        reload.take(Ok(read("listen: 127.0.0.1:3129\nlog: {format: json}\n")));
        assert_eq!(pending(&reload), ["listen", "log.format"]);
        reload.take(Ok(read("listen: 127.0.0.1:3128\nlog: {format: json}\n")));
        assert_eq!(pending(&reload), ["log.format"], "taken back, nothing waits for it");
    }

    #[tokio::test]
    async fn no_reload_opens_a_bound_proxy_to_everybody() {
        let mut reload = started_with("listen: 192.0.2.1:3128\nauth: {users: {crawler: secret}}\n");
        reload.take(Ok(read("listen: 127.0.0.1:3128\n")));
        let problems = reload.admin.config.lock().problems.clone();
        assert!(matches!(&*problems, [one] if one.contains("192.0.2.1:3128")), "{problems:?}");
        assert_eq!(reload.proxy.live().settings.auth.users.len(), 1, "nothing has changed");
        reload.take(Ok(read("listen: 127.0.0.1:3128\nauth: none\n")));
        assert!(reload.proxy.live().settings.auth.none, "said on purpose, it is taken");
        assert!(reload.admin.config.lock().problems.is_empty());
    }
}
