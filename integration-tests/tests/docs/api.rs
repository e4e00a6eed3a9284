//! `docs/api.md` has exactly the paths that the admin port serves.

use std::collections::BTreeSet;

use super::{read, root};

/// Files of the status page, which the row of the page itself names.
const FILES: [&str; 3] = ["/style.css", "/script.js", "/words.js"];

#[test]
fn the_page_of_the_api_has_every_path_of_the_admin_port() {
    let source = read(&root().join("src/admin.rs"));
    let routes = source.split(".route(").skip(1);
    let routes = routes.map(|rest| rest.split('"').nth(1).unwrap_or_default().to_owned());
    let mut served: BTreeSet<String> = routes.filter(|path| !FILES.contains(&&**path)).collect();
    // One path of the router covers three of the page.
    assert!(served.remove("/api/v1/scopes/{*scope}"), "{served:?}");
    served.insert("/api/v1/scopes/{scope}".to_owned());
    for part in ["cooldown", "rate"] {
        served.insert(format!("/api/v1/scopes/{{scope}}/{part}"));
    }
    let page = read(&root().join("docs/api.md"));
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `/"));
    let named: BTreeSet<String> =
        rows.map(|row| format!("/{}", row.split('`').next().unwrap_or_default())).collect();
    assert!(named.len() >= 10, "{named:?}");
    assert_eq!(named, served);
}
