//! The command line from the view of people and scripts, exit codes above all.

mod fleet;
mod which;

use std::{
    fs::Permissions, os::unix::fs::PermissionsExt as _, path::Path, process::Output, time::Duration,
};

use integration_tests::{
    client::get,
    member::{Member, RuleFile, run},
    site::{Page, Site},
    wait::wait_until,
};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(10);

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("the folder for temporary files is writable")
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).expect("the folder is writable");
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", out(output), err(output)))
}

const GOOD: &str = "rules:\n  - {name: default, match: \"*\", rate: 3/s, burst: 5}\n";
const BAD: &str = "rules:\n  - {name: default, match: \"*\", ratte: 3/s, burst: many}\n";

#[test]
fn check_reports_a_good_file_or_every_mistake() {
    let folder = folder();
    write(folder.path(), "good.yaml", GOOD);
    write(folder.path(), "bad.yaml", BAD);
    let good = run(folder.path(), &["check", "good.yaml"]);
    assert_eq!(good.status.code(), Some(0), "{}", err(&good));
    assert_eq!(out(&good), "good good.yaml: 1 rule\n", "no colours where there is no terminal");
    let bad = run(folder.path(), &["check", "bad.yaml"]);
    assert_eq!(bad.status.code(), Some(2));
    for part in ["bad.yaml:2", "did you mean", "rate", "burst"] {
        assert!(err(&bad).contains(part), "`{part}` is missing:\n{}", err(&bad));
    }
    let bad = run(folder.path(), &["check", "bad.yaml", "--json"]);
    assert_eq!(bad.status.code(), Some(2));
    assert_eq!(json(&bad)["ok"], false);
    assert_eq!(json(&bad)["errors"], 2);
    let missing = run(folder.path(), &["check", "none.yaml"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(err(&missing).contains("none.yaml"), "{}", err(&missing));
}

#[test]
fn the_schema_describes_the_rule_file() {
    let output = run(folder().path(), &["schema"]);
    assert_eq!(output.status.code(), Some(0));
    let schema = json(&output);
    for key in ["listen", "rules", "store", "egress"] {
        assert!(schema["properties"][key].is_object(), "{key} is missing");
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for words in [&["--nonsense"][..], &["explain"], &["env", "lynx"], &["cooldown", "trip"]] {
        let output = run(folder().path(), words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", err(&output));
        assert!(err(&output).contains("--help"), "{words:?} names the way out");
    }
    let file = run(folder().path(), &["rules.yaml"]);
    assert_eq!(file.status.code(), Some(2));
    assert!(err(&file).contains("tidegate --config rules.yaml"), "{}", err(&file));
    let length = run(folder().path(), &["cooldown", "trip", "default", "--for", "5"]);
    assert_eq!(length.status.code(), Some(2));
    assert!(err(&length).contains("30s, 5m or 1h"), "{}", err(&length));
}

#[test]
fn help_has_examples_everywhere() {
    let pages: [&[&str]; 9] = [
        &["--help"],
        &["check", "--help"],
        &["env", "--help"],
        &["explain", "--help"],
        &["status", "--help"],
        &["cooldown", "--help"],
        &["ca", "--help"],
        &["completions", "--help"],
        &["man", "--help"],
    ];
    for words in pages {
        let output = run(folder().path(), words);
        assert_eq!(output.status.code(), Some(0));
        assert!(out(&output).contains("Examples:\n  "), "{words:?}:\n{}", out(&output));
    }
}

#[test]
fn completions_and_the_manual_page_know_every_command() {
    let script = out(&run(folder().path(), &["completions", "bash"]));
    let page = out(&run(folder().path(), &["man"]));
    for command in ["check", "schema", "env", "explain", "status", "cooldown", "rate", "ca", "top"]
    {
        assert!(script.contains(command), "the script lacks {command}");
        assert!(page.contains(command), "the page lacks {command}");
    }
    assert!(page.contains(".TH tidegate 1"), "it is roff");
}

/// The commands below `words`, as the help lists them.
fn commands_below(words: &[&str]) -> Vec<String> {
    let help = out(&run(folder().path(), &[words, &["--help"]].concat()));
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = folder();
    let output = run(folder.path(), &["man", "--dir", "pages"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let mut pages = vec![vec!["tidegate".to_owned()]];
    let mut seen = 0;
    while let Some(words) = pages.pop() {
        let name = format!("pages/{}.1", words.join("-"));
        let page = std::fs::read_to_string(folder.path().join(&name));
        let page = page.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(&format!(".TH {} 1", words.join("-"))), "{page}");
        seen += 1;
        let below: Vec<_> = words.iter().skip(1).map(String::as_str).collect();
        for command in commands_below(&below).into_iter().filter(|name| name != "help") {
            pages.push([words.clone(), vec![command]].concat());
        }
    }
    assert!(seen >= 18, "only {seen} pages");
    let output = run(folder.path(), &["man", "--dir", "pages/tidegate.1"]);
    assert_eq!(output.status.code(), Some(1), "a file is no folder");
}

#[test]
fn check_reports_why_a_start_would_fail() {
    let folder = folder();
    let rules = GOOD.replace("burst: 5", "burst: 5, intercept: true");
    write(folder.path(), "file", "no folder");
    let open = folder.path().join("open");
    std::fs::create_dir(&open).expect("the folder is writable");
    std::fs::set_permissions(&open, Permissions::from_mode(0o755)).expect("it was made here");
    for (line, said) in [
        ("ca_dir: file/ca", "ca_dir: file/ca cannot be used as a folder: file is a file"),
        ("ca_dir: file", "ca_dir: file cannot be used as a folder"),
        ("ca_dir: open", "ca_dir: the CA cannot be used: open holds the key"),
        ("log: {access_file: none/access.log}", "log.access_file"),
    ] {
        write(folder.path(), "r.yaml", &format!("{line}\n{rules}"));
        let checked = run(folder.path(), &["check", "r.yaml"]);
        assert_eq!(checked.status.code(), Some(1), "{line}");
        assert!(err(&checked).contains(said), "{}", err(&checked));
        let started = run(folder.path(), &["run", "r.yaml", "--listen", "127.0.0.1:0"]);
        assert_ne!(started.status.code(), Some(0), "{line}");
        let program = run(folder.path(), &["check", "r.yaml", "--json"]);
        assert_eq!(program.status.code(), Some(1), "{line}");
        assert!(json(&program)["start"].to_string().contains(said), "{}", out(&program));
    }
    // The proxy works without a place for pages.
    write(folder.path(), "r.yaml", &format!("inspect: {{keep: file}}\n{GOOD}"));
    let checked = run(folder.path(), &["check", "r.yaml"]);
    assert_eq!(checked.status.code(), Some(0));
    assert!(out(&checked).contains("inspect.keep: no page can be kept: file"), "{}", out(&checked));
}

#[test]
fn env_points_each_client_at_the_proxy() {
    let folder = folder();
    write(folder.path(), "r.yaml", &format!("listen: 127.0.0.1:4444\n{GOOD}"));
    for (client, line) in [
        ("curl", "export http_proxy=http://127.0.0.1:4444"),
        ("python", "export HTTPS_PROXY=http://127.0.0.1:4444"),
        ("node", "export NODE_USE_ENV_PROXY=1"),
        ("java", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=4444"),
        ("go", "export HTTP_PROXY=http://127.0.0.1:4444"),
        ("chrome", "--proxy-server=http://127.0.0.1:4444 --proxy-bypass-list=<-loopback>"),
    ] {
        let output = run(folder.path(), &["env", client, "--config", "r.yaml"]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert!(out(&output).lines().any(|l| l == line), "{client}:\n{}", out(&output));
        assert!(!out(&output).contains("CA"), "nothing to trust where nothing intercepts");
    }
}

#[test]
fn env_supports_users_and_explains_old_versions_of_node() {
    let folder = folder();
    let auth = "auth: {users: {crawler: \"open sesame\", other: b}, networks: [10.0.0.0/8]}";
    write(folder.path(), "r.yaml", &format!("listen: 127.0.0.1:4444\n{auth}\n{GOOD}"));
    let env = |words: &[&str]| run(folder.path(), &[&["env"], words, &["-c", "r.yaml"]].concat());
    let has = |output: &Output, line: &str| out(output).lines().any(|found| found == line);
    let curl = env(&["curl"]);
    let line = "export https_proxy=http://crawler:open%20sesame@127.0.0.1:4444";
    assert!(has(&curl, line), "{}", out(&curl));
    assert!(has(
        &env(&["go", "--user", "other"]),
        "export HTTP_PROXY=http://other:b@127.0.0.1:4444"
    ));
    let nobody = env(&["curl", "--user", "nobody"]);
    assert_eq!(nobody.status.code(), Some(2));
    assert!(err(&nobody).contains("crawler, other"), "{}", err(&nobody));
    assert!(out(&env(&["node"])).starts_with("# Node 22.21, 24 and newer"));
    assert!(out(&env(&["java"])).starts_with("# the proxy asks for a user"));
}

#[test]
fn a_password_in_a_store_url_that_everybody_can_read_is_a_warning() {
    let folder = folder();
    for (store, remarked) in [
        ("redis://:secret@127.0.0.1:6379", true),
        ("{url: \"redis://user:secret@127.0.0.1:6379\"}", true),
        ("redis://127.0.0.1:6379", false),
    ] {
        write(folder.path(), "r.yaml", &format!("store: {store}\n{GOOD}"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(folder.path().join("r.yaml"), mode).expect("it is ours");
        let said = out(&run(folder.path(), &["check", "r.yaml"]));
        assert_eq!(said.contains("every user of this machine"), remarked, "{store}: {said}");
        assert!(!said.contains("secret@"), "{said}");
    }
}

#[test]
fn a_variable_without_braces_as_a_secret_is_a_warning() {
    let folder = folder();
    for (secret, remarked) in [("$PASSWORD", true), ("pa$$word", false), ("$ecret", false)] {
        write(folder.path(), "r.yaml", &format!("auth: {{users: {{crawler: {secret}}}}}\n{GOOD}"));
        let said = out(&run(folder.path(), &["check", "r.yaml"]));
        assert_eq!(said.contains("without braces"), remarked, "{secret}: {said}");
        assert!(!said.contains(secret), "{said}");
    }
}

#[test]
fn colours_are_there_when_they_are_asked_for() {
    let folder = folder();
    write(folder.path(), "r.yaml", GOOD);
    let said = |when: &str| out(&run(folder.path(), &["check", "r.yaml", "--color", when]));
    assert!(said("always").contains("\u{1b}[32m"));
    assert!(!said("never").contains('\u{1b}') && !said("auto").contains('\u{1b}'));
}

#[test]
fn env_names_the_files_to_trust_where_a_rule_intercepts() {
    let folder = folder();
    let rules = GOOD.replace("burst: 5", "burst: 5, intercept: true");
    write(folder.path(), "r.yaml", &format!("ca_dir: ca dir\n{rules}"));
    let lines = out(&run(folder.path(), &["env", "python", "--config", "r.yaml"]));
    let quoted = lines.lines().find(|line| line.contains("SSL_CERT_FILE")).expect("it is there");
    assert!(quoted.ends_with("ca dir/bundle.pem'"), "one word of the shell: {quoted}");
    assert!(quoted.contains("='/"), "a client runs in another folder: {quoted}");
    let java = out(&run(folder.path(), &["env", "java", "--config", "r.yaml"]));
    assert!(java.starts_with("# once: keytool -importcert "), "{java}");
    assert!(java.contains("ca dir/ca.pem' -keystore tidegate.p12 "), "{java}");
    assert!(java.contains("\n-Djavax.net.ssl.trustStore=tidegate.p12 "), "{java}");
    let path = out(&run(folder.path(), &["ca", "path", "--config", "r.yaml"]));
    assert!(path.trim_end().ends_with("ca dir/ca.pem"), "{path}");
    let none = run(folder.path(), &["ca", "print", "--config", "r.yaml"]);
    assert_eq!(none.status.code(), Some(1), "there is none before the first start");
    assert!(err(&none).contains("first starts"), "{}", err(&none));
}

#[test]
fn explain_says_verdict_rule_and_evidence() {
    let folder = folder();
    write(folder.path(), "page.html", "<html><head><title>Just a moment...</title></head></html>");
    let words =
        ["explain", "page.html", "--status", "403", "--header", "server: cloudflare", "--json"];
    let output = run(folder.path(), &words);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let report = json(&output);
    assert_eq!(report["verdict"], "cloudflare_challenge", "{report}");
    assert_eq!(report["rule"], "default");
    assert!(report["evidence"]["signature"].is_string(), "{report}");
    let text = run(folder.path(), &["explain", "page.html", "--status", "403"]);
    assert_eq!(text.status.code(), Some(1), "a page is a block");
    assert!(out(&text).contains("verdict"), "{}", out(&text));
    write(folder.path(), "shop.html", "<html><title>Lamps</title><h1>Lamps</h1></html>");
    let ordinary = run(folder.path(), &["explain", "shop.html"]);
    assert_eq!(ordinary.status.code(), Some(0), "{}", out(&ordinary));
    let missing = run(folder.path(), &["explain", "none.html"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(err(&missing).contains("none.html"), "{}", err(&missing));
}

#[test]
fn a_signature_is_learnt_from_files_or_folders() {
    let folder = folder();
    let page = |title: &str, text: &str| {
        format!("<html><head><title>{title}</title></head><body><p>{text}</p></body></html>")
    };
    for kind in ["walls", "pages"] {
        std::fs::create_dir(folder.path().join(kind)).expect("the folder is writable");
    }
    for number in 1..=3 {
        let wall = page("Shop shield", "Please prove that you are no machine");
        write(folder.path(), &format!("walls/{number}.html"), &wall);
        let ordinary = page(&format!("Shoe {number}"), "A shoe that fits, in stock");
        write(folder.path(), &format!("pages/{number}.html"), &ordinary);
    }
    let files = |kind: &str| (1..=3).map(|n| format!("{kind}/{n}.html")).collect::<Vec<_>>();
    let of_files = [files("walls"), vec!["--ordinary".to_owned()], files("pages")].concat();
    let of_folders = ["walls", "--ordinary", "pages"].map(str::to_owned).to_vec();
    for pages in [of_files, of_folders] {
        let words: Vec<_> =
            ["learn-signature"].into_iter().chain(pages.iter().map(String::as_str)).collect();
        let learnt = run(folder.path(), &words);
        assert_eq!(learnt.status.code(), Some(0), "{}{}", out(&learnt), err(&learnt));
        for part in ["shop shield", "matches 3 of 3 blocked", "matches 0 of 3 ordinary"] {
            assert!(out(&learnt).to_lowercase().contains(part), "{part}: {}", out(&learnt));
        }
    }
}

#[tokio::test]
async fn status_is_a_table_and_its_exit_code_reports_trouble() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 50/s, burst: 20")).await;
    get(member.proxy(), &site.url("/")).await;
    let admin = member.admin().to_string();
    let place = folder();
    let fine = run(place.path(), &["status", "--admin", &admin]);
    assert_eq!(fine.status.code(), Some(0), "{}{}", out(&fine), err(&fine));
    for word in ["ready", "scope", "default", "50.00/s", "open"] {
        assert!(out(&fine).contains(word), "`{word}` is missing:\n{}", out(&fine));
    }
    assert!(!out(&fine).contains('\u{1b}'), "no colours where there is no terminal");
    site.answer_everything_with(Some(Page::TooManyRequests(None)));
    for _ in 0..3 {
        get(member.proxy(), &site.url("/")).await;
    }
    wait_until("it cools down", SOON, async || {
        run(place.path(), &["status", "--admin", &admin]).status.code() == Some(1)
    })
    .await;
    let cooling = run(place.path(), &["status", "--admin", &admin, "--json"]);
    assert_eq!(cooling.status.code(), Some(1));
    assert_eq!(json(&cooling)["scopes"][0]["state"], "cooling");
}

#[tokio::test]
async fn an_operator_trips_and_clears_a_cooldown() {
    let member = Member::start(&RuleFile::one_rule("rate: 50/s, burst: 20").token("sesame")).await;
    let admin = member.admin().to_string();
    let place = folder();
    let with = |words: &[&str]| {
        run(place.path(), &[words, &["--admin", &admin, "--token", "sesame"]].concat())
    };
    let tripped = with(&["cooldown", "trip", "default", "--for", "5m"]);
    assert_eq!(tripped.status.code(), Some(0), "{}", err(&tripped));
    assert_eq!(out(&tripped), "default is paused for 5 min\n");
    assert!(out(&with(&["status"])).contains("cooling"));
    let cleared = with(&["cooldown", "clear", "default"]);
    assert_eq!((cleared.status.code(), out(&cleared).as_str()), (Some(0), "default is resumed\n"));
    let unknown = with(&["cooldown", "clear", "nobody"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(err(&unknown).contains("default"), "it names the rules: {}", err(&unknown));
    let no_token = run(place.path(), &["status", "--admin", &admin]);
    assert_eq!(no_token.status.code(), Some(1));
    assert!(err(&no_token).contains("TIDEGATE_TOKEN"), "{}", err(&no_token));
    let wrong = run(place.path(), &["status", "--admin", &admin, "--token", "other"]);
    assert!(err(&wrong).contains("the token is wrong"), "{}", err(&wrong));
}

#[tokio::test]
async fn a_change_reports_the_scope_that_was_changed() {
    let rules = "- {name: rest, match: '*', per: domain, rate: 50/s}";
    let member = Member::start(&RuleFile::new(rules)).await;
    let (admin, place) = (member.admin().to_string(), folder());
    let said = |words: &[&str]| out(&run(place.path(), &[words, &["--admin", &admin]].concat()));
    let host = "rest/WWW.Shop.Example";
    assert_eq!(
        said(&["cooldown", "trip", host, "--for", "5m"]),
        "rest/shop.example is paused for 5 min\n"
    );
    assert_eq!(said(&["cooldown", "clear", host]), "rest/shop.example is resumed\n");
    assert_eq!(said(&["rate", "set", host, "5/s"]), "rest/shop.example runs at 5.00/s\n");
}

#[tokio::test]
async fn an_operator_sets_freezes_thaws_and_forgets_a_learned_rate() {
    let member = Member::start(&RuleFile::one_rule("rate: 50/s, burst: 20")).await;
    let admin = member.admin().to_string();
    let place = folder();
    let with = |words: &[&str]| run(place.path(), &[words, &["--admin", &admin]].concat());
    for (words, said) in [
        (&["rate", "set", "default", "90/m"][..], "default runs at 1.50/s\n"),
        (&["rate", "freeze", "default"], "default is fixed at 1.50/s\n"),
        (&["rate", "thaw", "default"], "default runs at 1.50/s\n"),
        (&["rate", "set", "default", "2/s", "--freeze"], "default is fixed at 2.00/s\n"),
        (&["rate", "forget", "default"], "default runs at 50.00/s\n"),
    ] {
        let done = with(words);
        assert_eq!((done.status.code(), out(&done).as_str()), (Some(0), said), "{}", err(&done));
    }
    with(&["rate", "set", "default", "3/s"]);
    let table = out(&with(&["status"]));
    assert!(table.contains("mark") && table.contains("3.00/s"), "{table}");
    let too_fast = with(&["rate", "set", "default", "51/s"]);
    assert_eq!(too_fast.status.code(), Some(1));
    assert!(err(&too_fast).contains("50"), "it names the ceiling: {}", err(&too_fast));
    assert_eq!(with(&["rate", "set", "default", "fast"]).status.code(), Some(2));
}

#[test]
fn a_proxy_that_is_not_running_is_reported_plainly() {
    let address = integration_tests::ports::free_address().to_string();
    let output = run(folder().path(), &["status", "--admin", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("is the proxy running?"), "{}", err(&output));
}

#[tokio::test]
async fn a_port_in_use_is_one_clear_line() {
    let member = Member::start(&RuleFile::one_rule("rate: 3/s, burst: 5")).await;
    let listen = member.proxy().to_string();
    let output = run(folder().path(), &["--listen", &listen, "--admin", "off"]);
    assert_eq!(output.status.code(), Some(1));
    let said = err(&output);
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in [listen.as_str(), "--listen", "in use"] {
        assert!(said.contains(part), "`{part}` is missing: {said}");
    }
    let checked = run(folder().path(), &["check", "--listen", &listen]);
    assert_eq!(checked.status.code(), Some(0), "a check binds nothing: {}", err(&checked));
}
