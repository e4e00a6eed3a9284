//! Pages about a form that must be sent again, and refusals that a page about a form resembles.

use tidegate::classify::verdict::Verdict;

use crate::page;

fn verdict(status: u16, title: &str, text: &str) -> Verdict {
    let html = format!("<title>{title}</title><body><h1>{title}</h1><p>{text}</p></body>");
    page(status, &html).verdict()
}

#[test]
fn a_form_that_must_be_sent_again_refuses_no_visitor() {
    for (title, text) in [
        ("Request blocked", "Your form token is stale. Open the form once more and send it."),
        ("Request rejected", "We stopped a forged request to protect you. Please submit it again."),
        ("403 Forbidden", "The CSRF cookie of your browser is missing, so this was blocked."),
        ("Zugriff verweigert", "Ihr Sicherheitstoken passt nicht. Senden Sie das Formular erneut."),
        ("Accès refusé", "Le jeton de sécurité a changé. Veuillez renvoyer le formulaire."),
        ("Acceso denegado", "Su token de seguridad cambió. Vuelva a enviar el formulario."),
        ("Acesso negado", "Seu token de segurança mudou. Preencha e envie o formulário."),
        ("Accesso negato", "Il token di sicurezza non vale più: la tua richiesta è bloccata."),
        ("Доступ запрещён", "Ваш токен безопасности устарел, запрос отклонён. Откройте форму."),
        ("Dostęp zabroniony", "Twój token bezpieczeństwa wygasł. Otwórz formularz ponownie."),
        ("访问被拒绝", "您的表单令牌无效，请求已被拒绝。请重新打开页面。"),
        ("アクセス拒否", "フォームのトークンが一致しないため、お客様の送信を拒否しました。"),
        ("접근 거부", "보안 토큰이 만료되어 귀하의 요청이 거부되었습니다."),
    ] {
        assert_eq!(verdict(200, title, text), Verdict::Ok, "{text}");
        assert_eq!(verdict(419, title, text), Verdict::Ok, "{text}");
    }
}

#[test]
fn a_refusal_under_the_same_title_stays_one() {
    for (title, text) in [
        ("Request blocked", "The firewall takes your request for an attack. Case number 12."),
        ("Zugriff verweigert", "Unsere Firewall hat Ihre Anfrage blockiert. Vorgangsnummer 12."),
        ("Accès refusé", "Notre pare-feu a bloqué votre requête. Numéro de référence 12."),
        ("Acceso denegado", "Nuestro cortafuegos ha bloqueado su solicitud. Referencia 12."),
        ("Доступ запрещён", "Ваш запрос заблокирован межсетевым экраном. Номер инцидента 12."),
        ("访问被拒绝", "防火墙拦截了您的请求。事件编号：12"),
        ("Erişim engellendi", "Bu yerde ip adresiniz yasaklandı."),
        ("", "Sorry, bots are not allowed here."),
    ] {
        for status in [200, 406] {
            assert_eq!(verdict(status, title, text), Verdict::Forbidden, "{status} {text}");
        }
    }
}

#[test]
fn a_blocked_login_and_a_list_of_blocks_are_the_site_s_own() {
    for (title, text) in [
        ("Access blocked", "Your login was blocked since the attempt looked suspicious."),
        ("Acesso bloqueado", "Seu login foi bloqueado por atividade suspeita."),
        ("Acceso bloqueado", "Su inicio de sesión fue bloqueado por actividad sospechosa."),
        (
            "Blocked addresses - Settings",
            "Your firewall blocked this IP: 192.0.2.7. Unblock it here.",
        ),
        ("Antibot.site", "You came in as a guest. Enjoy the tour."),
    ] {
        assert_eq!(verdict(200, title, text), Verdict::Ok, "{text}");
    }
}
