//! Walls that no signature names, in many languages and under every status, and ordinary pages with
//! similar words and widgets.

use tidegate::classify::verdict::{Confidence, Verdict};

use crate::{filler, page, prose};

/// A page with this title and body.
fn markup(title: &str, body: &str) -> String {
    format!("<!DOCTYPE html><html><head><title>{title}</title></head><body>{body}</body></html>")
}

#[test]
fn a_check_for_humans_is_one_in_any_language_and_under_any_status() {
    for (title, text) in [
        ("Verification", "Please confirm that you are a human. Check the box to continue."),
        ("example.com", "Checking if you are a bot. This will take a few seconds."),
        ("Проверка", "Подтвердите, что вы человек. Нажмите на кнопку, чтобы продолжить."),
        ("访问验证", "为了确认您是真人，请完成下方验证后继续访问。"),
        ("アクセス確認", "あなたが人間であることを確認しています。しばらくお待ちください。"),
        ("보안 확인", "사람인지 확인하고 있습니다. 잠시만 기다려 주세요."),
        ("Verificación", "Confirma que eres humano. Marca la casilla para continuar."),
        ("Verificação", "Confirme que você é humano. Clique no botão para continuar."),
        ("Vérification", "Confirmez que vous êtes un humain. Cochez la case pour continuer."),
        ("Sicherheitsüberprüfung", "Bitte bestätigen Sie, dass Sie ein Mensch sind. Bitte warten."),
        ("Verifica", "Conferma di essere un essere umano. Spunta la casella per continuare."),
        ("Doğrulama", "İnsan olduğunuzu doğrulayın. Lütfen bekleyin."),
        ("تحقق", "يرجى التحقق من أنك إنسان للمتابعة. انتظر لحظة."),
        ("Weryfikacja", "Potwierdź, że nie jesteś robotem. Proszę czekać, aby kontynuować."),
        ("Controle", "Bevestig dat je geen robot bent. Even geduld."),
        ("Xác minh", "Vui lòng xác nhận bạn không phải là robot để tiếp tục."),
        ("Verifikasi", "Harap konfirmasi bahwa Anda bukan robot untuk melanjutkan."),
    ] {
        let html = markup(title, &format!("<h1>{title}</h1><p>{text}</p><div id=captcha></div>"));
        for status in [200, 202, 403, 404, 412, 429, 503] {
            let judgement = page(status, &html).judgement();
            assert_eq!(judgement.verdict, Verdict::Captcha, "{status} {text}");
        }
    }
}

#[test]
fn a_check_of_the_browser_is_one_too() {
    for (title, text) in [
        ("Checking your browser before accessing site.example", "Please wait up to 5 seconds."),
        ("Please wait", "We are verifying your browser. You will be redirected automatically."),
        ("Проверка браузера", "Подождите несколько секунд, вы будете перенаправлены."),
        ("正在验证您的浏览器", "请稍候，正在跳转"),
    ] {
        let html = markup(title, &format!("<p>{text}</p><script src=/c.js></script>"));
        assert_eq!(page(200, &html).verdict(), Verdict::Captcha, "{text}");
    }
}

#[test]
fn a_script_alone_that_computes_an_answer_and_comes_back_is_a_check() {
    for html in [
        "<html><body><script>var k=parseInt('7f',16)*3;document.cookie='pass='+k;location.reload()</script></body></html>",
        "<script>(function(){var _0x1a=['a'];document.cookie='a='+_0x1a[0];window.location.href=window.location.href})()</script>",
        "<form id=f method=post><input type=hidden name=t value=1><input type=hidden name=a></form>\
         <script>f.a.value=atob('MQ==');f.submit()</script>",
    ] {
        let judgement = page(200, html).judgement();
        assert_eq!(judgement.verdict, Verdict::Captcha, "{html}");
        assert_eq!(judgement.confidence, Confidence::Low);
    }
}

#[test]
fn shells_stubs_and_redirecting_logins_are_not_checks() {
    for html in [
        "<title>App</title><div id=root></div><script src=/static/main.js></script>",
        "<title>App</title><noscript>You need to enable JavaScript to run this app.</noscript><div id=app></div>",
        "<script>document.cookie='tz='+Intl.DateTimeFormat().resolvedOptions().timeZone;location.reload()</script>",
        "<script>window.location.href='/home'</script>",
        "<script>window.location.replace(atob('L2hvbWU='))</script>",
        "<meta http-equiv=refresh content='0;url=/en/'>",
        "<body onload='document.forms[0].submit()'><form method=post action=https://idp.example/sso>\
         <input type=hidden name=SAMLRequest value=x><input type=hidden name=RelayState value=y></form>\
         <script>var k=parseInt('1')</script></body>",
        "<title>Shop</title><meta property=og:title content=Shop><script>document.cookie='a='+parseInt('1');\
         if(!seen)location.reload()</script><div id=root></div>",
    ] {
        for status in [200, 404] {
            assert_eq!(page(status, html).verdict(), Verdict::Ok, "{html}");
        }
    }
}

#[test]
fn pages_that_share_words_and_widgets_with_a_check_are_ordinary() {
    let nav: String = (0..15).map(|n| format!("<a href=/{n}>Part {n}</a> ")).collect();
    for (title, body) in [
        ("Sign in", "<form>Email <input type=email> Password <input type=password> <label>I am not a robot</label><div class=g-recaptcha></div> Sign in</form>".to_owned()),
        ("Verify you are human to sign in", "<form><input name=u><input type=password><div class=cf-turnstile></div></form>".to_owned()),
        ("Contact us", "<form>Name <input name=name> Your message <textarea name=m></textarea> Please confirm that you are a human: <div class=h-captcha></div></form>".to_owned()),
        ("Reset your password", "<p>Security check: enter the code that we sent to your phone.</p><form><input name=code></form>".to_owned()),
        ("Two-factor authentication", "<h1>Security verification</h1><p>We sent a verification code to your email.</p><form><input name=otp></form>".to_owned()),
        ("What is a CAPTCHA?", "<h1>What is a CAPTCHA?</h1><p>A test that asks you to prove you are human and not a robot.</p>".to_owned()),
        ("Why do I have to verify that I am human?", "<p>We ask you to verify you are human when we see unusual traffic. Complete the CAPTCHA to continue.</p>".to_owned()),
        ("Help: captcha", format!("{nav}<p>Verify you are human: check the box. Unusual traffic may be the reason.</p>")),
        ("Are you 18?", "<h1>Age verification</h1><p>Please confirm that you are over 18 years old to enter.</p><button>Yes</button><button>No</button>".to_owned()),
        ("Robot vacuums", "<h1>Robot vacuums</h1><p>Robots from 199 EUR. Check prices in our shop.</p>".to_owned()),
        ("Bot or human: the game", "<p>Play now.</p><button>Start</button>".to_owned()),
        ("Update your browser", "<h1>Your browser is out of date</h1><p>We have detected that your browser is not supported. Please update it to continue.</p>".to_owned()),
        ("Loading", "<p>Checking your connection, please wait...</p><script src=/app.js></script>".to_owned()),
        ("App", "<p>Loading...</p><noscript>Please enable JavaScript in your browser to continue</noscript>".to_owned()),
        ("Maintenance", "<h1>We will be back soon</h1><p>Please wait a few minutes and try again.</p>".to_owned()),
        ("Verify your email", "<p>Please verify your email address. We sent you a link.</p>".to_owned()),
        ("Human resources", "<h1>Human resources</h1><p>Confirm your holiday here.</p>".to_owned()),
        ("Order received", "<p>Thank you. Please confirm your order in the e-mail that we sent you.</p>".to_owned()),
        ("Before you continue to Search", "<p>We use cookies and data to deliver and maintain services. Accept all. Reject all.</p><form><input type=hidden name=x></form>".to_owned()),
        ("Вход", "<form>Логин <input name=l> Пароль <input type=password> Я не робот</form>".to_owned()),
        ("登录", "<form>用户名 <input name=u> 密码 <input type=password> 请输入验证码 <input name=captcha></form>".to_owned()),
        ("お問い合わせ", "<form>お名前 <input name=n> 内容 <textarea></textarea> 私はロボットではありません</form>".to_owned()),
        ("Newsletter", "<form>Your e-mail <input type=email><label>I'm not a robot</label> Subscribe</form>".to_owned()),
        ("reCAPTCHA demo", "<form><div class=g-recaptcha></div>I'm not a robot<input type=submit></form>".to_owned()),
        ("Page not found", "<h1>404</h1><p>This page is not here. Please check the address.</p>".to_owned()),
    ] {
        let html = markup(title, &body);
        for status in [200, 404] {
            let judgement = page(status, &html).judgement();
            assert_eq!(judgement.verdict, Verdict::Ok, "{status} {title}: {:?}", judgement.evidence);
        }
    }
}

#[test]
fn a_firewall_page_blocks_under_any_status_and_a_sites_own_error_does_not() {
    for (title, text) in [
        ("Not Acceptable!", "An error was generated by Mod_Security."),
        (
            "Request Rejected",
            "Your request was blocked by our web application firewall. Incident ID: 17",
        ),
        ("Access Denied", "Your IP address has been blocked for security reasons. Request ID: 8a"),
        ("Доступ запрещен", "Ваш IP-адрес заблокирован системой защиты от атак."),
        ("访问被拦截", "您的请求已被网站防火墙拦截，事件ID：17"),
        ("Zugriff verweigert", "Ihre Anfrage wurde von der Firewall blockiert. Referenznummer 17"),
        ("Acceso denegado", "Su dirección IP ha sido bloqueada por motivos de seguridad."),
    ] {
        let html = markup(title, &format!("<h1>{title}</h1><p>{text}</p>"));
        for status in [200, 403, 404, 405, 406, 410, 412, 418, 444, 456, 493, 499, 503] {
            let judgement = page(status, &html).judgement();
            assert_eq!(judgement.verdict, Verdict::Forbidden, "{status} {title}");
            assert_eq!(judgement.confidence, Confidence::High, "{status} {title}");
        }
        assert_eq!(page(429, &html).verdict(), Verdict::RateLimited, "{title}");
        assert_eq!(page(502, &html).verdict(), Verdict::Ok, "a CDN speaks of the site behind it");
    }
    for (title, body) in [
        (
            "404 Not Found",
            "<h1>Not Found</h1><p>The requested URL was not found on this server.</p>",
        ),
        ("410 Gone", "<h1>Gone</h1><p>This offer has expired.</p>"),
        (
            "Access denied | Site",
            "<h1>Access denied</h1><p>You are not authorized to access this page.</p>",
        ),
        ("Members only", "<h1>Access restricted</h1><p>Please log in to see this page.</p>"),
        (
            "Account suspended",
            "<h1>This account has been suspended.</h1><p>Contact your hosting provider.</p>",
        ),
        (
            "Not Acceptable",
            "<h1>Not Acceptable</h1><p>No variant of this resource suits the request.</p>",
        ),
        ("Precondition Failed", "<h1>412</h1><p>The resource has changed.</p>"),
        (
            "Firewall 3000",
            "<h1>Firewall 3000</h1><p>The best firewall against attacks. 99 EUR.</p>",
        ),
    ] {
        for status in [200, 404, 406, 410, 412, 422] {
            let judgement = page(status, &markup(title, body)).judgement();
            assert_eq!(
                judgement.verdict,
                Verdict::Ok,
                "{status} {title}: {:?}",
                judgement.evidence
            );
        }
    }
}

#[test]
fn too_many_requests_is_recognised_under_any_status() {
    for (title, text) in [
        (
            "Whoa there!",
            "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
        ),
        ("Error", "Too many requests. Your IP address has been blocked, try again later."),
        ("访问过于频繁", "请稍后再试"),
        ("Ошибка", "Слишком много запросов с вашего IP. Попробуйте позже, подождите."),
        ("Zu viele Anfragen", "Bitte warten Sie einen Moment."),
    ] {
        let html = markup(title, &format!("<p>{text}</p>"));
        for status in [200, 403, 418, 429, 503] {
            assert_eq!(page(status, &html).verdict(), Verdict::RateLimited, "{status} {text}");
        }
    }
    let forum = markup(
        "Blocked",
        "<h1>whoa there, pardner!</h1><p>Your request has been blocked due to a network policy.</p>",
    );
    assert_eq!(page(429, &forum).verdict(), Verdict::RateLimited);
    let article = markup("429 Too Many Requests", &format!("<p>{}</p>", prose(1_800)));
    assert_eq!(page(200, &article).verdict(), Verdict::Ok);
    let login =
        "<form>Too many attempts. Try again later. <input name=u><input type=password></form>";
    assert_eq!(page(200, &markup("Log in", login)).verdict(), Verdict::Ok);
}

#[test]
fn a_challenge_is_one_under_429_and_403_too() {
    let html = markup(
        "One moment",
        "<h1>Verify you are human</h1><p>Complete the challenge to continue.</p>",
    );
    for status in [403, 429] {
        assert_eq!(page(status, &html).verdict(), Verdict::Captcha, "{status}");
    }
}

#[test]
fn look_alikes_of_just_a_moment_are_not_cloudflares() {
    let text = "<p>Checking your browser before accessing. Please wait...</p>";
    assert_eq!(page(200, &markup("Just a moment...", text)).verdict(), Verdict::Captcha);
    let own = format!("{text}<p>Performance &amp; security by Cloudflare</p>");
    let verdict = page(200, &markup("Just a moment...", &own)).verdict();
    assert_eq!(verdict, Verdict::CloudflareChallenge);
}

#[test]
fn a_page_with_links_onward_is_never_a_wall() {
    let links: String = (0..20).map(|n| format!("<a href=/{n}>{n}</a>")).collect();
    let html = markup("Just a moment...", &format!("{links}<h1>Verify you are human</h1>"));
    let response = page(200, &html);
    assert_eq!(response.verdict(), Verdict::Ok);
    assert_eq!(page(403, &html).verdict(), Verdict::CloudflareChallenge, "refused by its status");
    let deep = markup("Verify you are human", &format!("{}<p>Please wait</p>", filler(9_000)));
    assert_eq!(page(200, &deep).verdict(), Verdict::Captcha);
}

/// The verdicts of two pages under 200.
fn verdicts(wall: (&str, &str), ordinary: (&str, &str)) -> (Verdict, Verdict) {
    let verdict = |(title, body)| page(200, &markup(title, body)).verdict();
    (verdict(wall), verdict(ordinary))
}

#[test]
fn a_quoted_message_does_not_count() {
    let words = "Your IP address may be on a list of our firewall.";
    let said = format!("<h1>Access denied</h1><p>{words}</p>");
    let cited = format!("<h1>What “access denied” stands for</h1><p>{words}</p>");
    let found = verdicts(("Access denied", &said), ("The words “access denied”", &cited));
    assert_eq!(found, (Verdict::Forbidden, Verdict::Ok));
}

#[test]
fn a_refusal_under_200_speaks_to_the_visitor() {
    let found = verdicts(
        ("Firewall", "<p>Your request was blocked by the firewall as suspicious.</p>"),
        ("Firewall", "<p>Every request that is suspicious gets blocked by the firewall.</p>"),
    );
    assert_eq!(found, (Verdict::Forbidden, Verdict::Ok));
}

#[test]
fn a_warning_about_possible_blocks_is_neither_a_refusal_nor_a_limit() {
    let found = verdicts(
        ("Notice", "<p>Your IP address has been blocked by the firewall: suspicious traffic.</p>"),
        (
            "Notice",
            "<p>Your IP address can be blocked by the firewall when we see suspicious traffic.</p>",
        ),
    );
    assert_eq!(found, (Verdict::Forbidden, Verdict::Ok));
    let found = verdicts(
        ("Notice", "<p>You have sent too many requests.</p>"),
        ("Notice", "<p>When we see too many requests, we ask for a pause.</p>"),
    );
    assert_eq!(found, (Verdict::RateLimited, Verdict::Ok));
}

#[test]
fn a_check_page_explains_the_next_step() {
    let script = "<script src=/c.js></script>";
    let found = verdicts(
        (
            "Shop",
            &format!(
                "<p>You look automated: we verify that you are no bot. Please wait.</p>{script}"
            ),
        ),
        ("Roles", &format!("<p>You verify that automated traffic is no bot.</p>{script}")),
    );
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
    let found = verdicts(
        ("Bot protection", "<p>Are you human? Check the box.</p><button>Go on</button>"),
        ("Bot protection", "<p>It tells humans from bots at your door.</p><button>Book</button>"),
    );
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
}

#[test]
fn a_page_about_the_message_of_a_check_is_not_a_check() {
    let pass = "Solve the captcha to continue: it shows that you are not a robot.";
    let script = "<script src=/c.js></script>";
    let found = verdicts(
        ("Unusual traffic", &format!("<p>We see unusual traffic. {pass}</p>{script}")),
        (
            "Unusual traffic",
            &format!("<p>The message appears for unusual traffic. {pass}</p>{script}"),
        ),
    );
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
    let pass = "Lösen Sie das Captcha, um fortzufahren: Es zeigt, dass Sie kein Roboter sind.";
    let found = verdicts(
        ("Datenverkehr", &format!("<p>Ungewöhnlicher Datenverkehr. {pass}</p>{script}")),
        ("Datenverkehr", &format!("<p>Die Meldung erscheint oft. {pass}</p>{script}")),
    );
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
    // A check with its own widget may explain itself.
    let explained =
        format!("<p>The message appears for unusual traffic. {pass}</p><div class=captcha></div>");
    assert_eq!(page(200, &markup("Verify", &explained)).verdict(), Verdict::Captcha);
}

#[test]
fn a_page_of_many_parts_is_not_a_check() {
    let ask = "<h1>Security check</h1><p>Confirm that you are human.</p><form><button>Yes</button></form>";
    let parts = |count| format!("{ask}{}", "<h2>Part</h2><p>Words.</p>".repeat(count));
    let found = verdicts(("Security check", &parts(3)), ("Security check", &parts(6)));
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
}

#[test]
fn a_choice_is_offered_to_known_visitors() {
    let choose = "<form><input type=radio name=a>One<input type=radio name=a>Two<button>Next</button></form>";
    let found = verdicts(
        (
            "Security check",
            &format!("<p>Which is an animal? Show that you are a human.</p>{choose}"),
        ),
        (
            "Security check",
            &format!(
                "<h1>Security check</h1><p>We don't recognise this device. Choose how to confirm that it is you.</p>{choose}"
            ),
        ),
    );
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
}

#[test]
fn a_list_of_addresses_refuses_nobody() {
    let found = verdicts(
        ("Blocked", "<p>192.0.2.1 blocked: too many scans.</p>"),
        (
            "Blocked",
            "<p>192.0.2.1 blocked, 192.0.2.2 blocked, 192.0.2.3 blocked: too many scans.</p>",
        ),
    );
    assert_eq!(found, (Verdict::Forbidden, Verdict::Ok));
}

#[test]
fn a_refusal_that_speaks_to_nobody_has_its_words_first_in_the_title() {
    let body = "<p>The firewall found suspicious automated requests.</p>";
    let found = verdicts(("Access denied", body), ("Readers: access denied", body));
    assert_eq!(found, (Verdict::Forbidden, Verdict::Ok));
}

#[test]
fn a_refusal_to_a_customer_is_not_a_wall() {
    let reason = "was blocked because of suspicious activity.";
    let found = verdicts(
        ("Request blocked", &format!("<p>Your request {reason}</p>")),
        ("Request blocked", &format!("<p>Your request for a payment {reason}</p>")),
    );
    assert_eq!(found, (Verdict::Forbidden, Verdict::Ok));
    let found = verdicts(
        ("요청 거부", "<p>비정상적인 접근이 확인되어 귀하의 요청이 거부되었습니다. 번호 17.</p>"),
        ("요청 거부", "<p>비정상적인 거래가 확인되어 귀하의 요청이 거부되었습니다. 번호 17.</p>"),
    );
    assert_eq!(found, (Verdict::Forbidden, Verdict::Ok));
}

#[test]
fn a_wall_speaks_of_this_request_and_not_of_any() {
    let blocked = "was blocked by the firewall. The event ID is in the log.</p>";
    let found = verdicts(
        ("Firewall", &format!("<p>Your request {blocked}")),
        ("Firewall", &format!("<p>It tells the owner if a request that matches a rule {blocked}")),
    );
    assert_eq!(found, (Verdict::Forbidden, Verdict::Ok));
    let found = verdicts(
        ("Zugriff verweigert", "<p>Ihre Anfrage wurde von der Firewall blockiert, Nummer 17.</p>"),
        ("Zugriff verweigert", "<p>So heißt es, wenn eine Anfrage blockiert wurde: Firewall.</p>"),
    );
    assert_eq!(found, (Verdict::Forbidden, Verdict::Ok));
}

#[test]
fn an_explanation_of_a_status_is_not_a_rate_limit() {
    let found = verdicts(
        ("Rate limit exceeded", "<p>Your client has sent too many requests in a minute.</p>"),
        (
            "Rate limit exceeded",
            "<p>The answer of a server to those who have sent too many requests in a minute.</p>",
        ),
    );
    assert_eq!(found, (Verdict::RateLimited, Verdict::Ok));
}

#[test]
fn a_title_that_asks_something_heads_no_refusal() {
    let body = "<p>Your IP address was blocked by the firewall.</p>";
    let found = verdicts(("Access denied", body), ("Is the access denied?", body));
    assert_eq!(found, (Verdict::Forbidden, Verdict::Ok));
    // Below a title that refuses, walls ask why themselves.
    let asks =
        "<h2>Why was I blocked?</h2><p>The firewall thinks that your visit is an attack.</p>";
    assert_eq!(page(200, &markup("Access denied", asks)).verdict(), Verdict::Forbidden);
}

#[test]
fn a_host_name_in_a_title_is_not_the_purpose_of_a_page() {
    let body = "<p>Your IP address was blocked by the firewall.</p>";
    let found = verdicts(
        ("Access denied | api.site.example", body),
        ("Access denied | API reference", body),
    );
    assert_eq!(found, (Verdict::Forbidden, Verdict::Ok));
}

#[test]
fn a_page_with_a_topic_needs_more_than_the_question_for_a_human() {
    let ask = "Are you human? Press and hold the button.";
    let found = verdicts(
        ("Wait", &format!("<h1>Wait</h1><p>{ask}</p>")),
        ("Wooden puzzles", &format!("<h1>Wooden puzzles</h1><p>{ask}</p>")),
    );
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
}

#[test]
fn a_check_that_nobody_can_pass_is_about_checks() {
    let text = "<h1>Security check</h1><p>A security check takes a few seconds.</p>";
    let passed = format!("{text}<script src=/c.js></script>");
    let found = verdicts(("Security check", &passed), ("Security check", text));
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
}

#[test]
fn a_name_in_a_mail_address_does_not_count() {
    let text = "<p>This IP has been automatically blocked. Write to";
    let found = verdicts(
        ("Blocked", &format!("{text} blocks@site.example</p>")),
        ("Blocked", &format!("{text} us. Our firewall blocks attacks.</p>")),
    );
    assert_eq!(found, (Verdict::Forbidden, Verdict::Ok));
}

#[test]
fn a_server_s_bare_refusal_leads_nowhere() {
    let body = "<h1>403 Forbidden</h1><p>The server refuses to do this.</p>";
    let linked = format!("{body}<a href=/statuses>All statuses</a>");
    let found = verdicts(("403 Forbidden", body), ("403 Forbidden", &linked));
    assert_eq!(found, (Verdict::Forbidden, Verdict::Ok));
}

#[test]
fn noscript_fields_and_captcha_letters_ask_for_no_personal_data() {
    let text =
        "<p>Checking that you are human. Please wait.</p><script src=/challenge.js></script>";
    let field = "<textarea name=solution></textarea><input name=more>";
    let found = verdicts(
        ("Hold on", &format!("{text}<noscript><form>{field}</form></noscript>")),
        ("Hold on", &format!("{text}<form>{field}</form>")),
    );
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
    let text = "<p>Show that you are a human being, not a robot.</p>";
    let found = verdicts(
        ("Verification", &format!("{text}<img src=letters.png><form><input name=letters></form>")),
        (
            "Verification",
            &format!("{text}<img src=logo.png><form><input type=email name=mail></form>"),
        ),
    );
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
}

#[test]
fn a_shell_without_a_title_that_calls_a_challenge_is_one_and_an_application_with_a_widget_is_not() {
    let challenge =
        "<p>Please enable JS</p><script src=https://ct.site.example/captcha/c.js></script>";
    let widget =
        "<p>Please enable JS</p><script src=https://www.google.com/recaptcha/api.js></script>";
    let found = verdicts(("shop.example", challenge), ("shop.example", widget));
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
    let application = format!("<div id=root></div>{challenge}");
    let bundled = format!("{challenge}<script src=/bundle.js></script>");
    let found = verdicts(("shop.example", &application), ("shop.example", &bundled));
    assert_eq!(found, (Verdict::Ok, Verdict::Ok));
}

#[test]
fn a_page_with_nothing_but_scripts_that_nobody_shall_index_is_a_check() {
    let wall = "<meta name=robots content=noindex><script src=/x?a=1></script><iframe></iframe>";
    let stub = "<meta name=robots content=noindex><script>location.href='/home'</script>";
    let found = verdicts(("", wall), ("", stub));
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
    assert_eq!(page(200, &markup("Mail", wall)).verdict(), Verdict::Ok);
    let sent_on = format!("{wall}<meta http-equiv=refresh content='0;url=/shop'>");
    assert_eq!(page(200, &markup("", &sent_on)).verdict(), Verdict::Ok);
}

#[test]
fn a_title_that_refuses_over_a_page_that_only_runs_scripts_is_a_check() {
    let body = "<script src=/x.js></script>";
    let found = verdicts(("Access denied", body), ("Accounting", body));
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
}

#[test]
fn a_refusal_that_sets_a_challenge_is_a_captcha() {
    let text = "<h1>Unusual behaviour</h1><p>Something about this browser is unusual.</p>";
    let asks = markup("Unusual behaviour", &format!("{text}<div id=captcha></div>"));
    assert_eq!(page(403, &asks).verdict(), Verdict::Captcha);
    assert_eq!(page(403, &markup("Unusual behaviour", text)).verdict(), Verdict::Forbidden);
}

#[test]
fn a_short_page_that_only_names_the_blocked_client_is_a_wall() {
    let body = "<p>You have been blocked.</p>";
    let found = verdicts(("Blocked", body), ("@ana", body));
    assert_eq!(found, (Verdict::Forbidden, Verdict::Ok));
    let linked = format!("{body}<a href=/a>Posts</a><a href=/b>People</a>");
    let long = format!("{body}<p>{}</p>", "More words about it. ".repeat(20));
    let found = verdicts(("Blocked", &linked), ("Blocked", &long));
    assert_eq!(found, (Verdict::Ok, Verdict::Ok));
    let found = verdicts(
        ("Company", "<p>The administrator has blocked your IP from accessing this website.</p>"),
        ("Company", "<p>The teacher has blocked your draft from being sent to this class.</p>"),
    );
    assert_eq!(found, (Verdict::Forbidden, Verdict::Ok));
}

#[test]
fn a_refusal_that_shows_the_address_of_the_visitor_may_explain_itself() {
    let text = "What does that mean? Your request has been refused to prevent attacks.";
    let found = verdicts(
        ("403", &format!("<p>{text} Your IP address: 192.0.2.9</p>")),
        ("403", &format!("<p>{text} Ask your provider.</p>")),
    );
    assert_eq!(found, (Verdict::Forbidden, Verdict::Ok));
}

#[test]
fn a_page_that_asks_nobody_and_offers_nothing_only_mentions_checks() {
    let text = "<p>Bot protection with proof of work for small servers";
    let found = verdicts(
        ("Tool", &format!("{text}: your browser is being checked.</p>")),
        ("Tool", &format!("{text}, in three lines.</p>")),
    );
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
}

#[test]
fn a_page_that_reloads_itself_and_shows_nothing_but_a_title_is_a_check() {
    let body = "<div class=spin></div><script>setTimeout(()=>location.reload(),5000)</script>";
    let found = verdicts(("One moment, please...", body), ("Slides", body));
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
    let bundled = format!("{body}<script src=/app.js></script>");
    let said = format!("{body}<p>We are preparing your order.</p>");
    let found = verdicts(("One moment", &bundled), ("One moment", &said));
    assert_eq!(found, (Verdict::Ok, Verdict::Ok));
}

#[test]
fn a_script_under_202_and_nothing_else_is_a_check() {
    let script = markup("", "<script src=/C2/probe.js></script>");
    assert_eq!(page(202, &script).verdict(), Verdict::Captcha);
    assert_eq!(page(200, &script).verdict(), Verdict::Ok);
    let said = markup("", "<p>Accepted</p><script src=/C2/probe.js></script>");
    assert_eq!(page(202, &said).verdict(), Verdict::Ok);
}

#[test]
fn a_title_that_refuses_over_a_script_that_leads_to_a_login_is_the_site_s_own() {
    let script = |path: &str| format!("<script>show();location.href='{path}'</script>");
    let (wall, login) = (script("/x?c=1"), script("/login.php"));
    let found = verdicts(("Access denied", &wall), ("Access denied", &login));
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
}

#[test]
fn a_widget_with_a_request_to_complete_the_check_needs_no_form() {
    let widget = "<div class=cf-turnstile></div><script src=https://w.site.example/t.js></script>";
    let found = verdicts(
        ("Verifying access", &format!("<p>Complete the check to continue.</p>{widget}")),
        ("Verifying access", &format!("<p>Our shop opens soon.</p>{widget}")),
    );
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
}

#[test]
fn a_host_that_has_used_up_its_resources_limits_nobody() {
    let body = "<p>Your request exceeded the limit. Too many requests.</p>";
    for status in [508, 509] {
        assert_eq!(page(status, &markup("Limit", body)).verdict(), Verdict::Ok);
    }
    assert_eq!(page(503, &markup("Limit", body)).verdict(), Verdict::RateLimited);
}

#[test]
fn a_title_that_checks_the_browser_over_a_widget_alone_is_a_check() {
    let widget = "<div id=recaptcha></div><script src=https://w.site.example/r.js></script>";
    let application = format!("<div id=root></div>{widget}");
    let title = "Checking your browser";
    let found = verdicts((title, widget), (title, &application));
    assert_eq!(found, (Verdict::Captcha, Verdict::Ok));
}
