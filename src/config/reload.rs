//! Reads the rule file again when it or an included file changes, or on request.
//!
//! The folders are watched instead of the files, because an editor's rename and the symlink swap of
//! a Kubernetes ConfigMap replace a file. The owner of the [`Reloader`] decides what to do with the
//! result.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

use super::{Env, Loaded, MOST_BYTES, Overrides, Problems, include, load_with};

/// Changes within this time count as one: editors and `kubectl` touch a folder several times.
const SETTLE: Duration = Duration::from_millis(100);
/// The file is checked at this interval even without a notification. Network file systems send
/// none, and a replaced folder is no longer watched.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Longest wait for the changes in a folder to end.
const LONGEST_SETTLE: Duration = Duration::from_secs(1);
/// A missing file may be between a delete and a create, so it is awaited this long.
const MISSING_FILE_WAIT: Duration = Duration::from_secs(1);

/// The environment, as threads can share it.
pub type SharedEnv = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Requests a reload from elsewhere: a signal, the admin port.
#[derive(Debug, Clone)]
pub struct Trigger(Arc<Wake>);

impl Trigger {
    /// Reads the file again, changed or not.
    pub fn reload(&self) {
        self.0.asked.notify_one();
    }
}

#[derive(Debug, Default)]
struct Wake {
    changed: Notify,
    asked: Notify,
}

/// Watches one rule file.
pub struct Reloader {
    path: PathBuf,
    overrides: Overrides,
    env: SharedEnv,
    wake: Arc<Wake>,
    /// A noticed change or request without a result so far.
    changed: bool,
    asked: bool,
    seen: Option<u64>,
    watcher: Option<RecommendedWatcher>,
    watched: Vec<PathBuf>,
    /// Folders of the files that are included.
    included: HashSet<PathBuf>,
}

impl Reloader {
    /// Watches the file at `path`, from which `loaded` was read, with the command line's
    /// `overrides`.
    ///
    /// If the system offers no watch (none left, an unusual file system), the file is still checked
    /// every 10 s.
    #[must_use]
    pub fn new(path: &Path, loaded: &Loaded, overrides: Overrides, env: SharedEnv) -> Self {
        let wake = Arc::new(Wake::default());
        let news = Arc::clone(&wake);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading the file is an event too, which must not cause another read.
            if !event.is_ok_and(|event| event.kind.is_access()) {
                news.changed.notify_one();
            }
        });
        let mut reloader = Self {
            path: path.to_path_buf(),
            overrides,
            env,
            wake,
            // A change between reading and watching must be noticed too.
            changed: true,
            asked: false,
            seen: Some(loaded.fingerprint),
            watcher: watcher
                .inspect_err(|error| {
                    tracing::warn!(%error, "cannot watch the rule file; polling \
                                                             it instead")
                })
                .ok(),
            watched: Vec::new(),
            included: HashSet::new(),
        };
        (reloader.included, _) = look(path, &*reloader.env);
        reloader.watch_folders();
        reloader
    }

    /// A handle that requests a reload.
    #[must_use]
    pub fn trigger(&self) -> Trigger {
        Trigger(Arc::clone(&self.wake))
    }

    /// Waits until the file has changed (or [`Trigger::reload`] was called) and reads it.
    /// Cancel-safe: a change is not lost with the future.
    pub async fn next(&mut self) -> Result<Loaded, Problems> {
        loop {
            if !self.changed && !self.asked {
                tokio::select! {
                    () = self.wake.asked.notified() => self.asked = true,
                    () = self.wake.changed.notified() => self.changed = true,
                    () = tokio::time::sleep(POLL_INTERVAL) => self.changed = true,
                }
            }
            if !self.asked {
                self.settle().await;
                self.wait_for_return().await;
            }
            let (path, overrides) = (self.path.clone(), self.overrides.clone());
            let env = Arc::clone(&self.env);
            let reading = tokio::task::spawn_blocking(move || {
                (look(&path, &*env), load_with(Some(&path), &overrides, &*env))
            });
            let ((included, seen), read) = reading.await.unwrap_or_else(|error| {
                let message = format!("reading it failed: {error}");
                let nothing = (HashSet::new(), None);
                (nothing, Err(Problems::of_file(&self.path.display().to_string(), message, None)))
            });
            self.changed = false;
            self.included = included;
            let asked = std::mem::take(&mut self.asked);
            self.watch_folders();
            if std::mem::replace(&mut self.seen, seen) != seen || asked {
                return read;
            }
        }
    }

    /// Waits until nothing has changed for [`SETTLE`], so that no half-written file is read; up to
    /// [`LONGEST_SETTLE`], because a folder may have a file that changes all the time.
    async fn settle(&self) {
        let quiet = async {
            while tokio::time::timeout(SETTLE, self.wake.changed.notified()).await.is_ok() {}
        };
        let _restless = tokio::time::timeout(LONGEST_SETTLE, quiet).await.is_err();
    }

    /// Waits until the file exists, up to [`MISSING_FILE_WAIT`].
    async fn wait_for_return(&self) {
        let returned = async {
            while !self.path.exists() {
                tokio::time::sleep(SETTLE).await;
            }
        };
        let _timed_out = tokio::time::timeout(MISSING_FILE_WAIT, returned).await.is_err();
    }

    /// Watches the file's folder and, if the file is a symlink, the folder of its target.
    fn watch_folders(&mut self) {
        let folder = |path: &Path| {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            parent.unwrap_or(Path::new(".")).to_path_buf()
        };
        let mut folders = vec![folder(&self.path)];
        if let Ok(real) = self.path.canonicalize() {
            folders.push(folder(&real));
        }
        folders.extend(self.included.iter().filter(|path| path.is_dir()).cloned());
        folders.sort();
        folders.dedup();
        let Some(watcher) = &mut self.watcher else { return };
        for old in self.watched.iter().filter(|old| !folders.contains(old)) {
            // The folder may be gone, together with its watch.
            let _gone = watcher.unwatch(old).is_err();
        }
        for new in folders.iter().filter(|new| !self.watched.contains(new)) {
            if let Err(error) = watcher.watch(new, RecursiveMode::NonRecursive) {
                tracing::warn!(%error, folder = %new.display(), "cannot watch the rule file; \
                                                                 polling it instead");
            }
        }
        self.watched = folders;
    }
}

impl std::fmt::Debug for Reloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloader").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The folders of the included files, and a hash of all files; `None` if they cannot be read.
fn look(path: &Path, env: &Env<'_>) -> (HashSet<PathBuf>, Option<u64>) {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes));
    if read.is_err() {
        return (HashSet::new(), None);
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let (folders, fingerprint) = include::watched(&bytes, folder, env);
    (folders, Some(fingerprint))
}
