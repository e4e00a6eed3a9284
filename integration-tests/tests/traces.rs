//! Traces: if the environment names a collector, every request is a span, with a span for each step
//! of its path. The collector is a real HTTP server on loopback that parses OTLP.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use integration_tests::{
    client::{Raw, get, get_with},
    member::{Member, RuleFile},
    site::{Page, Site},
    wait::wait_until,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;

const SOON: Duration = Duration::from_secs(20);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const SERVER: u64 = 2;
const CLIENT: u64 = 3;
const ERROR: u64 = 2;

/// A collector of OTLP over HTTP.
#[derive(Clone)]
struct Collector {
    address: SocketAddr,
    came: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
    /// The status of its responses.
    status: Arc<Mutex<StatusCode>>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let collector =
            Self { address, came: Arc::default(), status: Arc::new(Mutex::new(StatusCode::OK)) };
        let served = collector.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let served = served.clone();
                tokio::spawn(async move {
                    let service = service_fn(|request| served.take(request));
                    http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await
                        .ok();
                });
            }
        });
        collector
    }

    async fn take(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.expect("the export is whole").to_bytes();
        let status = *self.status.lock();
        if status.is_success() {
            assert_eq!((head.method.as_str(), head.uri.path()), ("POST", "/v1/traces"));
            assert_eq!(head.headers["content-type"], "application/json");
            let json = serde_json::from_slice(&body).expect("the export is JSON");
            self.came.lock().push((head.headers, json));
        }
        let mut response = Response::new(Full::from("{}"));
        *response.status_mut() = status;
        Ok(response)
    }

    /// All spans that came.
    fn spans(&self) -> Vec<Span> {
        let came = self.came.lock();
        let exports = came.iter().flat_map(|(_, json)| list(&json["resourceSpans"]));
        let scopes = exports.flat_map(|resource| list(&resource["scopeSpans"]));
        scopes.flat_map(|scope| list(&scope["spans"])).map(Span::read).collect()
    }

    /// The spans of the only request whose span has this attribute, once they have arrived: the
    /// request's own first, then its steps by their start.
    async fn trace_with(&self, key: &str, value: &str) -> Vec<Span> {
        let mut found = Vec::new();
        wait_until(&format!("a trace with {key}={value}"), SOON, async || {
            let spans = self.spans();
            let roots = spans.iter().filter(|span| span.kind == SERVER);
            let mut named = roots.filter(|span| span.is(key, value));
            let Some(root) = named.next().cloned() else { return false };
            assert!(named.next().is_none(), "more than one: {spans:?}");
            found = spans.into_iter().filter(|span| span.parent == root.id).collect();
            found.sort_by_key(|span| span.begin);
            found.insert(0, root);
            true
        })
        .await;
        found
    }

    fn variables(&self, more: &str) -> String {
        format!(
            "export OTEL_EXPORTER_OTLP_ENDPOINT=http://{} OTEL_BSP_SCHEDULE_DELAY=50 {more}",
            self.address
        )
    }
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("{value} is not a list"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a text")).to_owned()
}

/// A span, read as the specification writes it.
#[derive(Debug, Clone)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    name: String,
    kind: u64,
    begin: u64,
    end: u64,
    attributes: Vec<(String, String)>,
    failed: bool,
}

impl Span {
    fn read(json: &Value) -> Self {
        let hex = |value: &Value, digits: usize| {
            let id = text(value);
            let good = id.len() == digits && id.bytes().all(|b| b.is_ascii_hexdigit());
            assert!(good && id.bytes().any(|b| b != b'0'), "{id} is not an id of {digits} digits");
            id
        };
        let nanoseconds =
            |value: &Value| text(value).parse::<u64>().expect("a time in nanoseconds");
        let attribute = |attribute: &Value| {
            let value = &attribute["value"];
            let value = value.get("stringValue").or_else(|| value.get("intValue"));
            (text(&attribute["key"]), text(value.expect("a text or a number")))
        };
        let parent = json.get("parentSpanId").map(|id| hex(id, 16)).unwrap_or_default();
        let span = Self {
            trace: hex(&json["traceId"], 32),
            id: hex(&json["spanId"], 16),
            parent,
            name: text(&json["name"]),
            kind: json["kind"].as_u64().expect("a kind"),
            begin: nanoseconds(&json["startTimeUnixNano"]),
            end: nanoseconds(&json["endTimeUnixNano"]),
            attributes: list(&json["attributes"]).iter().map(attribute).collect(),
            failed: json["status"]["code"].as_u64() == Some(ERROR),
        };
        assert!(span.begin <= span.end, "{span:?}");
        span
    }

    fn is(&self, key: &str, value: &str) -> bool {
        self.attributes.iter().any(|(k, v)| k == key && v == value)
    }
}

fn names(spans: &[Span]) -> Vec<&str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}

#[tokio::test]
async fn a_request_is_a_span_and_so_is_each_step_of_its_path() {
    let (site, collector) = (Site::start(), Collector::start().await);
    site.on("/wall", Page::Captcha);
    let variables = collector.variables(
        "OTEL_SERVICE_NAME=crawl-proxy OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20s3cret \
         OTEL_RESOURCE_ATTRIBUTES=deployment.environment=test",
    );
    let file = RuleFile::one_rule("rate: 50/s, burst: 5").with("log: {access: true}");
    let member = Member::start_after(&variables, &file).await;
    let answer = get(member.proxy(), &site.url("/wall?token=hunter2")).await;
    get(member.proxy(), &site.url("/")).await;

    let spans = collector.trace_with("tidegate.verdict", "captcha").await;
    assert_eq!(names(&spans), ["GET default", "accept", "hold", "connect", "send", "inspect"]);
    let (request, send) = (&spans[0], &spans[4]);
    assert_eq!((request.parent.as_str(), send.kind), ("", CLIENT));
    for step in &spans[1..] {
        assert_eq!(step.trace, request.trace);
        assert!(step.begin >= request.begin && step.end <= request.end, "{step:?} {request:?}");
    }
    for pair in spans[1..].windows(2) {
        assert!(pair[0].end <= pair[1].begin, "one after the other: {pair:?}");
    }
    assert!(request.is("url.full", &site.url("/wall")), "without its query: {request:?}");
    assert!(
        request.is("http.response.status_code", "403") && request.is("tidegate.rule", "default")
    );
    assert!(spans[5].is("tidegate.verdict", "captcha"), "{:?}", spans[5]);
    assert!(send.is("http.response.status_code", "403"), "{send:?}");
    assert_eq!(
        answer.header("tidegate-request-id"),
        Some(&*request.trace),
        "the client learns the trace"
    );
    wait_until("so does the log", SOON, async || member.log().contains(&request.trace)).await;

    let spans = collector.trace_with("tidegate.verdict", "ok").await;
    assert_eq!(names(&spans)[1..3], ["accept", "hold"]);
    let (headers, export) = collector.came.lock()[0].clone();
    assert_eq!(headers["authorization"], "Bearer s3cret");
    assert!(!export.to_string().contains("hunter2"), "queries may hold secrets");
    let resource = export["resourceSpans"][0]["resource"].to_string();
    for (key, value) in [("service.name", "crawl-proxy"), ("deployment.environment", "test")] {
        let pair = format!("{{\"key\":\"{key}\",\"value\":{{\"stringValue\":\"{value}\"}}}}");
        assert!(resource.contains(&pair), "{resource}");
    }
    wait_until("they are counted", SOON, async || {
        member.metric("tidegate_spans_exported_total", &[]).await >= 11.0
    })
    .await;
}

#[tokio::test]
async fn the_clients_trace_continues_and_its_sampling_counts() {
    let (site, collector) = (Site::start(), Collector::start().await);
    let file = RuleFile::one_rule("rate: 50/s, burst: 5");
    let member = Member::start_after(&collector.variables(""), &file).await;
    for (path, flags) in [("/left-out", "00"), ("/taken", "01")] {
        let field = format!("00-{TRACE}-{PARENT}-{flags}");
        get_with(member.proxy(), &site.url(path), "traceparent", &field).await;
    }
    let spans = collector.trace_with("url.full", &site.url("/taken")).await;
    assert_eq!((spans[0].trace.as_str(), spans[0].parent.as_str()), (TRACE, PARENT));
    let left_out = collector.spans().iter().any(|span| span.is("url.full", &site.url("/left-out")));
    assert!(!left_out, "the client does not record it");
}

#[tokio::test]
async fn refusals_and_failures_are_marked_and_a_tunnel_is_a_span_too() {
    let (site, collector) = (Site::start(), Collector::start().await);
    let file = RuleFile::new(
        "- {name: slow, match: {paths: [\"/slow*\"]}, rate: 1/m, burst: 1, max_wait: 1s}\n\
         - {name: rest, match: \"*\"}\n",
    );
    let member = Member::start_after(&collector.variables(""), &file).await;
    for _ in 0..2 {
        get(member.proxy(), &site.url("/slow")).await;
    }
    let spans = collector.trace_with("tidegate.reason", "limit").await;
    assert_eq!(names(&spans), ["GET slow", "accept", "hold"]);
    assert!(spans[0].failed && spans[2].failed && !spans[1].failed, "{spans:?}");

    let nobody = integration_tests::ports::free_address();
    get(member.proxy(), &format!("http://{nobody}/")).await;
    let spans = collector.trace_with("tidegate.reason", "connect").await;
    assert_eq!(names(&spans), ["GET rest", "accept", "hold", "connect"]);
    assert!(spans[3].failed, "{spans:?}");

    let mut tunnel = Raw::connect(member.proxy()).await;
    let to = site.authority();
    tunnel.send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
    assert!(tunnel.head().await.starts_with("HTTP/1.1 200"));
    drop(tunnel);
    let spans = collector.trace_with("tidegate.outcome", "tunnelled").await;
    assert_eq!(names(&spans), ["CONNECT rest", "accept", "hold", "connect"]);
    assert!(spans[0].is("server.address", &to), "{:?}", spans[0]);
}

#[tokio::test]
async fn a_collector_that_is_away_costs_spans_and_no_request() {
    let (site, collector) = (Site::start(), Collector::start().await);
    *collector.status.lock() = StatusCode::BAD_REQUEST;
    let file = RuleFile::one_rule("rate: 500/s, burst: 50");
    let member = Member::start_after(&collector.variables(""), &file).await;
    assert_eq!(get(member.proxy(), &site.url("/lost")).await.status, 200);
    wait_until("the spans are counted as dropped", SOON, async || {
        member.metric("tidegate_spans_dropped_total", &[]).await > 0.0
    })
    .await;
    wait_until("the log says so", SOON, async || {
        member.log().contains("spans do not reach the collector")
    })
    .await;
    *collector.status.lock() = StatusCode::OK;
    get(member.proxy(), &site.url("/again")).await;
    collector.trace_with("url.full", &site.url("/again")).await;
    wait_until("the log says that it is well", SOON, async || {
        member.log().contains("the collector accepts spans again")
    })
    .await;
}

#[tokio::test]
async fn queued_spans_are_sent_before_the_process_ends() {
    let (site, collector) = (Site::start(), Collector::start().await);
    // Nothing is due before the end.
    let variables = collector.variables("").replace("DELAY=50", "DELAY=600000");
    let mut member = Member::start_after(&variables, &RuleFile::one_rule("rate: 50/s")).await;
    get(member.proxy(), &site.url("/last")).await;
    assert!(collector.spans().is_empty());
    member.terminate();
    assert_eq!(member.exit_code(SOON).await, 0);
    assert!(!collector.trace_with("url.full", &site.url("/last")).await.is_empty());
}

#[tokio::test]
async fn a_bad_variable_is_a_warning_and_no_reason_not_to_start() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 50/s");
    let member =
        Member::start_after("export OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318", &file).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    for words in ["OTEL_EXPORTER_OTLP_ENDPOINT is not a valid URL", "no spans are exported"] {
        wait_until(words, SOON, async || member.log().contains(words)).await;
    }
}
