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
    for text in ["Are you human? No robots here, and no fees.", long] {
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
    ]);
}
