//! The watch of the file notices every kind of replacement, with real files.

use std::{fs, path::Path, sync::Arc, time::Duration};

use tidegate::config::{
    self, Loaded, Overrides, Problems,
    reload::{Reloader, SharedEnv},
};

/// Far longer than any of this takes.
const TIMEOUT: Duration = Duration::from_secs(20);

fn text(rate: u32) -> String {
    format!("rules:\n  - {{name: default, match: '*', rate: {rate}/s}}\n")
}

fn watch(path: &Path) -> (Reloader, Loaded) {
    let loaded = config::load(Some(path), &|_| None).expect("a good file");
    let env: SharedEnv = Arc::new(|_| None);
    (Reloader::new(path, &loaded, Overrides::default(), env), loaded)
}

async fn next(reloader: &mut Reloader) -> Result<Loaded, Problems> {
    tokio::time::timeout(TIMEOUT, reloader.next()).await.expect("the change is seen")
}

fn rate(loaded: &Loaded) -> Option<f64> {
    loaded.rules.as_slice()[0].limits.rate
}

#[tokio::test]
async fn a_rewrite_a_bad_file_and_its_repair_are_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tidegate.yaml");
    fs::write(&path, text(3)).expect("writable");
    let (mut reloader, before) = watch(&path);
    fs::write(&path, text(5)).expect("writable");
    let after = next(&mut reloader).await.expect("good");
    assert_eq!(rate(&after), Some(5.0));
    assert_eq!(config::diff(&before, &after).lines, ["rules.default.rate: 3/s -> 5/s"]);
    fs::write(&path, "rulez: []\n").expect("writable");
    let problems = next(&mut reloader).await.expect_err("a bad file");
    assert!(problems.to_string().contains("did you mean `rules`?"), "{problems}");
    fs::write(&path, text(5)).expect("writable");
    assert!(config::diff(&after, &next(&mut reloader).await.expect("good")).is_empty());
}

#[tokio::test]
async fn an_atomic_rename_is_seen_again_and_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tidegate.yaml");
    fs::write(&path, text(3)).expect("writable");
    let (mut reloader, _) = watch(&path);
    for rate_now in [5, 6, 7] {
        let new = folder.path().join(".tidegate.yaml.new");
        fs::write(&new, text(rate_now)).expect("writable");
        fs::rename(&new, &path).expect("renamed");
        assert_eq!(rate(&next(&mut reloader).await.expect("good")), Some(f64::from(rate_now)));
    }
}

/// Replaces files like the kubelet: `tidegate.yaml -> ..data/tidegate.yaml`, `..data -> ..1`, and a
/// rename of `..data`.
#[cfg(unix)]
#[tokio::test]
async fn the_symlink_swap_of_a_config_map_is_seen_again_and_again() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().expect("a folder");
    let volume = |version: u32| {
        let real = folder.path().join(format!("..{version}"));
        fs::create_dir(&real).expect("a folder");
        fs::write(real.join("tidegate.yaml"), text(version)).expect("writable");
        let link = folder.path().join("..data_tmp");
        symlink(format!("..{version}"), &link).expect("a link");
        fs::rename(&link, folder.path().join("..data")).expect("renamed");
        if version > 1 {
            fs::remove_dir_all(folder.path().join(format!("..{}", version - 1))).expect("removed");
        }
    };
    volume(1);
    let path = folder.path().join("tidegate.yaml");
    symlink("..data/tidegate.yaml", &path).expect("a link");
    let (mut reloader, _) = watch(&path);
    for version in [2, 3, 4] {
        volume(version);
        assert_eq!(rate(&next(&mut reloader).await.expect("good")), Some(f64::from(version)));
    }
}

#[tokio::test]
async fn a_file_between_delete_and_create_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tidegate.yaml");
    fs::write(&path, text(3)).expect("writable");
    let (mut reloader, _) = watch(&path);
    fs::remove_file(&path).expect("removed");
    let create = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        fs::write(&path, text(5)).expect("writable");
    };
    let (read, ()) = tokio::join!(next(&mut reloader), create);
    assert_eq!(rate(&read.expect("good")), Some(5.0));
}

#[tokio::test]
async fn a_file_that_stays_away_is_a_problem() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tidegate.yaml");
    fs::write(&path, text(3)).expect("writable");
    let (mut reloader, _) = watch(&path);
    fs::remove_file(&path).expect("removed");
    let problems = next(&mut reloader).await.expect_err("gone");
    let said = problems.to_string();
    assert!(said.contains("it cannot be read") && said.contains("put a readable file"), "{said}");
}

#[tokio::test]
async fn a_signal_reads_the_file_again_even_if_it_is_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tidegate.yaml");
    fs::write(&path, text(3)).expect("writable");
    let (mut reloader, before) = watch(&path);
    reloader.trigger().reload();
    let after = next(&mut reloader).await.expect("good");
    assert!(config::diff(&before, &after).is_empty());
}

#[tokio::test]
async fn a_change_before_the_watch_began_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tidegate.yaml");
    fs::write(&path, text(3)).expect("writable");
    let loaded = config::load(Some(&path), &|_| None).expect("good");
    fs::write(&path, text(5)).expect("writable");
    let env: SharedEnv = Arc::new(|_| None);
    let mut reloader = Reloader::new(&path, &loaded, Overrides::default(), env);
    assert_eq!(rate(&next(&mut reloader).await.expect("good")), Some(5.0));
}

#[tokio::test]
async fn a_change_is_not_lost_when_the_wait_is_given_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tidegate.yaml");
    fs::write(&path, text(3)).expect("writable");
    let (mut reloader, _) = watch(&path);
    for rate_now in [5, 6] {
        fs::write(&path, text(rate_now)).expect("writable");
        // Dropped in between: the change was noticed, but not returned.
        let given_up = tokio::time::timeout(Duration::from_millis(50), reloader.next()).await;
        let read = match given_up {
            Ok(read) => read,
            Err(_) => next(&mut reloader).await,
        };
        assert_eq!(rate(&read.expect("good")), Some(f64::from(rate_now)));
    }
}

#[tokio::test]
async fn a_file_that_is_being_written_is_read_when_it_is_whole() {
    use std::io::Write as _;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tidegate.yaml");
    fs::write(&path, text(3)).expect("writable");
    let (mut reloader, _) = watch(&path);
    let write = async {
        let mut file = fs::File::create(&path).expect("writable");
        for part in
            ["rules:\n", "  - {name: default, match: '*', rate: 5/s}\n", "log: {access: true}\n"]
        {
            file.write_all(part.as_bytes()).expect("written");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    };
    let (read, ()) = tokio::join!(next(&mut reloader), write);
    let loaded = read.expect("never half of it");
    assert!(loaded.settings.log.access);
}
