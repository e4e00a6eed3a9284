//! The settings of traces in the environment: the variables of the OpenTelemetry specification.

use std::{path::PathBuf, time::Duration};

use http::{HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;

/// Where traces go and how they are named.
#[derive(Debug, Clone, PartialEq)]
pub struct OtlpSettings {
    /// The collector's address for traces.
    pub(super) endpoint: Uri,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// The resource: `service.name` and further attributes from the environment.
    pub(super) resource: Vec<(String, String)>,
    /// Roots for the collector's certificate, in addition to the system's.
    pub(super) roots: Option<PathBuf>,
    /// Longest wait for a response of the collector.
    pub(super) timeout: Duration,
    /// How long a batch waits for more spans.
    pub(super) delay: Duration,
    pub(super) sampler: Sampler,
}

/// An invalid variable; the message names it and the fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadSetting(pub(super) String);

/// Which requests are traced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampler {
    /// The client's `traceparent` decides, if there is one.
    by_parent: bool,
    /// The share of the other requests.
    ratio: f64,
}

impl Sampler {
    /// Whether to trace the request. `parent`: whether the client records the trace.
    pub(super) fn takes(self, trace_id: u128, parent: Option<bool>) -> bool {
        match parent {
            Some(sampled) if self.by_parent => sampled,
            _ if self.ratio >= 1.0 => true,
            _ => {
                // Uses the last 8 bytes of the id like other SDKs, so that all of them trace the
                // same requests.
                #[allow(clippy::cast_possible_truncation, reason = "the lower half")]
                let low = (trace_id as u64) >> 11;
                #[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
                let share = low as f64 / (1_u64 << 53) as f64;
                share < self.ratio
            }
        }
    }
}

impl OtlpSettings {
    /// The settings in the variables that `env` reads; `None` if they name no collector, or disable
    /// traces.
    ///
    /// # Errors
    /// An invalid variable.
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, BadSetting> {
        // An empty variable counts as unset (OpenTelemetry specification, "Environment Variables").
        let env = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        let either = |name: &str| {
            env(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
                .or_else(|| env(&format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let is = |name: &str, word: &str| env(name).is_some_and(|v| v.eq_ignore_ascii_case(word));
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let endpoint = match env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
            Some(url) => Some(("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url)),
            None => env("OTEL_EXPORTER_OTLP_ENDPOINT").map(|url| {
                ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{}/v1/traces", url.trim_end_matches('/')))
            }),
        };
        let Some((name, url)) = endpoint else { return Ok(None) };
        if either("PROTOCOL").is_some_and(|protocol| protocol == "grpc") {
            let why = "OTEL_EXPORTER_OTLP_PROTOCOL: `grpc` is not supported; write `http/json` and the collector's port \
                       for HTTP, usually 4318";
            return Err(BadSetting(why.to_owned()));
        }
        let headers = either("HEADERS").map_or(Ok(vec![]), |text| headers(&text))?;
        let mut resource =
            vec![("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
        for (key, value) in pairs(&env("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default()) {
            resource.retain(|(known, _)| *known != key);
            resource.push((key, value));
        }
        if let Some(service) = env("OTEL_SERVICE_NAME") {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".to_owned(), service));
        } else if !resource.iter().any(|(key, _)| key == "service.name") {
            resource.push(("service.name".to_owned(), "tidegate".to_owned()));
        }
        Ok(Some(Self {
            endpoint: endpoint_of(name, &url)?,
            headers,
            resource,
            roots: either("CERTIFICATE").map(PathBuf::from),
            timeout: millis("OTEL_EXPORTER_OTLP_TIMEOUT", either("TIMEOUT"), 10_000)?,
            delay: millis("OTEL_BSP_SCHEDULE_DELAY", env("OTEL_BSP_SCHEDULE_DELAY"), 5_000)?,
            sampler: sampler(env("OTEL_TRACES_SAMPLER"), env("OTEL_TRACES_SAMPLER_ARG"))?,
        }))
    }
}

fn endpoint_of(name: &str, url: &str) -> Result<Uri, BadSetting> {
    let uri = url.parse::<Uri>().ok().filter(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|h| !h.is_empty())
    });
    uri.ok_or_else(|| {
        // The message omits the URL, which may contain a password.
        BadSetting(format!("{name} is not a valid URL; write `http://HOST:4318`"))
    })
}

fn headers(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, BadSetting> {
    let bad = || {
        BadSetting(
            "OTEL_EXPORTER_OTLP_HEADERS is not a list of headers; write `name=value,name=value`"
                .into(),
        )
    };
    pairs(text)
        .into_iter()
        .map(|(name, value)| {
            let name = HeaderName::try_from(name).map_err(|_| bad())?;
            let mut value = HeaderValue::try_from(value).map_err(|_| bad())?;
            value.set_sensitive(true);
            Ok((name, value))
        })
        .collect()
}

/// `key=value,key=value`, percent-encoded like W3C Baggage.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        Some((decoded(key.trim()), decoded(value.trim())))
    };
    text.split(',').filter_map(pair).filter(|(key, _)| !key.is_empty()).collect()
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn millis(name: &str, value: Option<String>, default: u64) -> Result<Duration, BadSetting> {
    let Some(value) = value else { return Ok(Duration::from_millis(default)) };
    let read = value.trim().parse::<u64>().ok().filter(|ms| *ms > 0);
    read.map(Duration::from_millis).ok_or_else(|| {
        BadSetting(format!("{name}: `{value}` is not a number of milliseconds; write `{default}`"))
    })
}

fn sampler(name: Option<String>, arg: Option<String>) -> Result<Sampler, BadSetting> {
    let name = name.unwrap_or_else(|| "parentbased_always_on".to_owned());
    let (by_parent, own) = match name.strip_prefix("parentbased_") {
        Some(own) => (true, own),
        None => (false, &*name),
    };
    let ratio = match own {
        "always_on" => 1.0,
        "always_off" => 0.0,
        "traceidratio" => {
            let text = arg.unwrap_or_else(|| "1".to_owned());
            let ratio = text.trim().parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
            ratio.ok_or_else(|| {
                let why = format!(
                    "OTEL_TRACES_SAMPLER_ARG: `{text}` is not a share; write a number from 0 to 1"
                );
                BadSetting(why)
            })?
        }
        _ => {
            let why = format!(
                "OTEL_TRACES_SAMPLER: `{name}` is not known; write `always_on`, `always_off` or `traceidratio`, with \
                 or without `parentbased_` before it"
            );
            return Err(BadSetting(why));
        }
    };
    Ok(Sampler { by_parent, ratio })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<Option<OtlpSettings>, String> {
        let env = |name: &str| {
            vars.iter().find(|(var, _)| *var == name).map(|(_, value)| (*value).to_owned())
        };
        OtlpSettings::from_env(&env).map_err(|bad| bad.to_string())
    }

    fn good(vars: &[(&str, &str)]) -> OtlpSettings {
        read(vars).expect("they are good").expect("they name a collector")
    }

    const HERE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");

    #[test]
    fn without_a_collector_there_are_no_traces() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(
            read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " "), ("OTEL_SERVICE_NAME", "x")]),
            Ok(None)
        );
        assert_eq!(read(&[HERE, ("OTEL_SDK_DISABLED", "true")]), Ok(None));
        assert_eq!(read(&[HERE, ("OTEL_TRACES_EXPORTER", "none")]), Ok(None));
    }

    #[test]
    fn the_endpoint_of_all_signals_gets_the_path_of_traces() {
        for (url, whole) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("https://otel.example/prefix/", "https://otel.example/prefix/v1/traces"),
        ] {
            assert_eq!(good(&[("OTEL_EXPORTER_OTLP_ENDPOINT", url)]).endpoint, whole);
        }
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:9/mine");
        assert_eq!(good(&[HERE, own]).endpoint, "http://127.0.0.1:9/mine");
    }

    #[test]
    fn headers_and_resource_are_percent_decoded() {
        let settings = good(&[
            HERE,
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cret, x-team = crawl"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=prod,service.name=other"),
            ("OTEL_SERVICE_NAME", "crawl-proxy"),
        ]);
        let header = |name: &str| settings.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v);
        assert_eq!(header("authorization").expect("it is there"), "Bearer s3cret");
        assert_eq!(header("x-team").expect("it is there"), "crawl");
        let resource = |key: &str| {
            let values = settings.resource.iter().filter(|(k, _)| k == key);
            values.map(|(_, value)| value.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(resource("service.name"), ["crawl-proxy"]);
        assert_eq!(resource("deployment.environment"), ["prod"]);
        assert_eq!(decoded("50%"), "50%");
    }

    #[test]
    fn the_client_decides_about_its_trace_unless_configured_otherwise() {
        let sampler = |name: &str, arg: &str| {
            good(&[HERE, ("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", arg)]).sampler
        };
        let default = good(&[HERE]).sampler;
        assert!(
            default.takes(1, None)
                && default.takes(1, Some(true))
                && !default.takes(1, Some(false))
        );
        assert!(sampler("always_on", "").takes(1, Some(false)));
        assert!(!sampler("always_off", "").takes(1, Some(true)));
        let tenth = sampler("parentbased_traceidratio", "0.1");
        assert!(tenth.takes(u128::MAX, Some(true)), "the client's word counts");
        assert!(tenth.takes(u128::from(u64::MAX / 20), None));
        assert!(!tenth.takes(u128::from(u64::MAX / 2), None));
    }

    #[test]
    fn a_bad_variable_is_named_with_a_valid_value() {
        for (name, value, cure) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "http://HOST:4318"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/json"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "10000"),
            ("OTEL_TRACES_SAMPLER", "sometimes", "always_on"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a b=c", "name=value"),
        ] {
            let mut vars = vec![(name, value)];
            if name != HERE.0 {
                vars.push(HERE);
            }
            let why = read(&vars).expect_err(name);
            assert!(why.contains(name) && why.contains(cure), "{why}");
        }
    }
}
