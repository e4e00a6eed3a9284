//! Pages that say little more than what they are: walls, and pages of a site as short as those.

use tidegate::classify::verdict::Verdict;

use crate::page;

/// The verdict on a page with this title and body, served with success.
fn verdict(title: &str, body: &str) -> Verdict {
    page(200, &format!("<html><head><title>{title}</title></head><body>{body}</body></html>"))
        .verdict()
}

#[test]
fn a_page_that_only_says_that_it_is_a_check_is_one() {
    for (title, body) in [
        ("", "Robot check"),
        ("Checking your browser", ""),
        ("Checking your browser", "<p>One moment</p>"),
        ("Проверка браузера", "<p>captcha</p>"),
    ] {
        assert_eq!(verdict(title, body), Verdict::Captcha, "{title} {body}");
    }
}

#[test]
fn a_page_with_more_than_the_name_of_a_check_is_not_a_check() {
    for body in [
        "<p>Firefox 140</p><button>Again</button>",
        "<p>Firefox 140</p><a href=/>Home</a><nav></nav>",
        "<div id=root></div><script src=/app.js></script>",
        "<p>Yours is Firefox 140 on Linux, and up to date.</p>",
    ] {
        assert_eq!(verdict("Browser check", body), Verdict::Ok, "{body}");
    }
}

#[test]
fn a_page_that_only_reports_a_bot_or_a_bad_address_refuses() {
    for text in ["<h1>Bot detected</h1><p>headless</p>", "<h2>Доступ ограничен: проблема с IP</h2>"]
    {
        assert_eq!(verdict("", text), Verdict::Forbidden, "{text}");
    }
    assert_eq!(
        verdict("Visitors of today", "<h1>Bot detected</h1><p>Two of ten.</p>"),
        Verdict::Ok
    );
}
