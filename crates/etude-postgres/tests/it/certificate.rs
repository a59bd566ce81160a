//! Certificates with a key on the curve P-256, written as DER (RFC 5280) and signed by `ring`.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const DNS_NAME: u8 = 0x82;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const PRIME256V1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];

/// A certificate with its key.
pub(crate) struct Certificate {
    name: String,
    der: Vec<u8>,
    pkcs8: Vec<u8>,
}

impl Certificate {
    /// A self-signed authority for the hosts with these names.
    pub(crate) fn authority(name: &str, hosts: &[&str]) -> Self {
        Self::signed(None, name, hosts)
    }

    /// A certificate signed by this authority.
    pub(crate) fn issue(&self, name: &str, hosts: &[&str]) -> Self {
        Self::signed(Some(self), name, hosts)
    }

    pub(crate) fn pem(&self) -> String {
        pem("CERTIFICATE", &self.der)
    }

    pub(crate) fn key_pem(&self) -> String {
        pem("PRIVATE KEY", &self.pkcs8)
    }

    fn signed(issuer: Option<&Self>, name: &str, hosts: &[&str]) -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).expect("a key");
        let pkcs8 = pkcs8.as_ref().to_vec();
        let key = key(&pkcs8);
        // The first byte keeps the number positive.
        let mut serial = [1; 9];
        random.fill(&mut serial[1..]).expect("a number");
        let algorithm = element(SEQUENCE, &[&element(OBJECT_IDENTIFIER, &[ECDSA_WITH_SHA256])]);
        let validity = [element(UTC_TIME, &[b"200101000000Z"]), element(GENERALIZED_TIME, &[b"99991231235959Z"])];
        let curve = [element(OBJECT_IDENTIFIER, &[EC_PUBLIC_KEY]), element(OBJECT_IDENTIFIER, &[PRIME256V1])];
        let public = [element(SEQUENCE, &[&curve.concat()]), element(BIT_STRING, &[&[0], key.public_key().as_ref()])];
        let content = element(
            SEQUENCE,
            &[
                &element(VERSION, &[&element(INTEGER, &[&[2]])]),
                &element(INTEGER, &[&serial]),
                &algorithm,
                &distinguished(issuer.map_or(name, |issuer| &issuer.name)),
                &element(SEQUENCE, &[&validity.concat()]),
                &distinguished(name),
                &element(SEQUENCE, &[&public.concat()]),
                &extensions(issuer.is_none(), hosts),
            ],
        );
        let signer = issuer.map(|issuer| self::key(&issuer.pkcs8));
        let signature = signer.as_ref().unwrap_or(&key).sign(&random, &content).expect("a signature");
        let der = element(SEQUENCE, &[&content, &algorithm, &element(BIT_STRING, &[&[0], signature.as_ref()])]);
        Self { name: name.to_owned(), der, pkcs8 }
    }
}

fn key(pkcs8: &[u8]) -> EcdsaKeyPair {
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8, &SystemRandom::new()).expect("a key")
}

/// A distinguished name with a common name only.
fn distinguished(name: &str) -> Vec<u8> {
    let common = [element(OBJECT_IDENTIFIER, &[COMMON_NAME]), element(UTF8_STRING, &[name.as_bytes()])];
    element(SEQUENCE, &[&element(SET, &[&element(SEQUENCE, &[&common.concat()])])])
}

/// The extensions; empty if there are none, because the list must not be empty.
fn extensions(is_authority: bool, hosts: &[&str]) -> Vec<u8> {
    let mut all = Vec::new();
    let is_true = element(BOOLEAN, &[&[0xff]]);
    if is_authority {
        let constraints = element(OCTET_STRING, &[&element(SEQUENCE, &[&is_true])]);
        all.push(element(SEQUENCE, &[&element(OBJECT_IDENTIFIER, &[BASIC_CONSTRAINTS]), &is_true, &constraints]));
    }
    if !hosts.is_empty() {
        let names: Vec<_> = hosts.iter().map(|host| element(DNS_NAME, &[host.as_bytes()])).collect();
        let names = element(OCTET_STRING, &[&element(SEQUENCE, &[&names.concat()])]);
        all.push(element(SEQUENCE, &[&element(OBJECT_IDENTIFIER, &[SUBJECT_ALT_NAME]), &names]));
    }
    if all.is_empty() { all.concat() } else { element(EXTENSIONS, &[&element(SEQUENCE, &[&all.concat()])]) }
}

/// An element: a tag, the length in its shortest form, and the parts of the content.
fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let [.., high, low] = content.len().to_be_bytes();
    let length = match content.len() {
        0..0x80 => vec![low],
        0x80..0x100 => vec![0x81, low],
        _ => vec![0x82, high, low],
    };
    [vec![tag], length, content].concat()
}

fn pem(label: &str, content: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(content);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
