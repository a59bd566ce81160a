use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use super::super::keys::{Keys, Verdict};
use super::*;

const ISSUER: &str = "https://id.example/realms/a";

const NOW_MS: i64 = 1_800_000_000_000;

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A key of an issuer, made for a test.
struct Pair(EcdsaKeyPair);

impl Pair {
    fn new() -> Self {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        Self(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pair.as_ref(), &random).expect("the key"))
    }

    fn public(&self, id: &str) -> Value {
        let point = self.0.public_key().as_ref();
        json!({"kty": "EC", "crv": "P-256", "kid": id, "x": base64(&point[1..33]), "y": base64(&point[33..])})
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
        let signature = self.0.sign(&SystemRandom::new(), message.as_bytes()).expect("signed");
        format!("{message}.{}", base64(signature))
    }
}

fn keys(all: &[Value]) -> Keys {
    Keys::parse(json!({ "keys": all }).to_string().as_bytes()).expect("keys")
}

fn header() -> Value {
    json!({"alg": "ES256", "kid": "a", "typ": "at+jwt"})
}

fn claims() -> Value {
    let now = NOW_MS / 1_000;
    json!({
        "iss": ISSUER, "sub": "alice", "aud": ["https://other.example", "etude"], "exp": now + 300, "iat": now - 10,
        "nbf": now - 10, "scope": "openid read run read",
    })
}

/// The result for a token that its issuer has signed.
fn of(header: &Value, claims: &Value) -> Result<Caller, Fault> {
    let pair = Pair::new();
    let token = pair.sign(header, claims);
    let signed = parse(&token)?;
    let keys = keys(&[pair.public("a")]);
    match keys.verify(signed.algorithm, signed.key.as_deref(), signed.message, &signed.signature) {
        Verdict::Valid => {}
        Verdict::Wrong => return Err(Fault::Signature),
        Verdict::Unknown => return Err(Fault::Key),
    }
    signed.caller(&Auth { issuer: ISSUER.to_owned(), audience: "etude".to_owned() }, NOW_MS)
}

/// The same with one member of header or claims changed; null removes it.
fn with(document: Value, name: &str, value: Value) -> Value {
    let mut document = document;
    match value {
        Value::Null => drop(document.as_object_mut().expect("an object").remove(name)),
        value => document[name] = value,
    }
    document
}

#[test]
fn a_token_of_the_issuer_has_its_scopes_and_a_name_of_its_own() {
    let caller = of(&header(), &claims()).expect("accepted");
    assert_eq!((caller.name.as_str(), &caller.scopes[..]), ("oauth:alice", &[Scope::Read, Scope::Run][..]));
    assert_eq!((caller.only.len(), caller.expires_at_ms), (0, Some(NOW_MS + 300_000)));
    for (name, value) in [("typ", json!(null)), ("typ", json!("JWT")), ("typ", json!("application/AT+jwt"))] {
        of(&with(header(), name, value), &claims()).expect("accepted");
    }
    for (name, value) in
        [("aud", json!("etude")), ("nbf", json!(null)), ("iat", json!(null)), ("exp", json!(1_800_000_000.5))]
    {
        of(&header(), &with(claims(), name, value)).expect("accepted");
    }
}

#[test]
fn scopes_are_those_of_the_server() {
    for (given, scopes) in [
        (json!({"scope": "approve  admin"}), vec![Scope::Approve, Scope::Admin]),
        (json!({"scp": ["run", "email"]}), vec![Scope::Run]),
        (json!({"scp": "read run"}), vec![Scope::Read, Scope::Run]),
        (json!({"scope": "Read readonly"}), vec![]),
        (json!({}), vec![]),
    ] {
        let mut claims = with(claims(), "scope", Value::Null);
        claims.as_object_mut().expect("an object").extend(given.as_object().expect("an object").clone());
        assert_eq!(of(&header(), &claims).expect("accepted").scopes, scopes, "{given}");
    }
}

#[test]
fn each_claim_is_checked_by_itself() {
    let now = NOW_MS / 1_000;
    for (name, value, fault) in [
        ("iss", json!("https://id.example/realms/a/"), Fault::Issuer),
        ("iss", json!(null), Fault::Claims),
        ("aud", json!("https://other.example"), Fault::Audience),
        ("aud", json!(["etude2", "ETUDE"]), Fault::Audience),
        ("aud", json!([]), Fault::Audience),
        ("aud", json!(null), Fault::Claims),
        ("exp", json!(null), Fault::Claims),
        ("exp", json!("soon"), Fault::Claims),
        ("exp", json!(1e300), Fault::Claims),
        ("exp", json!(-1), Fault::Claims),
        ("exp", json!(now - 60), Fault::Expired),
        ("nbf", json!(now + 61), Fault::Early),
        ("iat", json!(now + 61), Fault::Early),
        ("sub", json!(null), Fault::Claims),
        ("sub", json!(""), Fault::Subject),
        ("sub", json!("a b"), Fault::Subject),
        ("sub", json!("a\u{202e}"), Fault::Subject),
        ("sub", json!("a".repeat(256)), Fault::Subject),
        ("cnf", json!({"jkt": "x"}), Fault::Bound),
        ("scope", json!(7), Fault::Claims),
    ] {
        assert_eq!(of(&header(), &with(claims(), name, value.clone())).err(), Some(fault), "{name} {value}");
    }
    // The clocks of two machines differ by a little.
    for (name, seconds) in [("exp", now - 59), ("nbf", now + 60), ("iat", now + 60)] {
        of(&header(), &with(claims(), name, json!(seconds))).expect("within the leeway");
    }
}

#[test]
fn each_member_of_the_header_is_checked_by_itself() {
    for (name, value, fault) in [
        ("alg", json!("none"), Fault::Algorithm),
        ("alg", json!("HS256"), Fault::Algorithm),
        ("alg", json!("PS256"), Fault::Algorithm),
        ("alg", json!("es256"), Fault::Algorithm),
        ("alg", json!(null), Fault::Form),
        ("alg", json!("RS256"), Fault::Key),
        ("kid", json!("b"), Fault::Key),
        ("typ", json!("logout+jwt"), Fault::Type),
        ("typ", json!("dpop+jwt"), Fault::Type),
        ("crit", json!(["exp"]), Fault::Critical),
        ("crit", json!([]), Fault::Critical),
    ] {
        assert_eq!(of(&with(header(), name, value.clone()), &claims()).err(), Some(fault), "{name} {value}");
    }
}

#[test]
fn a_token_has_three_parts_and_one_spelling() {
    let token = Pair::new().sign(&header(), &claims());
    assert!(is_jwt(&token) && is_jwt("e30.e30.") && parse(&token).is_ok());
    for other in ["etd_abc", "a.b", "a.b.c.d", ".b.c", "a.b.c=", "a b.c.d", ""] {
        assert!(!is_jwt(other), "{other}");
    }
    let duplicate = format!("{}.e30.", base64(r#"{"alg": "HS256", "alg": "ES256"}"#));
    for broken in ["a.b.c", "e30.e30.", &format!("{token}=")[..], &duplicate] {
        assert_eq!(parse(broken).err(), Some(Fault::Form), "{broken}");
    }
    let long = Pair::new().sign(&header(), &with(claims(), "x", json!("x".repeat(16 * 1024))));
    assert_eq!(parse(&long).err(), Some(Fault::Size));
}

#[test]
fn signatures_of_other_keys_and_for_other_claims_are_refused() {
    let (own, other) = (Pair::new(), Pair::new());
    let keys = keys(&[own.public("a"), other.public("b")]);
    let verdict = |token: &str| {
        let signed = parse(token).unwrap_or_else(|fault| panic!("{fault}"));
        keys.verify(signed.algorithm, signed.key.as_deref(), signed.message, &signed.signature)
    };
    assert_eq!(verdict(&own.sign(&header(), &claims())), Verdict::Valid);
    assert_eq!(verdict(&other.sign(&header(), &claims())), Verdict::Wrong);
    let token = own.sign(&header(), &claims());
    let parts: Vec<&str> = token.split('.').collect();
    let swapped = base64(with(claims(), "scope", json!("admin")).to_string());
    assert_eq!(verdict(&format!("{}.{swapped}.{}", parts[0], parts[2])), Verdict::Wrong);
    assert_eq!(verdict(&format!("{}.{}.", parts[0], parts[1])), Verdict::Wrong);
    // Without a key name, exactly one key must fit.
    let nameless = own.sign(&with(header(), "kid", Value::Null), &claims());
    assert_eq!(verdict(&nameless), Verdict::Unknown);
    let keys = self::keys(&[own.public("a")]);
    let signed = parse(&nameless).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(keys.verify(signed.algorithm, None, signed.message, &signed.signature), Verdict::Valid);
}

#[test]
fn only_keys_that_sign_and_are_strong_count() {
    let (own, rsa) = (Pair::new(), |bytes: usize| json!({"kty": "RSA", "n": base64(vec![0xff; bytes]), "e": "AQAB"}));
    let counts = |key: Value| Keys::parse(json!({"keys": [key]}).to_string().as_bytes()).is_ok();
    assert!(counts(own.public("a")) && counts(rsa(256)));
    for (name, value) in [("use", "sig"), ("alg", "ES256")] {
        assert!(counts(with(own.public("a"), name, json!(value))), "{name}");
    }
    assert!(counts(with(own.public("a"), "key_ops", json!(["verify"]))));
    for (name, value) in [
        ("use", json!("enc")),
        ("alg", json!("RS256")),
        ("key_ops", json!(["sign"])),
        ("crv", json!("P-384")),
        ("kty", json!("oct")),
        ("x", json!("AQAB")),
        ("y", Value::Null),
    ] {
        assert!(!counts(with(own.public("a"), name, value.clone())), "{name} {value}");
    }
    // A leading zero bit makes the number shorter.
    let mut weak = vec![0xff; 256];
    weak[0] = 0x7f;
    assert!(!counts(rsa(128)) && !counts(with(rsa(256), "n", json!(base64(weak)))));
    assert!(!counts(with(rsa(256), "alg", json!("PS256"))) && !counts(with(rsa(256), "e", json!("AAAA"))));
    // A key that is not understood does not hide the others.
    assert!(Keys::parse(json!({"keys": [7, {"kty": "OKP"}, own.public("a")]}).to_string().as_bytes()).is_ok());
    assert!(Keys::parse(b"[]").is_err() && Keys::parse(b"{\"keys\": []}").is_err());
}

/// RFC 7515, A.2: the RSA signature of the example verifies.
#[test]
fn the_example_of_the_standard_verifies() {
    let n = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let signed = parse(token).unwrap_or_else(|fault| panic!("{fault}"));
    // Leading zeros, which some issuers write, are ignored.
    for n in [n.to_owned(), base64([&[0], &URL_SAFE_NO_PAD.decode(n).expect("base64")[..]].concat())] {
        let keys = keys(&[json!({"kty": "RSA", "n": n, "e": "AQAB"})]);
        let ask = |message: &[u8]| keys.verify(signed.algorithm, None, message, &signed.signature);
        assert_eq!(ask(signed.message), Verdict::Valid);
        assert_eq!(ask(&signed.message[1..]), Verdict::Unknown);
    }
}
