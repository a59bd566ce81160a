//! Signatures of incoming webhooks, by scheme.
//!
//! A signature covers the bytes as they were sent. Comparisons take the same time wherever two texts differ.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use etude_spec::automation::{Verify, VerifyKind};
use http::HeaderMap;
use ring::hmac::{self, Algorithm, HMAC_SHA256, HMAC_SHA512, Key};

use crate::query::from_hex;

/// Maximum distance of a timestamp from the server's clock, in seconds.
const MAX_AGE_S: i64 = 300;

/// The delivery against which a signature is checked.
pub(super) struct Delivery<'d> {
    pub(super) headers: &'d HeaderMap,
    pub(super) body: &'d [u8],
    pub(super) now_ms: i64,
}

impl Delivery<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The text of a timestamp in seconds, if it is near the server's clock.
    fn time<'t>(&self, text: &'t str) -> Option<&'t str> {
        let seconds: i64 = text.parse().ok()?;
        (seconds.abs_diff(self.now_ms.div_euclid(1_000)) <= MAX_AGE_S.unsigned_abs()).then_some(text)
    }
}

/// True if the signature matches one of `secrets`.
pub(super) fn verify(verify: &Verify, secrets: &[String], delivery: &Delivery<'_>) -> bool {
    // Every secret is tried, so that the time does not reveal which one fits.
    let fits = secrets.iter().filter(|secret| !secret.is_empty()).map(|secret| fits(verify, secret, delivery));
    fits.fold(false, |any, fits| any | fits.unwrap_or(false))
}

fn fits(verify: &Verify, secret: &str, delivery: &Delivery<'_>) -> Option<bool> {
    let body = delivery.body;
    Some(match verify.kind {
        VerifyKind::Github => {
            let signature = delivery.header("x-hub-signature-256")?.strip_prefix("sha256=")?;
            is_signed(HMAC_SHA256, secret.as_bytes(), &[body], &from_hex(signature)?)
        }
        VerifyKind::Gitlab => is_equal(delivery.header("x-gitlab-token")?, secret),
        VerifyKind::Standard => {
            let (id, time) = (delivery.header("webhook-id")?, delivery.time(delivery.header("webhook-timestamp")?)?);
            let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap_or(secret)).ok()?;
            // With an empty key, anyone could sign.
            let key = Some(key).filter(|key| !key.is_empty())?;
            let message = [id.as_bytes(), b".", time.as_bytes(), b".", body];
            let signatures = delivery.header("webhook-signature")?.split(' ').filter_map(|one| one.strip_prefix("v1,"));
            let signatures = signatures.filter_map(|one| STANDARD.decode(one).ok());
            signatures.fold(false, |any, one| any | is_signed(HMAC_SHA256, &key, &message, &one))
        }
        VerifyKind::Stripe => {
            let parts: Vec<_> = delivery
                .header("stripe-signature")?
                .split(',')
                .filter_map(|part| part.trim().split_once('='))
                .collect();
            let time = delivery.time(parts.iter().find(|(name, _)| *name == "t")?.1)?;
            let message = [time.as_bytes(), b".", body];
            let signatures = parts.iter().filter(|(name, _)| *name == "v1").filter_map(|(_, hex)| from_hex(hex));
            signatures.fold(false, |any, one| any | is_signed(HMAC_SHA256, secret.as_bytes(), &message, &one))
        }
        VerifyKind::Slack => {
            let time = delivery.time(delivery.header("x-slack-request-timestamp")?)?;
            let signature = from_hex(delivery.header("x-slack-signature")?.strip_prefix("v0=")?)?;
            is_signed(HMAC_SHA256, secret.as_bytes(), &[b"v0:", time.as_bytes(), b":", body], &signature)
        }
        VerifyKind::Hmac => {
            let text = delivery.header(verify.header.as_deref()?)?.strip_prefix(verify.prefix.as_str())?;
            let signature = if verify.is_base64 { STANDARD.decode(text).ok()? } else { from_any_hex(text)? };
            let algorithm = if verify.is_sha512 { HMAC_SHA512 } else { HMAC_SHA256 };
            is_signed(algorithm, secret.as_bytes(), &[body], &signature)
        }
        VerifyKind::Token => is_equal(delivery.header(verify.header.as_deref().unwrap_or("x-webhook-token"))?, secret),
    })
}

/// The delivery's id, if the scheme has one.
pub(super) fn delivery_id(verify: &Verify, headers: &HeaderMap, body: &serde_json::Value) -> Option<String> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let member = |name: &str| body[name].as_str().map(str::to_owned);
    let id = match verify.kind {
        VerifyKind::Github => header("x-github-delivery"),
        VerifyKind::Gitlab => header("x-gitlab-event-uuid"),
        VerifyKind::Standard => header("webhook-id"),
        VerifyKind::Stripe => member("id"),
        VerifyKind::Slack => member("event_id"),
        VerifyKind::Hmac | VerifyKind::Token => verify.id_header.as_deref().and_then(header),
    };
    id.filter(|id| (1..=255).contains(&id.len()))
}

/// The reply to a sender that verifies the address, if the scheme has such a request.
pub(super) fn handshake(verify: &Verify, body: &serde_json::Value) -> Option<serde_json::Value> {
    let is_asked = verify.kind == VerifyKind::Slack && body["type"] == "url_verification";
    let challenge = body["challenge"].as_str().filter(|_| is_asked)?;
    Some(serde_json::json!({ "challenge": challenge }))
}

fn is_signed(algorithm: Algorithm, key: &[u8], message: &[&[u8]], signature: &[u8]) -> bool {
    hmac::verify(&Key::new(algorithm, key), &message.concat(), signature).is_ok()
}

/// Compares in constant time: the hashes, not the texts, are compared.
fn is_equal(given: &str, secret: &str) -> bool {
    let key = Key::new(HMAC_SHA256, secret.as_bytes());
    hmac::verify(&key, given.as_bytes(), hmac::sign(&key, secret.as_bytes()).as_ref()).is_ok()
}

/// Decodes hexadecimal digits of senders of any kind; some send only upper-case digits.
fn from_any_hex(text: &str) -> Option<Vec<u8>> {
    let is_upper = !text.bytes().any(|byte| byte.is_ascii_lowercase());
    if is_upper { from_hex(&text.to_ascii_lowercase()) } else { from_hex(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheme(kind: VerifyKind) -> Verify {
        let (prefix, header, id_header) = (String::new(), Some("x-signature".to_owned()), None);
        Verify { kind, secrets: Vec::new(), header, is_sha512: false, is_base64: false, prefix, id_header }
    }

    fn sign_with(key: &[u8], message: &str) -> String {
        STANDARD.encode(hmac::sign(&Key::new(HMAC_SHA256, key), message.as_bytes()))
    }

    fn holds(verify_by: &Verify, secrets: &[&str], headers: &[(&'static str, &str)], body: &str, now_s: i64) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().expect("a value"));
        }
        let secrets: Vec<String> = secrets.iter().map(|secret| (*secret).to_owned()).collect();
        verify(verify_by, &secrets, &Delivery { headers: &map, body: body.as_bytes(), now_ms: now_s * 1_000 })
    }

    /// The texts that differ from `text` in one bit and are valid header values.
    fn changed_bits(text: &str) -> impl Iterator<Item = String> {
        (0..text.len() * 7).filter_map(|bit| {
            let mut bytes = text.as_bytes().to_vec();
            bytes[bit / 7] ^= 1 << (bit % 7);
            String::from_utf8(bytes).ok().filter(|changed| changed.parse::<http::HeaderValue>().is_ok())
        })
    }

    /// S-114: the vector of GitHub's documentation ("Validating webhook deliveries") verifies; any changed bit is refused.
    #[test]
    fn github_signatures_verify() {
        let verify_by = scheme(VerifyKind::Github);
        let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let secret = "It's a Secret to Everybody";
        let check = |secrets: &[&str], signature: &str, body: &str| {
            holds(&verify_by, secrets, &[("x-hub-signature-256", signature)], body, 0)
        };
        assert!(check(&[secret], signature, "Hello, World!"));
        // S-119: either of two secrets is valid.
        assert!(check(&["other", secret], signature, "Hello, World!"));
        assert!(!check(&["other"], signature, "Hello, World!"));
        assert!(!check(&[], signature, "Hello, World!") && !check(&[""], signature, "Hello, World!"));
        assert!(!check(&[secret], signature, "Hello, World?"));
        for changed in changed_bits(signature) {
            assert!(!check(&[secret], &changed, "Hello, World!"), "{changed}");
        }
        assert!(!check(&[secret], "sha256=", "Hello, World!") && !check(&[secret], &signature[7..], "Hello, World!"));
    }

    /// S-114, S-118: the vector of the Standard Webhooks libraries verifies; an old timestamp is refused.
    #[test]
    fn standard_signatures_verify() {
        let verify_by = scheme(VerifyKind::Standard);
        let (time, body) = ("1614265330", "{\"test\": 2432232314}");
        let headers = |time| {
            [
                ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
                ("webhook-timestamp", time),
                ("webhook-signature", "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
            ]
        };
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let now = 1_614_265_330;
        assert!(holds(&verify_by, &[secret], &headers(time), body, now + 300));
        assert!(!holds(&verify_by, &[secret], &headers(time), body, now + 301));
        assert!(!holds(&verify_by, &[secret], &headers(time), body, now - 301));
        assert!(!holds(&verify_by, &[secret], &headers("1614265331"), body, now));
        let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        for changed in changed_bits(signature) {
            let changed = [headers(time)[0], headers(time)[1], ("webhook-signature", &*changed)];
            assert!(!holds(&verify_by, &[secret], &changed, body, now), "{changed:?}");
        }
        // A secret without a key signs nothing.
        let signed = sign_with(b"", &["msg_p5jXN8AQM9LWM0D4loKWxJek", time, body].join("."));
        let forged = [headers(time)[0], headers(time)[1], ("webhook-signature", &*format!("v1,{signed}"))];
        assert!(!holds(&verify_by, &["whsec_"], &forged, body, now));
        // S-121: the signature covers the bytes, not the document.
        assert!(!holds(&verify_by, &[secret], &headers(time), "{\"test\":2432232314}", now));
    }

    /// Section 7: Slack verifies the address once. No other scheme has such a request.
    #[test]
    fn slack_is_answered_with_its_challenge() {
        let body = serde_json::json!({"type": "url_verification", "challenge": "3eZb", "token": "x"});
        let event = serde_json::json!({"type": "event_callback", "challenge": "3eZb"});
        let answer = |kind, body| handshake(&scheme(kind), body);
        assert_eq!(answer(VerifyKind::Slack, &body), Some(serde_json::json!({"challenge": "3eZb"})));
        assert_eq!((answer(VerifyKind::Slack, &event), answer(VerifyKind::Token, &body)), (None, None));
    }

    /// S-114, S-118: the example of Slack's documentation ("Verifying requests from Slack") verifies.
    #[test]
    fn slack_signatures_verify() {
        let verify_by = scheme(VerifyKind::Slack);
        let body = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
        let headers = [
            ("x-slack-request-timestamp", "1531420618"),
            ("x-slack-signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
        ];
        let secret = "8f742231b10e8888abcd99yyyzzz85a5";
        assert!(holds(&verify_by, &[secret], &headers, body, 1_531_420_618));
        assert!(!holds(&verify_by, &[secret], &headers, body, 1_531_420_618 + 301));
        assert!(!holds(&verify_by, &[secret], &headers, &body[1..], 1_531_420_618));
        for changed in changed_bits(headers[1].1) {
            let changed = [headers[0], (headers[1].0, &*changed)];
            assert!(!holds(&verify_by, &[secret], &changed, body, 1_531_420_618), "{changed:?}");
        }
    }

    /// S-114, S-118: the vector of Stripe's own libraries (stripe-dotnet, `event_test_signature.json`) verifies.
    #[test]
    fn stripe_signatures_verify() {
        let verify_by = scheme(VerifyKind::Stripe);
        let (body, time) = (include_str!("stripe.json"), 1_533_204_620);
        let v1 = "v1=f0bdba6d4eacbd8ad8a3bbadd7248e633ec1477f7899c124c51b39405fa36613";
        let v0 = "v0=63f3a72374a733066c4be69ed7f8e5ac85c22c9f0a6a612ab9a025a9e4ee7eef";
        let check = |header: &str, body: &str, now| {
            holds(&verify_by, &["webhook_secret"], &[("stripe-signature", header)], body, now)
        };
        assert!(check(&format!("t={time},{v1},{v0}"), body, time));
        // During a rotation there are several signatures; one of them is enough.
        assert!(check(&format!("t={time},v1=00,{v1}"), body, time));
        assert!(!check(&format!("t={time},{v0}"), body, time));
        assert!(!check(&format!("t={},{v1}", time + 1), body, time));
        for changed in changed_bits(v1) {
            assert!(!check(&format!("t={time},{changed}"), body, time), "{changed}");
        }
        assert!(!check(&format!("t={time},{v1}"), body, time + 301));
        assert!(!check(&format!("t={time},{v1}"), body.trim_end(), time));
    }

    /// S-114: `hmac` in its forms (test case 2 of RFC 4231), `gitlab` and `token` verify.
    #[test]
    fn other_schemes_verify() {
        let body = "what do ya want for nothing?";
        let sha256 = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let plain = scheme(VerifyKind::Hmac);
        // All digits have one case: another bit in one of them is another signature.
        for signature in [sha256, &sha256.to_ascii_uppercase()] {
            assert!(holds(&plain, &["Jefe"], &[("x-signature", signature)], body, 0));
            for changed in changed_bits(signature) {
                assert!(!holds(&plain, &["Jefe"], &[("x-signature", &changed)], body, 0), "{changed}");
            }
        }
        let prefixed = Verify { prefix: "v=".to_owned(), is_base64: true, ..plain.clone() };
        let encoded = format!("v={}", STANDARD.encode(from_hex(sha256).expect("digits")));
        assert!(holds(&prefixed, &["Jefe"], &[("x-signature", &encoded)], body, 0));
        assert!(!holds(&prefixed, &["Jefe"], &[("x-signature", sha256)], body, 0));
        let long = "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737";
        let other = Verify { is_sha512: true, ..plain };
        assert!(holds(&other, &["Jefe"], &[("x-signature", long)], body, 0));
        for (kind, header) in [(VerifyKind::Gitlab, "x-gitlab-token"), (VerifyKind::Token, "x-signature")] {
            assert!(holds(&scheme(kind), &["s3cret"], &[(header, "s3cret")], body, 0));
            assert!(!holds(&scheme(kind), &["s3cret"], &[(header, "s3cres")], body, 0));
            assert!(!holds(&scheme(kind), &["s3cret"], &[(header, "")], body, 0));
        }
    }
}
