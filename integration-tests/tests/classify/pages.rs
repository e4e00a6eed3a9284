//! Pages that look like a wall but are none, and the reverse.

use http::Method;
use tidegate::classify::{
    BodyEnd,
    verdict::{Confidence, Verdict},
};

use crate::{Response, filler, page, prose};

/// Each of these is `ok`.
fn ordinary(what: &str, response: &Response) {
    let judgement = response.judgement();
    assert_eq!(judgement.verdict, Verdict::Ok, "{what}: {:?}", judgement.evidence);
}

#[test]
fn widgets_on_short_pages_are_not_walls() {
    for (what, markup) in [
        (
            "reCAPTCHA v3 on a login form",
            "<script src='https://www.google.com/recaptcha/api.js?render=6L'></script><form><input name=user>Log in</form>",
        ),
        (
            "Turnstile",
            "<script src='https://challenges.cloudflare.com/turnstile/v0/api.js'></script><div class='cf-turnstile'></div><form>Sign up</form>",
        ),
        (
            "hCaptcha",
            "<script src='https://js.hcaptcha.com/1/api.js'></script><div class='h-captcha'></div>Contact us",
        ),
        (
            "Cloudflare's sensor",
            "<title>Shop</title><script>window.__CF$cv$params={r:'8'};a.src='/cdn-cgi/challenge-platform/scripts/jsd/main.js'</script>Hello",
        ),
        (
            "HUMAN's sensor",
            "<script>window._pxAppId='PX1';</script><script src='//client.px-cloud.net/PX1/main.min.js'></script>News",
        ),
        (
            "Imperva's sensor on a login form",
            "<title>Log in</title><script src='/_Incapsula_Resource?SWJIYLWA=71'></script><form><input></form>Log in",
        ),
        (
            "Imperva's sensor in a shell",
            "<title>App</title><div id=root></div><script src='/_Incapsula_Resource?SWJIYLWA=71'></script>",
        ),
        ("DataDome's sensor", "<script src='https://js.datadome.co/tags.js'></script>Welcome"),
        ("Akamai's sensor", "<script>bmak.js_post=true</script>Welcome"),
        (
            "AWS' sensor",
            "<script src='https://1.edge.sdk.awswaf.com/1/challenge.js'></script>Welcome",
        ),
        (
            "a shop's own captcha",
            "<form action='/validateCaptcha.php'><label>Type the characters you see</label></form>Log in",
        ),
        ("a checkbox", "<form>Name <label>Verify you are human</label> Send</form>"),
    ] {
        ordinary(what, &page(200, markup));
    }
}

#[test]
fn long_pages_with_every_mark_there_is_are_ordinary_and_their_decoys_are_counted() {
    let marks = "<code>window._cf_chl_opt</code> <div id=\"px-captcha\"></div> ct.captcha-delivery.com/c.js \
        /errors/validateCaptcha Reference #18. anubis_challenge sucuri_cloudproxy_js";
    let response =
        page(200, &format!("<title>Just a moment...</title>{marks}<p>{}</p>", prose(3_000)));
    let judgement = response.judgement();
    assert_eq!(judgement.verdict, Verdict::Ok);
    let decoys: Vec<&str> = judgement.decoys.iter().map(|decoy| &**decoy).collect();
    for name in ["cloudflare-title", "human-captcha", "datadome-page", "anubis"] {
        assert!(decoys.contains(&name), "{name} is not among {decoys:?}");
    }
}

#[test]
fn articles_about_walls_are_ordinary() {
    let article = |title: &str| {
        page(
            200,
            &format!(
                "<title>{title}</title><h1>{title}</h1><p>Verify you are human: unusual traffic.</p><p>{}</p>",
                prose(2_000)
            ),
        )
    };
    for title in [
        "Just a moment...",
        "What is a CAPTCHA?",
        "Are you a robot?",
        "Access Denied",
        "Robot Check",
    ] {
        ordinary(title, &article(title));
    }
}

#[test]
fn a_cdn_that_speaks_of_the_site_behind_it_does_not_block() {
    for code in [1000, 1001, 1016, 1033] {
        let markup = format!(
            "<title>Origin DNS error | site.example | Cloudflare</title><div id=\"cf-error-details\" class=\"cf-error-details cf-error-{code}\"><span class=\"cf-error-code\">{code}</span></div>"
        );
        ordinary("530", &page(530, &markup));
        ordinary("409", &page(409, &markup));
    }
    for status in [521, 522, 526] {
        ordinary(
            "52x",
            &page(
                status,
                &format!(
                    "<div id=\"cf-error-details\"><span class=\"cf-error-code\">{status}</span></div>"
                ),
            ),
        );
    }
    for number in [3, 9, 11, 30, 97] {
        ordinary(
            "Akamai",
            &page(400, &format!("<TITLE>Access Denied</TITLE>Reference&#32;&#35;{number}&#46;5d")),
        );
    }
    let cloudfront = "<TITLE>ERROR: The request could not be satisfied</TITLE><H2>The request could not be satisfied.</H2>";
    let judgement = page(403, &format!("{cloudfront}Bad request.")).judgement();
    assert_eq!(judgement.confidence, Confidence::Low, "nothing but the status speaks");
    assert_eq!(
        page(403, &format!("{cloudfront}Request blocked.")).signature(),
        "cloudfront-blocked"
    );
}

#[test]
fn a_plain_body_with_an_error_code_is_a_block_only_for_the_codes_that_mean_one() {
    let code = |status, code| {
        page(status, &format!("error code: {code}"))
            .with("server", "cloudflare")
            .with("content-type", "text/plain; charset=UTF-8")
    };
    assert_eq!(code(403, 1020).signature(), "cloudflare-code");
    assert_eq!(code(429, 1015).signature(), "cloudflare-code-1015");
    for (status, number) in [(530, 1016), (521, 521), (522, 522), (404, 1001)] {
        ordinary("origin", &code(status, number));
    }
}

#[test]
fn akamai_is_recognised_in_entities_under_403_and_200() {
    let denied = "<HTML><HEAD>\n<TITLE>Access Denied</TITLE>\n</HEAD><BODY>\n<H1>Access Denied</H1>\nYou don't have permission to access \"http&#58;&#47;&#47;site&#46;example&#47;\" on this server.<P>\nReference&#32;&#35;18&#46;5d1c1602&#46;17&#46;1\n</BODY>\n</HTML>";
    for status in [200, 403] {
        assert_eq!(page(status, denied).signature(), "akamai-denied");
    }
    assert_eq!(
        page(403, &denied.replace("&#32;&#35;18&#46;", " #18.")).signature(),
        "akamai-denied"
    );
}

#[test]
fn maintenance_and_refusals_of_others_are_ordinary() {
    ordinary("maintenance", &page(503, "<title>Maintenance</title>Back soon."));
    ordinary("login wall", &page(401, "<title>Unauthorized</title>Log in."));
    let drupal = page(403, "<title>Access denied | My site</title>You are not authorized.");
    let judgement = drupal.with("server", "cloudflare").judgement();
    assert_eq!((judgement.verdict, judgement.confidence), (Verdict::Forbidden, Confidence::Low));
}

#[test]
fn titles_early_and_marks_late_are_both_found() {
    let late = format!(
        "<title>Just a moment...</title>{}<script>window._cf_chl_opt={{}}</script>",
        filler(9_600)
    );
    assert_eq!(page(403, &late).verdict(), Verdict::CloudflareChallenge);
    let style = format!(
        "<title>Shop</title><style>{}</style><span class=\"cf-error-code\">1020</span>",
        "a{b:c}".repeat(19_000)
    );
    assert!(style.len() > 114_000);
    assert_eq!(page(403, &style).signature(), "cloudflare-error-block");
}

#[test]
fn walls_in_other_languages_and_scripts_are_read() {
    for text in [
        "请完成安全验证",
        "ロボットではないことを確認します",
        "사람인지 확인합니다",
        "Подтвердите, что ВЫ НЕ РОБОТ",
        "Zeigen Sie, dass Sie kein Roboter sind",
    ] {
        assert_eq!(page(403, &format!("<h1>{text}</h1>")).signature(), "human-check", "{text}");
    }
    let gbk = encoding_rs::GBK.encode("<meta charset=gbk><h1>请完成安全验证</h1>").0.into_owned();
    let mut response = page(403, "").with("content-type", "text/html");
    response.body = gbk;
    assert_eq!(response.signature(), "human-check");
    let sjis = encoding_rs::SHIFT_JIS.encode("<h1>ロボットではない</h1>").0.into_owned();
    let mut response = page(403, "").with("content-type", "text/html; charset=Shift_JIS");
    response.body = sjis;
    assert_eq!(response.signature(), "human-check");
}

#[test]
fn short_pages_in_dense_scripts_are_ordinary() {
    ordinary("Chinese", &page(200, "<title>公告</title><p>本店今日休息，明天上午九点营业。</p>"));
    ordinary("Japanese", &page(200, "<title>お知らせ</title><p>本日は休業いたします。</p>"));
}

#[test]
fn a_blank_page_is_complete_html_with_nothing_in_it() {
    for blank in [
        "",
        "<html></html>",
        "<html><head></head><body>  &nbsp;\n</body></html>",
        "<!-- x -->",
        "<title></title>",
    ] {
        let judgement = page(200, blank).judgement();
        assert_eq!(judgement.verdict, Verdict::BlankPage, "{blank:?}");
        assert_eq!(judgement.confidence, Confidence::Low);
    }
}

#[test]
fn a_page_with_content_or_a_redirect_is_not_blank() {
    for markup in [
        "<div id=root></div><script src=/app.js></script>",
        "<meta http-equiv=\"refresh\" content=\"0;url=/home\">",
        "<script>location='/home'</script>",
        "<iframe src=/inner></iframe>",
        "<frameset><frame src=/a></frameset>",
        "<img src=/logo.png>",
        "<title>Home</title>",
        "<form action=/login></form>",
        "ok",
        "[]",
    ] {
        ordinary(markup, &page(200, markup));
    }
    for status in [201, 204, 304, 404] {
        ordinary("status", &page(status, ""));
    }
    for kind in ["application/json", "image/gif", "application/rss+xml", "text/plain"] {
        ordinary(kind, &page(200, "").with("content-type", kind));
    }
    ordinary("no type", &page(200, "").without("content-type"));
    ordinary("long", &page(200, &filler(600)));
    let mut post = page(200, "");
    post.method = Method::POST;
    ordinary("POST", &post);
}

#[test]
fn a_body_that_was_cut_off_is_a_connection_error_unless_a_wall_was_seen_before() {
    let mut cut = page(200, "");
    cut.end = BodyEnd::CutOff;
    assert_eq!(cut.verdict(), Verdict::ConnectionError);
    cut.body = b"<title>Just a moment...</title><p>".to_vec();
    assert_eq!(cut.verdict(), Verdict::CloudflareChallenge);
    let mut open = page(200, "");
    open.end = BodyEnd::Open;
    ordinary("the scan stopped early", &open);
}
