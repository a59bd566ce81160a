//! Certificates with their keys, made for tests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

/// `ecdsa-with-SHA256`, `id-ecPublicKey` and `prime256v1`.
const SIGNED: [u8; 10] = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const KEY: [u8; 9] = [0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const CURVE: [u8; 10] = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

/// A certificate that is its own authority, and its key, in PEM.
pub(super) struct Made {
    pub(super) cert: String,
    pub(super) key: String,
}

/// A value of ASN.1 in DER.
fn der(tag: u8, content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    let [.., high, low] = content.len().to_be_bytes();
    let length: &[u8] = match content.len() {
        0..128 => &[low],
        128..256 => &[0x81, low],
        _ => &[0x82, high, low],
    };
    [&[tag], length, &content].concat()
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

/// A self-signed certificate with a new key.
pub(super) fn self_signed() -> Made {
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).expect("a key");
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random).expect("the key");
    let (sequence, signed) = (0x30, der(0x30, &[&SIGNED]));
    let version = der(0xa0, &[&[2, 1, 2]]);
    let name = der(sequence, &[]);
    let valid = der(sequence, &[&der(0x17, &[b"200101000000Z"]), &der(0x17, &[b"490101000000Z"])]);
    let point = der(0x03, &[&[0], pair.public_key().as_ref()]);
    let key = der(sequence, &[&der(sequence, &[&KEY, &CURVE]), &point]);
    let body = der(sequence, &[&version, &[2, 1, 1], &signed, &name, &valid, &name, &key]);
    let signature = pair.sign(&random, &body).expect("signed");
    let cert = der(sequence, &[&body, &signed, &der(0x03, &[&[0], signature.as_ref()])]);
    Made { cert: pem("CERTIFICATE", &cert), key: pem("PRIVATE KEY", pkcs8.as_ref()) }
}
