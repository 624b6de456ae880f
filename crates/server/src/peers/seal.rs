//! Requests that one gateway passes on to another in a caller's name, and the answers: both are authenticated with the secret
//! of the gateways. A caller's key does not travel; the owner's number does, a hash of the key's hash.
//!
//! ```text
//! x-millrace-forwarded: OWNER.SECONDS.NONCE.BODY.CODE   the code is over the receiver, the method, the path and these
//! x-millrace-answered: CODE                             the code is over the nonce and the status
//! ```

use super::passed_request::FORWARDED;
use super::peer::GatewayTrust;
use cluster::names::InstanceId;
use cluster::secret::ClusterSecret;
use generate::error::{ApiError, ErrorKind};
use http::{HeaderName, HeaderValue, Method, Request, Response};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use stream::Owner;
use wire::clock;

/// The code of an answer.
const ANSWERED: HeaderName = HeaderName::from_static("x-millrace-answered");
/// Difference of the clocks of two gateways.
const SKEW_S_MAX: i64 = 30;
/// Nonces of one period of [`SKEW_S_MAX`]; requests beyond it are rejected.
const NONCES_MAX: usize = 1 << 16;

/// What the code of a request is over.
struct SealedHead {
    owner: Owner,
    unix_s: i64,
    nonce: u64,
    /// Digest of the body.
    body: String,
}

impl SealedHead {
    fn code(
        &self,
        secret: &ClusterSecret,
        to: InstanceId,
        (method, path): (&Method, &str),
    ) -> cluster::secret::Mac {
        secret.mac(
            "request",
            &[
                &to.0.to_le_bytes(),
                method.as_str().as_bytes(),
                path.as_bytes(),
                &self.owner.0.to_le_bytes(),
                &self.unix_s.to_le_bytes(),
                &self.nonce.to_le_bytes(),
                self.body.as_bytes(),
            ],
        )
    }

    /// The head in a header field, and its code.
    fn parse(value: &HeaderValue) -> Option<(Self, &str)> {
        let mut parts = value.to_str().ok()?.split('.');
        let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
        let (owner, unix_s, nonce) = (Owner(number()?), number()?, number()?);
        let (body, code) = (parts.next()?.to_owned(), parts.next()?);
        let head = Self {
            owner,
            unix_s: i64::try_from(unix_s).ok()?,
            nonce,
            body,
        };
        parts.next().is_none().then_some((head, code))
    }
}

/// The answer that belongs to a request.
pub(super) struct ExpectedAnswer {
    secret: ClusterSecret,
    nonce: u64,
}

/// Marks a request for this gateway as passed on in the name of this owner.
///
/// # Errors
/// The system has no random numbers.
pub(super) fn seal<B>(
    request: &mut Request<B>,
    (owner, body): (Owner, &[u8]),
    secret: &ClusterSecret,
    to: InstanceId,
) -> Result<ExpectedAnswer, String> {
    let head = SealedHead {
        owner,
        unix_s: clock::unix_s(),
        nonce: InstanceId::random()?.0,
        body: secret.mac("body", &[body]).to_hex(),
    };
    let code = head.code(secret, to, (request.method(), path_of(request)));
    let SealedHead {
        owner: Owner(owner),
        unix_s,
        nonce,
        body,
    } = &head;
    let value = format!("{owner:x}.{unix_s:x}.{nonce:x}.{body}.{}", code.to_hex());
    let value = HeaderValue::from_str(&value).map_err(|why| why.to_string())?;
    request.headers_mut().insert(FORWARDED, value);
    Ok(ExpectedAnswer {
        secret: secret.clone(),
        nonce: head.nonce,
    })
}

impl ExpectedAnswer {
    /// Takes the code off the answer.
    ///
    /// # Errors
    /// Whoever answers does not have the secret.
    pub(super) fn check<B>(&self, response: &mut Response<B>) -> Result<(), String> {
        let told = response.headers_mut().remove(ANSWERED);
        let told = told.as_ref().and_then(|told| told.to_str().ok());
        let code = answer_code(&self.secret, self.nonce, response.status().as_u16());
        if told.is_some_and(|told| code.is(told)) {
            Ok(())
        } else {
            Err(format!(
                "its answer, with status {}, is not sealed with this cluster's secret",
                response.status().as_u16()
            ))
        }
    }
}

fn answer_code(secret: &ClusterSecret, nonce: u64, status: u16) -> cluster::secret::Mac {
    secret.mac("answer", &[&nonce.to_le_bytes(), &status.to_le_bytes()])
}

fn path_of<B>(request: &Request<B>) -> &str {
    let path = request.uri().path_and_query();
    path.map_or("/", |path| path.as_str())
}

/// A request whose head another gateway has sealed.
pub(crate) struct SealedRequest {
    secret: ClusterSecret,
    head: SealedHead,
}

impl SealedRequest {
    /// Checks the header field of a request that was passed on to this gateway.
    ///
    /// # Errors
    /// The code is not one by the secret of this gateway for this request, or is old, or was used before.
    pub(crate) fn open<B>(
        request: &Request<B>,
        value: &HeaderValue,
        gateway: Option<&GatewayTrust>,
        nonces: &SeenNonces,
    ) -> Result<Self, ApiError> {
        let Some(GatewayTrust { id, secret }) = gateway else {
            return Err(forged("this gateway has no secret (cluster.secret_file)"));
        };
        let (head, code) = SealedHead::parse(value).ok_or_else(|| forged("unknown form"))?;
        let expected = head.code(secret, *id, (request.method(), path_of(request)));
        if !expected.is(code) {
            return Err(forged("not by the secret of this gateway for this request"));
        }
        let now = clock::unix_s();
        if now.abs_diff(head.unix_s) > SKEW_S_MAX.unsigned_abs() {
            return Err(forged(
                "the clocks of both gateways differ by more than 30 s",
            ));
        }
        if !nonces.insert(head.nonce, now) {
            return Err(forged("sent before"));
        }
        Ok(Self {
            secret: secret.clone(),
            head,
        })
    }

    /// The owner in whose name the request is.
    pub(crate) fn owner(&self) -> Owner {
        self.head.owner
    }

    /// Compares the body with the sealed digest.
    ///
    /// # Errors
    /// The body is another one.
    pub(crate) fn check_body(&self, body: &[u8]) -> Result<(), ApiError> {
        if self.secret.mac("body", &[body]).is(&self.head.body) {
            Ok(())
        } else {
            Err(forged("another body"))
        }
    }

    /// Shows the asking gateway that this one has the secret.
    pub(crate) fn seal_answer<B>(&self, response: &mut Response<B>) {
        let code = answer_code(&self.secret, self.head.nonce, response.status().as_u16());
        if let Ok(value) = HeaderValue::from_str(&code.to_hex()) {
            response.headers_mut().insert(ANSWERED, value);
        }
    }
}

fn forged(why: &str) -> ApiError {
    let message = format!("{FORWARDED}: {why}");
    ApiError::caller(ErrorKind::Unauthenticated, "invalid_seal", message)
}

/// Nonces of requests that were accepted: those of the current period, and of the one before.
#[derive(Default)]
pub(crate) struct SeenNonces(Mutex<NonceTable>);

#[derive(Default)]
struct NonceTable {
    began_s: i64,
    now: HashSet<u64>,
    before: HashSet<u64>,
}

impl SeenNonces {
    /// Whether the nonce is new. A period is as long as a request may be old or early, together.
    fn insert(&self, nonce: u64, now_s: i64) -> bool {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now_s.abs_diff(table.began_s) > 2 * SKEW_S_MAX.unsigned_abs() {
            table.began_s = now_s;
            table.before = std::mem::take(&mut table.now);
        }
        let is_new = !table.before.contains(&nonce) && table.now.len() < NONCES_MAX;
        is_new && table.now.insert(nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: InstanceId = InstanceId(7);

    fn sealed(secret: &ClusterSecret, body: &[u8]) -> (Request<()>, ExpectedAnswer) {
        let mut request = Request::post("/v1/jobs/a?b=c").body(()).unwrap();
        let expected = seal(&mut request, (Owner(3), body), secret, ME).unwrap();
        (request, expected)
    }

    fn open(
        request: &Request<()>,
        secret: &ClusterSecret,
        own: InstanceId,
        nonces: &SeenNonces,
    ) -> Result<SealedRequest, String> {
        let value = request.headers()[FORWARDED].clone();
        let trust = GatewayTrust {
            id: own,
            secret: secret.clone(),
        };
        let opened = SealedRequest::open(request, &value, Some(&trust), nonces);
        opened.map_err(|why| why.message)
    }

    #[test]
    fn request_and_answer_are_believed_once() {
        let (secret, nonces) = (ClusterSecret::of("a"), SeenNonces::default());
        let (request, expected) = sealed(&secret, b"body");
        let opened = open(&request, &secret, ME, &nonces).unwrap();
        assert_eq!(opened.owner(), Owner(3));
        assert!(opened.check_body(b"body").is_ok() && opened.check_body(b"").is_err());
        let again = open(&request, &secret, ME, &nonces).err().unwrap();
        assert!(again.contains("sent before"), "{again}");

        let mut answer = Response::new(());
        assert!(expected.check(&mut answer).is_err(), "without a seal");
        opened.seal_answer(&mut answer);
        *answer.status_mut() = http::StatusCode::NOT_FOUND;
        assert!(expected.check(&mut answer).is_err(), "another status");
        *answer.status_mut() = http::StatusCode::OK;
        opened.seal_answer(&mut answer);
        assert!(expected.check(&mut answer).is_ok());
        assert!(answer.headers().is_empty(), "clients do not see the seal");
    }

    #[test]
    fn changed_request_is_rejected() {
        let (secret, nonces) = (ClusterSecret::of("a"), SeenNonces::default());
        type Change = fn(&mut Request<()>);
        let rows: [(&str, Change); 3] = [
            ("method", |r| *r.method_mut() = Method::DELETE),
            ("path", |r| *r.uri_mut() = "/v1/jobs/b?b=c".parse().unwrap()),
            ("owner", |r| {
                let value = r.headers()[FORWARDED]
                    .to_str()
                    .unwrap()
                    .replacen('3', "4", 1);
                r.headers_mut().insert(FORWARDED, value.parse().unwrap());
            }),
        ];
        for (label, change) in rows {
            let (mut request, _) = sealed(&secret, b"");
            change(&mut request);
            assert!(open(&request, &secret, ME, &nonces).is_err(), "{label}");
        }
        let (request, _) = sealed(&secret, b"");
        assert!(open(&request, &ClusterSecret::of("b"), ME, &nonces).is_err());
        assert!(open(&request, &secret, InstanceId(8), &nonces).is_err());
        for bad in [
            "",
            "1",
            "2",
            "....",
            "1.1.1.b.c.d",
            "1.ffffffffffffffff.1.b.c",
        ] {
            let mut request = request.clone();
            request
                .headers_mut()
                .insert(FORWARDED, bad.parse().unwrap());
            assert!(open(&request, &secret, ME, &nonces).is_err(), "{bad}");
        }
    }

    #[test]
    fn nonces_are_bounded_and_forgotten_after_two_periods() {
        let nonces = SeenNonces::default();
        for nonce in 0..NONCES_MAX as u64 {
            assert!(nonces.insert(nonce, 1000));
        }
        assert!(!nonces.insert(0, 1000) && !nonces.insert(u64::MAX, 1000));
        assert!(!nonces.insert(0, 1061) && nonces.insert(u64::MAX, 1061));
        assert!(nonces.insert(0, 1122) && !nonces.insert(u64::MAX, 1122));
    }
}
