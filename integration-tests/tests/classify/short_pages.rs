//! Short pages: walls of one or two sentences, and ordinary pages that say nearly the same.

use tidegate::classify::verdict::Verdict;

use crate::page;

/// The verdict of a page with this title and text, and of one with a button and a script too.
fn verdicts(title: &str, text: &str) -> [Verdict; 2] {
    let plain = format!("<title>{title}</title><body><h1>{title}</h1><p>{text}</p></body>");
    let active = format!(
        "<title>{title}</title><meta name=robots content=noindex><body><p>{text}</p><form method=post>\
         <input type=hidden name=t value=1><button>OK</button></form><script src=/a.js></script></body>"
    );
    [page(200, &plain).verdict(), page(200, &active).verdict()]
}

fn assert_ordinary(pages: &[(&str, &str)]) {
    for (title, text) in pages {
        assert_eq!(verdicts(title, text), [Verdict::Ok, Verdict::Ok], "{title}: {text}");
    }
}

#[test]
fn a_page_that_takes_its_visitor_for_a_program_is_a_refusal() {
    for text in [
        "Sorry, this request looks automated.",
        "Your traffic appears to be automated.",
        "You are now banned.",
        "You were identified as a bot.",
    ] {
        assert_eq!(page(200, &format!("<p>{text}</p>")).verdict(), Verdict::Forbidden, "{text}");
        let reply = format!("<title>Forum</title><p>{text}</p>");
        assert_eq!(page(200, &reply).verdict(), Verdict::Ok, "{text}");
    }
}

#[test]
fn an_accusation_with_a_demand_for_a_proof_is_a_check() {
    let html = "<p>Sorry, your request looks automated. Prove that you are human.</p>";
    assert_eq!(page(200, html).verdict(), Verdict::Captcha);
}

#[test]
fn a_page_whose_only_sentence_demands_a_proof_is_a_check() {
    for (title, text) in [
        ("Security", "Press & hold to confirm that you are a human."),
        ("Boutique", "Vérifiez que vous êtes un humain."),
    ] {
        assert_eq!(verdicts(title, text)[0], Verdict::Captcha, "{text}");
    }
    // Without the demand, or with more to read, it is only about checks.
    let long = "Confirm that you are a human. Our robots stay at home today, as they do each week, \
        while we paint the hall.";
    let question = "Vase. Verify that you are human? Read about our checkout.";
    for text in ["Are you human? No robots here, and no fees.", long, question] {
        assert_eq!(verdicts("Gallery", text)[0], Verdict::Ok, "{text}");
    }
}

#[test]
fn a_button_to_hold_is_no_proof() {
    assert_ordinary(&[
        ("Router manual", "Press and hold the reset button for ten seconds."),
        ("Reset", "Hold the button until the light turns blue. You can then continue."),
    ]);
}

#[test]
fn a_wait_for_something_else_than_the_visitor_is_no_check() {
    assert_ordinary(&[
        ("Service", "Please wait while we verify the papers."),
        ("Call", "Establishing a secure connection to the meeting. Please wait."),
        ("Editor", "Checking your browser for WebGL support. Please wait."),
        ("Player", "Checking the compatibility of your browser. Please wait."),
        ("DDoS protection", "No attacks on your server today."),
    ]);
}

#[test]
fn a_block_among_members_is_the_site_s_own() {
    assert_ordinary(&[
        ("Blocked", "You have been blocked from posting here."),
        ("Request blocked", "Your friend request was blocked."),
        ("Request blocked", "Your request to join was blocked."),
        ("Bot detected", "Our bot detected a new message."),
    ]);
}

#[test]
fn a_report_of_a_block_that_an_operator_set_is_the_site_s_own() {
    let text = "This address has been added to the block list: 192.0.2.8. Back to dashboard.";
    assert_ordinary(&[("IP blocked", text)]);
}

#[test]
fn a_refusal_by_role_is_the_site_s_own() {
    assert_ordinary(&[
        ("Acceso bloqueado", "Tu cuenta (rol ventas) no tiene acceso. IP: 192.0.2.8"),
        ("Access blocked", "Your role in your account has no access. IP: 192.0.2.8"),
    ]);
}

#[test]
fn a_limit_of_attempts_is_about_a_login() {
    assert_ordinary(&[
        ("Access blocked", "You exceeded the number of attempts. Try again later."),
        ("Acceso bloqueado", "Ha excedido el máximo de intentos. Espere."),
        ("Accès bloqué", "Vous avez dépassé le nombre d'essais de connexion. Patientez."),
        ("Zugriff gesperrt", "Zu viele Anmeldeversuche. Bitte warten."),
        ("Acesso bloqueado", "Muitas tentativas de login. Aguarde."),
        ("Доступ закрыт", "Слишком много неудачных попыток. Подождите."),
        (
            "Accès bloqué",
            "Trop de tentatives de connexion : votre accès est bloqué pour des raisons de sécurité.",
        ),
    ]);
}

#[test]
fn a_security_check_with_a_code_for_the_phone_is_a_login() {
    assert_ordinary(&[
        ("Verificación de seguridad", "Introduzca el código que le enviamos."),
        ("Проверка доступа", "Введите код из СМС."),
        ("Проверка безопасности", "Банк проверяет ваш платёж. Подождите."),
        ("安全验证", "请输入您手机收到的验证码。"),
        ("安全检查", "正在检查您的文件，请稍候。"),
        ("セキュリティ確認", "メールに届いたコードを入力してください。"),
        ("보안 확인", "받은 인증번호를 입력하세요."),
        ("Güvenlik kontrolü", "Telefonunuza gelen kodu girin."),
        ("Sicherheitsabfrage", "Möchten Sie den Eintrag wirklich löschen?"),
    ]);
}

#[test]
fn a_request_that_somebody_made_to_an_office_is_refused_by_people() {
    assert_ordinary(&[
        ("Request rejected", "Your refund request was rejected. Case number 12."),
        ("Request denied", "Your visa request was denied. Reference number 12."),
        ("Anfrage abgelehnt", "Ihre Kreditanfrage wurde abgelehnt. Vorgangsnummer 12."),
        ("Demande refusée", "Votre demande de bourse a été rejetée. Référence 12."),
        ("Solicitud rechazada", "Su solicitud de beca ha sido rechazada. Referencia 12."),
        ("Solicitação negada", "Sua solicitação de crédito foi negada. Referência 12."),
        ("Заявка отклонена", "Ваш запрос отклонён. Номер обращения 12."),
        ("请求被拒绝", "您的退款请求被拒绝。编号 12"),
        ("Withdrawal blocked", "Your withdrawal request was blocked for security reasons."),
    ]);
}

#[test]
fn a_limit_of_votes_devices_or_comments_is_the_site_s_own() {
    assert_ordinary(&[
        ("Voting closed", "Too many votes from your IP address: one per household."),
        ("Too many sessions", "You are signed in on too many devices."),
        ("Too many attempts", "Too many wrong codes. Please wait ten minutes."),
        ("Requests", "You made 1,204 requests this month. Limit: 10,000 requests."),
        ("操作频繁", "您发表评论过于频繁，请稍后再试。"),
        ("Quota exceeded", "Your mailbox is full."),
        ("Message limit", "You are sending messages too fast. Wait a moment."),
        ("Zu viele Anfragen", "Unsere Antwort verspätet sich wegen zu vieler Anfragen."),
        ("下载", "下载次数过多，请明天再试。"),
    ]);
}

#[test]
fn an_account_or_a_game_that_shuts_somebody_out_is_the_site_s_own() {
    assert_ordinary(&[
        ("Account restricted", "Your access is limited until you confirm your address."),
        ("You are banned", "You are banned from this game server. Reason: cheating."),
        ("Вы заблокированы", "Вы заблокированы в этом чате."),
        ("Compte bloqué", "Votre compte a été bloqué pour des raisons de sécurité."),
        ("Pop-up", "Your request was blocked by your pop-up blocker."),
    ]);
}

#[test]
fn tools_and_offers_for_owners_of_sites_ask_nobody_for_a_proof() {
    assert_ordinary(&[
        ("Bot protection", "Protect your website against bots with one line of code."),
        ("Robots", "Verify that your robots.txt is correct."),
        ("robots.txt tester", "Checking whether crawlers are allowed on a page."),
        ("Proof of work", "Proof of work secures the blockchain."),
        ("Verification required", "To sell here you must verify your business."),
        ("Browser check", "Your browser is up to date."),
        ("Browser check", "Please turn on JavaScript or use another web browser."),
        ("Проверка безопасности устройства", "Этот инструмент показывает, что видно о браузере."),
        ("Firewall log", "192.0.2.7 blocked at 12:01"),
        ("Thank you", "Thank you for confirming that you are human. Your vote was counted."),
    ]);
}

#[test]
fn a_wait_before_something_of_the_site_s_own_is_no_challenge() {
    assert_ordinary(&[
        ("Please wait...", "You are being logged out, please wait. You will be redirected."),
        ("Just a moment", "We are preparing your download. Please wait."),
    ]);
}

#[test]
fn a_robot_that_checks_something_is_asked_for_no_proof() {
    assert_ordinary(&[
        ("Roboter", "Der Roboter prüft die Naht."),
        ("Робот", "Робот проверяет детали."),
        ("ロボット", "ロボットが部品を確認しています。"),
        ("로봇", "로봇이 부품을 확인하고 있습니다."),
    ]);
    assert_eq!(verdicts("Check", "Verify that your visit is no bot's.")[1], Verdict::Captcha);
}

#[test]
fn a_security_check_that_says_how_to_pass_it_needs_no_title_of_a_check() {
    let text = "Complete the security check to access this page.";
    assert_eq!(verdicts("One more step", text)[0], Verdict::Captcha);
    let report = "Our complete security check of the bridge took a week.";
    assert_eq!(verdicts("One more step", report)[0], Verdict::Ok);
}

#[test]
fn too_many_of_something_other_than_requests_is_not_a_limit() {
    assert_ordinary(&[
        ("Stream limit", "You are watching on too many screens."),
        ("Basket", "You have been choosing too many vouchers."),
    ]);
    let refusal = "You were too fast and are blocked for a while. Try again later.";
    assert_eq!(verdicts("Too fast", refusal)[0], Verdict::RateLimited);
}

#[test]
fn a_service_that_looks_an_address_up_refuses_nobody() {
    assert_ordinary(&[
        ("Look-up", "Your IP 192.0.2.7 is not blocked by our firewall."),
        ("Look-up", "Your IP 192.0.2.7 was blocked after five tries. It is unblocked now."),
        ("Site audit", "4 pages return 403 Forbidden. Your firewall may block our crawler."),
    ]);
}

#[test]
fn terms_and_a_question_before_a_post_are_the_site_s_own() {
    assert_ordinary(&[
        ("Terms", "Automated access to this site is not permitted. You may not copy it."),
        ("Anti-spam", "To stop bots, please answer this question before you post: 3 + 4?"),
        ("Board", "You have been blocked by a moderator. Your posts are hidden."),
    ]);
}

#[test]
fn a_widget_alone_under_the_title_of_a_security_check_is_a_check() {
    let widget =
        |text| format!("<title>Security Check</title><p>{text}</p><div id=captcha_box></div>");
    assert_eq!(page(200, &widget("Please verify")).verdict(), Verdict::Captcha);
    let report = "We looked at every door and window of the house. All of them were closed.";
    assert_eq!(page(200, &widget(report)).verdict(), Verdict::Ok);
}
