//! Why a site gave no response: the refusal for the client, and the report to the fleet.

use std::{error::Error as _, time::Duration};

use http::{Request, StatusCode};
use hyper::client::conn::TrySendError;

use crate::{
    classify::verdict::{Judgement, Verdict},
    observability::metrics::{Bound, Reason},
    proxy::{
        Refusal, SendPermit,
        reply::Refused,
        upstream::{
            interim::TooManyInterim,
            upload::{BodyError, Upload},
            via::ViaError,
        },
    },
};

/// Why there is no response.
#[derive(Debug)]
pub(super) enum Failure {
    /// The connection was closed before anything was written. The request is complete.
    Unsent(Box<Request<Upload>>),
    /// The site closed the connection, or does not speak HTTP.
    Broken(hyper::Error),
    /// The site did not respond in time.
    NoAnswer(Duration),
    /// Too many interim responses.
    TooManyInterim,
}

impl From<TrySendError<Request<Upload>>> for Failure {
    fn from(mut error: TrySendError<Request<Upload>>) -> Self {
        match error.take_message() {
            Some(request) => Self::Unsent(Box::new(request)),
            None => Self::Broken(error.into_error()),
        }
    }
}

impl From<TooManyInterim> for Failure {
    fn from(_: TooManyInterim) -> Self {
        Self::TooManyInterim
    }
}

impl Failure {
    /// Reports to the fleet, and creates the client's response.
    pub(super) async fn report(self, permit: &mut SendPermit) -> Refused {
        let refusal = self.refusal().under(permit.entry());
        if let Some(mut judgement) = self.verdict() {
            permit.report(&mut judgement).await;
        }
        refusal
    }

    /// The exceeded limit, if that is the reason.
    pub(super) fn bound(&self) -> Option<Bound> {
        match self {
            Self::TooManyInterim => Some(Bound::Interim),
            Self::Broken(error) if error.is_parse_too_large() => Some(Bound::HeaderBytes),
            Self::Broken(error) => {
                matches!(upload_error(error)?, BodyError::Idle(_)).then_some(Bound::IdleRequest)
            }
            Self::Unsent(_) | Self::NoAnswer(_) => None,
        }
    }

    /// The failure as one of the upstream proxy, if the connection leads to one. `None` if the client failed, or if the
    /// site is slow or sends too much.
    pub(super) fn of_the_connection(&self) -> Option<ViaError> {
        match self {
            Self::Broken(error) if upload_error(error).is_some() || error.is_parse_too_large() => {
                None
            }
            Self::Broken(error) => Some(ViaError::Broken(error.to_string())),
            Self::Unsent(_) => Some(ViaError::Broken("it closed the connection".to_owned())),
            Self::NoAnswer(_) | Self::TooManyInterim => None,
        }
    }

    fn verdict(&self) -> Option<Judgement> {
        match self {
            Self::Broken(error) if upload_error(error).is_some() => None,
            Self::Broken(error) => {
                Some(Judgement::transport(Verdict::ConnectionError, &error.to_string()))
            }
            Self::Unsent(_) => {
                Some(Judgement::transport(Verdict::ConnectionError, "the connection was closed"))
            }
            Self::TooManyInterim => {
                Some(Judgement::transport(Verdict::ConnectionError, "interim answers without end"))
            }
            Self::NoAnswer(_) => {
                Some(Judgement::transport(Verdict::Timeout, "no response head in time"))
            }
        }
    }

    pub(super) fn refusal(&self) -> Refused {
        let bad = StatusCode::BAD_GATEWAY;
        let site = |error, sentence: &str| Refusal::new(bad, Reason::Connect, error, sentence);
        match self {
            Self::NoAnswer(limit) => {
                let sentence = format!("The site did not respond within {limit:?}.");
                let status = StatusCode::GATEWAY_TIMEOUT;
                Refusal::new(status, Reason::Timeout, "http_response_timeout", sentence)
            }
            Self::TooManyInterim => {
                site("http_protocol_error", "The site sends interim answers (1xx) without end.")
            }
            Self::Unsent(_) => site("connection_terminated", "The site closed the connection."),
            Self::Broken(error) => match upload_error(error) {
                Some(BodyError::Idle(_)) => Refusal::new(
                    StatusCode::REQUEST_TIMEOUT,
                    Reason::Timeout,
                    "http_request_error",
                    "The rest of the request did not come in time.",
                ),
                Some(BodyError::Broken(_) | BodyError::Unwanted) => Refusal::malformed(
                    StatusCode::BAD_REQUEST,
                    "The body of the request is malformed or incomplete.",
                ),
                None if error.is_parse_too_large() => {
                    let sentence = "The head of the site's response is larger than `limits` \
                                    allows.";
                    site("http_response_header_section_size", sentence)
                }
                None if error.is_parse() => {
                    site("http_protocol_error", "The site's answer is not valid HTTP.")
                }
                None if error.is_incomplete_message() => {
                    let sentence = "The site closed the connection before it responded.";
                    site("http_response_incomplete", sentence)
                }
                None => site("connection_terminated", "The connection to the site broke."),
            },
        }
    }
}

/// The error of the client's body, if that is the cause.
fn upload_error(error: &hyper::Error) -> Option<&BodyError> {
    error.source()?.downcast_ref::<BodyError>()
}
