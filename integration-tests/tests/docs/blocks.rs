//! Fenced blocks of the pages, and the shell blocks that are run.

use std::{path::Path, process::Stdio, time::Duration};

use integration_tests::{
    member::{Member, RuleFile, binary_path},
    site::Site,
};
use tokio::{process::Command, time::timeout};

use super::{assert_none, name, pages, read, root};

/// Longest run of one block.
const AT_MOST: Duration = Duration::from_secs(60);

/// A fenced block of a page.
#[derive(Debug)]
pub(crate) struct Block {
    /// Page and line, for messages.
    pub(crate) place: String,
    /// The text after the opening fence.
    pub(crate) language: String,
    /// The comment on the line before it (`<!-- ... -->`), without its delimiters.
    pub(crate) mark: String,
    /// Its text.
    pub(crate) text: String,
}

/// All blocks in this language.
pub(crate) fn blocks(language: &str) -> Vec<Block> {
    let mut found: Vec<Block> = pages().iter().flat_map(|page| blocks_of(page)).collect();
    found.retain(|block| block.language == language);
    assert!(!found.is_empty(), "no block is `{language}`");
    found
}

fn blocks_of(page: &Path) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    let mut before = "";
    let text = read(page);
    for (at, line) in text.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => {
                let mark = before.trim().strip_prefix("<!--").and_then(|m| m.strip_suffix("-->"));
                open = Some(Block {
                    place: format!("{}:{}", name(page), at + 1),
                    language: language.trim().to_owned(),
                    mark: mark.unwrap_or_default().trim().to_owned(),
                    text: String::new(),
                });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
        before = line;
    }
    assert!(open.is_none(), "{}: a block has no end", name(page));
    found
}

/// Replaces the member and the site of the pages by running ones.
#[tokio::test]
async fn every_shell_block_that_is_marked_to_run_runs() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 100/s, burst: 100, cooldown: {ramp: 0s}, intercept: true");
    let member = Member::start(&file).await;
    let mut ran = 0;
    let mut failed = Vec::new();
    for block in blocks("sh") {
        let code = match block.mark.as_str() {
            "run" => 0,
            "run: exit code 1" => 1,
            _ => continue,
        };
        let text = block
            .text
            .replace("127.0.0.1:3128", &member.proxy().to_string())
            .replace("127.0.0.1:9128", &member.admin().to_string())
            .replace("http://example.com/", &site.url("/"))
            .replace("http://shop.example/", &site.url("/"));
        ran += 1;
        if let Err(why) = run(&text, code, &member).await {
            failed.push(format!("{}\n{}{why}", block.place, block.text));
        }
    }
    assert!(ran >= 5, "blocks are marked with `<!-- run -->`; {ran} were found");
    assert_none("blocks that fail", &failed);
    assert!(site.count() > 0, "one of them sends something through the proxy");
}

async fn run(text: &str, code: i32, member: &Member) -> Result<(), String> {
    let binaries = binary_path().parent().expect("a file is in a folder").display();
    let path = std::env::var("PATH").unwrap_or_default();
    let running = Command::new("sh")
        .args(["-euc", text])
        .current_dir(root())
        .env_clear()
        .env("PATH", format!("{binaries}:{path}"))
        .env("HOME", member.folder())
        .env("TIDEGATE_CONFIG", member.rule_file())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(AT_MOST, running).await.map_err(|_| "takes too long".to_owned())?;
    let output = output.map_err(|error| error.to_string())?;
    if output.status.code() == Some(code) && !output.stdout.is_empty() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}, wrote {} bytes: {said}", output.status, output.stdout.len()))
}
