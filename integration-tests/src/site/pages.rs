//! The responses of a site: an ordinary page, each of the walls, and every kind of missing
//! response.
//!
//! The walls have the marks of real ones (headers, titles, scripts), on pages written for these
//! tests.

use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::body::Script;

/// One scripted response.
#[derive(Debug, Clone)]
pub enum Page {
    /// 200 and an ordinary page.
    Ok,
    /// 200 and a page with links to `/item/1`, `/item/2`, ... up to this number.
    Index(usize),
    /// 200 and a page that shows `/image/1`, `/image/2`, ... up to this number.
    Gallery(usize),
    /// 200 and a PNG image's content type.
    Image,
    /// 403 and a plain page.
    Forbidden,
    /// 429, with this `Retry-After` if there is one.
    TooManyRequests(Option<String>),
    /// 403 and a captcha wall (the marks of HUMAN).
    Captcha,
    /// 403 and Cloudflare's challenge.
    CloudflareChallenge,
    /// 200 and an HTML page without content.
    Blank,
    /// 200 and this HTML page.
    Html(String),
    /// [`Page::Ok`] with these fields.
    Says(Vec<(&'static str, String)>),
    /// 200 and this plain text.
    Text(String),
    /// 404 and a plain page.
    NotFound,
    /// This status and a plain page.
    Status(u16),
    /// [`Page::Ok`] after this time.
    Slow(Duration),
    /// No response.
    Hang,
    /// [`Page::Ok`], after [`super::Site::release`] was called.
    Held,
    /// 429 with this `Retry-After`, after [`super::Site::release`] was called.
    HeldWall(String),
    /// A reset (RST) after the request's head was read.
    Reset,
    /// A head that announces more body than is sent: so many KiB.
    CutOff(u64),
    /// 200 and `times` chunks of 4 KiB plain text, one each `pause`.
    Chunked {
        /// How many.
        times: u64,
        /// Before each.
        pause: Duration,
    },
    /// 200 and this many MiB of zeros, as fast as the client reads them.
    Mebibytes(u64),
    /// 200 and the head of the request, as text.
    Echo,
    /// 200 and the number of bytes in the request's body, as text.
    Upload,
    /// 101, then an echo of every byte.
    Upgrade,
    /// 200 and a page that sends a message to `/ws` over a WebSocket and requests `/echo/` with the
    /// reply. It waits for `/last`.
    Chat,
    /// 101, then an echo of every short message of a WebSocket.
    WebSocket,
}

impl Page {
    /// The status of the response.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Forbidden | Self::Captcha | Self::CloudflareChallenge => 403,
            Self::TooManyRequests(_) | Self::HeldWall(_) => 429,
            Self::NotFound => 404,
            Self::Status(status) => *status,
            Self::Upgrade | Self::WebSocket => 101,
            _ => 200,
        }
    }
}

/// Enough words that the page does not count as blank.
const PROSE: &str = "<p>The harbour of this small town has been in use for four hundred years. Fishing boats \
leave before sunrise and come back at noon, when the market opens and half of the town meets on the quay.</p>\
<p>Visitors reach it by the coastal road or, in summer, with the ferry that calls twice a day. The museum beside \
the old crane shows tools, sails and letters of three generations of boat builders.</p>";

fn html(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title></head>\
         <body><h1>{title}</h1>{body}</body></html>"
    )
}

fn plain(title: &str) -> String {
    format!("<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>")
}

/// The response to `request`, whose body had `received` bytes.
pub(super) fn render(page: &Page, request: &Request<Incoming>, received: u64) -> Response<Script> {
    let (kind, script) = match page {
        Page::Image => ("image/png", Script::whole(&b"\x89PNG\r\n\x1a\n"[..])),
        Page::Chunked { times, pause } => {
            ("text/plain", Script::repeat(vec![b'a'; 4096], *times).paced(*pause).chunked())
        }
        Page::Mebibytes(n) => ("application/octet-stream", Script::repeat(vec![0; 1 << 20], *n)),
        Page::Text(text) => ("text/plain", Script::whole(text.clone())),
        Page::Echo => ("text/plain", Script::whole(head_as_text(request))),
        Page::Upload => ("text/plain", Script::whole(received.to_string())),
        Page::CutOff(kib) => {
            let kibibyte =
                html("Half a page", PROSE).bytes().cycle().take(1024).collect::<Vec<_>>();
            ("text/html", Script::repeat(kibibyte, *kib).cut_off())
        }
        _ => ("text/html; charset=utf-8", Script::whole(text(page))),
    };
    let mut response = Response::new(script);
    *response.status_mut() = StatusCode::from_u16(page.status()).expect("tests use real statuses");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    match page {
        Page::TooManyRequests(Some(wait)) | Page::HeldWall(wait) => {
            let wait = HeaderValue::from_str(wait).expect("tests send clean values");
            headers.insert(header::RETRY_AFTER, wait);
        }
        Page::Says(fields) => {
            for (name, value) in fields {
                headers.insert(*name, value.parse().expect("tests send clean values"));
            }
        }
        Page::CloudflareChallenge => {
            headers.insert(header::SERVER, HeaderValue::from_static("cloudflare"));
            headers.insert("cf-mitigated", HeaderValue::from_static("challenge"));
            headers.insert("cf-ray", HeaderValue::from_static("8a1b2c3d4e5f6789-FRA"));
        }
        Page::CutOff(_) => {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("10000000"));
        }
        _ => {}
    }
    response
}

fn text(page: &Page) -> String {
    match page {
        Page::Index(items) => {
            let link = |n| format!("<p><a href=\"/item/{n}\">Chapter {n}</a></p>");
            let links: String = (1..=*items).map(link).collect();
            html("Contents", &format!("{PROSE}{links}"))
        }
        Page::Gallery(images) => {
            let image = |n| format!("<p><img src=\"/image/{n}\" alt=\"Picture {n}\"></p>");
            let images: String = (1..=*images).map(image).collect();
            html("Pictures", &format!("{PROSE}{images}"))
        }
        Page::Chat => html(
            "Chat",
            &format!(
                "{PROSE}<img src=\"/last\"><script>\
                 const chat = new WebSocket('wss://' + location.host + '/ws');\
                 chat.onopen = () => chat.send('hello');\
                 chat.onmessage = (message) => fetch('/echo/' + message.data);</script>"
            ),
        ),
        Page::Html(html) => html.clone(),
        Page::Forbidden => plain("403 Forbidden"),
        Page::TooManyRequests(_) | Page::HeldWall(_) => plain("429 Too Many Requests"),
        Page::NotFound => plain("404 Not Found"),
        Page::Status(status) => plain(&format!("Status {status}")),
        Page::Blank => "<html><head></head><body></body></html>".to_owned(),
        Page::Captcha => "<!doctype html><html><head><title>Access to this page has been denied</title></head><body>\
            <h1>Press &amp; Hold to confirm you are a human (and not a bot).</h1>\
            <div id=\"px-captcha\"></div><script>window._pxAppId='PXtest';</script>\
            <script src=\"https://captcha.px-cdn.net/PXtest/captcha.js\"></script></body></html>"
            .to_owned(),
        Page::CloudflareChallenge => "<!DOCTYPE html><html lang=\"en-US\"><head><title>Just a moment...</title>\
            <meta http-equiv=\"refresh\" content=\"360\"></head><body><div class=\"main-wrapper\"><noscript>\
            Enable JavaScript and cookies to continue</noscript></div><script>(function(){window._cf_chl_opt=\
            {cvId:'3',cZone:'site.example',cType:'managed'};var a=document.createElement('script');\
            a.src='/cdn-cgi/challenge-platform/h/b/orchestrate/chl_page/v1';\
            document.head.appendChild(a);}());</script></body></html>"
            .to_owned(),
        _ => html("The harbour", PROSE),
    }
}

fn head_as_text(request: &Request<Incoming>) -> String {
    let mut text = format!("{} {} {:?}\n", request.method(), request.uri(), request.version());
    for (name, value) in request.headers() {
        text.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
    }
    text
}

/// Reads the body of a request to its end and returns its length.
pub(super) async fn swallow(body: &mut Incoming) -> Result<u64, std::io::Error> {
    let mut received = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(std::io::Error::other)?;
        received += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
    Ok(received)
}
