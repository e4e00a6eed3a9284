//! Runs the examples of a signature: `tidegate check` does so for a user's `expect`, and a test for
//! the built-in ones.

use std::{borrow::Cow, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::{
    BodyEnd, Classifier, Head, Reading, ScanLimits,
    signature::{Action, Example, Signature, SignatureError},
};
use crate::target::Target;

/// `{prose}` stands for this sentence, repeated about forty times.
const PROSE: &str = "The ferry leaves twice a day and takes an hour to the island. ";

/// `{filler}` stands for this element, repeated about 250 times.
const FILLER: &str = "<div class=\"row\" data-key=\"0123456789abcdef0123456789abcdef\"></div>";

impl Signature {
    /// Runs the examples and returns a message for each that fails.
    ///
    /// # Errors
    /// The signature cannot be compiled.
    pub fn failed_examples(&self) -> Result<Vec<String>, SignatureError> {
        let mut single = self.clone();
        single.action = Action::Decide;
        let classifier = Arc::new(Classifier::compile(vec![single])?);
        let mut failures = Vec::new();
        for (number, example) in self.expect.iter().enumerate() {
            let at = format!("example {} of the signature `{}`", number + 1, self.name);
            match self.matches(&classifier, example) {
                Err(why) => failures.push(format!("{at} is not a response: {why}")),
                Ok(matches) if matches != example.matches => {
                    let word = if matches { "matches" } else { "does not match" };
                    failures.push(format!("{at} {word}, but `matches` says the opposite"));
                }
                Ok(_) => {}
            }
        }
        Ok(failures)
    }

    fn matches(&self, classifier: &Arc<Classifier>, example: &Example) -> Result<bool, String> {
        let status = StatusCode::from_u16(example.status).map_err(|error| error.to_string())?;
        let mut headers = HeaderMap::new();
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        headers.insert(http::header::CONTENT_TYPE, html);
        for (name, value) in &example.header {
            let name: HeaderName =
                name.parse().map_err(|_| format!("`{name}` is not a valid header"))?;
            let value =
                value.parse().map_err(|_| format!("`{value}` is not a valid header value"))?;
            headers.insert(name, value);
        }
        let url = example.url.as_deref().unwrap_or("https://site.example/");
        let target = Target::of_url(url).map_err(|error| error.to_string())?;
        let head = Head { method: &Method::GET, target: &target, status, headers: &headers };
        let limits = ScanLimits { bytes: 64 * 1024, error_bytes: 128 * 1024 };
        let judgement = match classifier.read(head, limits) {
            Reading::Judged(judgement) => judgement,
            Reading::Scan(mut scan) => {
                let more = scan.push(body(&example.body).as_bytes());
                scan.finish(if more { BodyEnd::Complete } else { BodyEnd::Open })
            }
        };
        Ok(judgement.evidence.is_some_and(|evidence| evidence.signature == self.name))
    }
}

/// The body with its placeholders replaced.
fn body(text: &str) -> Cow<'_, str> {
    if !text.contains('{') {
        return Cow::Borrowed(text);
    }
    let prose = text.replace("{prose}", &PROSE.repeat(40));
    Cow::Owned(prose.replace("{filler}", &FILLER.repeat(250)))
}
