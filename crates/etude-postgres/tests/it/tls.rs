//! Encrypted connections to servers that listen on a loopback address.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use etude_postgres::{Address, Credentials, Postgres, Status};

use crate::certificate::Certificate;
use crate::server::{self, Server};

const PATIENCE: Duration = Duration::from_secs(60);

/// Rules for roles with a password and with a certificate; all others are trusted on the socket.
const RULES: &str = "
    local all all trust
    hostssl all ada 127.0.0.0/8 scram-sha-256
    hostssl all certified 127.0.0.0/8 cert
    hostssl all etude 127.0.0.0/8 trust
    hostnossl all plain 127.0.0.0/8 trust
";

/// A server with TLS, and the common end of its URLs.
fn start(certificate: &Certificate, clients: &Certificate) -> Option<(Server, String)> {
    let address = server::address();
    let listen = format!("listen_addresses={address}");
    let settings = [&listen, "ssl=on", "ssl_cert_file=s.crt", "ssl_key_file=s.key", "ssl_ca_file=ca.crt"];
    let (certificate, key, clients) = (certificate.pem(), certificate.key_pem(), clients.pem());
    let files = [("s.crt", &*certificate), ("s.key", &key), ("ca.crt", &clients), ("pg_hba.conf", RULES)];
    Some((Server::start_with(&settings, &files)?, format!("/postgres?hostaddr={address}")))
}

/// Status and state of the check `tls`; or the reason why there is no connection.
fn look(url: &str) -> Result<(Status, String), String> {
    let address = Address::parse(url).expect(url);
    let report = Postgres::check(address, PATIENCE, &Credentials::default(), &SystemTime::now)
        .map_err(|error| error.to_string())?;
    let check = report.checks.into_iter().find(|check| check.id == "tls").expect("a check");
    Ok((check.status, check.found))
}

fn refusal(url: &str) -> String {
    look(url).expect_err(url)
}

fn written(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).expect("a file can be written");
    path.display().to_string()
}

/// K-58: by default, the certificate of another machine and its name are checked; the URL can change that.
#[test]
fn the_certificate_of_another_machine_is_checked() {
    let (trusted, strange) = (Certificate::authority("trusted", &[]), Certificate::authority("strange", &[]));
    let certificate = trusted.issue("server", &["db.example.com"]);
    let Some((server, rest)) = start(&certificate, &trusted) else { return };
    server.sql("create role plain login");
    let dir = tempfile::tempdir().expect("a directory");
    let root = written(dir.path(), "root.crt", &trusted.pem());
    let other = written(dir.path(), "other.crt", &strange.pem());
    let encrypted = (Status::Ok, "TLS 1.3".to_owned());
    let url = |host: &str, more: &str| format!("postgres://etude@{host}{rest}{more}");

    assert_eq!(look(&url("db.example.com", &format!("&sslrootcert={root}"))), Ok(encrypted.clone()));
    let error = refusal(&url("db2.example.com", &format!("&sslrootcert={root}")));
    assert!(error.contains("for another name") && error.contains("db.example.com"), "{error}");
    assert_eq!(look(&url("db2.example.com", &format!("&sslmode=verify-ca&sslrootcert={root}"))), Ok(encrypted));
    for mode in ["require", "verify-ca", "verify-full"] {
        let error = refusal(&url("db.example.com", &format!("&sslmode={mode}&sslrootcert={other}")));
        assert!(error.contains("its certificate is not signed by a trusted authority"), "{mode}: {error}");
    }
    // The authorities of this system have not signed the certificate.
    refusal(&url("db.example.com", ""));
    let unchecked = (Status::Warning, "TLS 1.3, certificate not checked".to_owned());
    assert_eq!(look(&url("db.example.com", "&sslmode=require")), Ok(unchecked));
    // The rules of the server decide which roles need no encryption.
    let plain = |mode: &str| url("db.example.com", mode).replace("etude@", "plain@");
    assert!(refusal(&plain("&sslmode=require")).contains("SQLSTATE 28000"));
    for mode in ["&sslmode=prefer", "&sslmode=allow", "&sslmode=disable"] {
        assert_eq!(look(&plain(mode)), Ok((Status::Error, "none".to_owned())), "{mode}");
    }
    assert!(look(&url("db.example.com", "&sslmode=allow")).is_ok_and(|(status, _)| status == Status::Warning));
    let error = refusal(&url("db.example.com", "&sslrootcert=/missing.crt"));
    assert!(error.contains("`sslrootcert`: `/missing.crt` cannot be read"), "{error}");
}

/// K-58: a password is proven for this connection alone, and a client certificate suffices without a password.
#[test]
fn clients_prove_who_they_are() {
    let trusted = Certificate::authority("trusted", &[]);
    let certificate = trusted.issue("server", &["db.example.com"]);
    let Some((server, rest)) = start(&certificate, &trusted) else { return };
    server.sql("create role ada login password 's3cret'; create role certified login");
    let dir = tempfile::tempdir().expect("a directory");
    let root = written(dir.path(), "root.crt", &trusted.pem());
    let url = |user: &str, more: &str| format!("postgres://{user}@db.example.com{rest}&sslrootcert={root}{more}");
    let encrypted = (Status::Ok, "TLS 1.3".to_owned());
    assert_eq!(look(&url("ada:s3cret", "&channel_binding=require")), Ok(encrypted.clone()));
    assert!(refusal(&url("ada:wrong", "")).contains("SQLSTATE 28P01"));

    let client = trusted.issue("certified", &[]);
    let certificate = written(dir.path(), "c.crt", &client.pem());
    let key = written(dir.path(), "c.key", &client.key_pem());
    let identity = format!("&sslcert={certificate}&sslkey={key}");
    assert_eq!(look(&url("certified", &identity)), Ok(encrypted));
    assert!(refusal(&url("certified", "")).contains("SQLSTATE 28000"));
    let error = refusal(&url("certified", &format!("&sslcert={certificate}&sslkey=/missing.key")));
    assert!(error.contains("`sslkey`: `/missing.key` cannot be read"), "{error}");
}

/// K-58: a certificate that is its own authority is trusted if its file is named, and only for its name.
#[test]
fn a_certificate_may_be_its_own_authority() {
    let [own, other] = [(); 2].map(|()| Certificate::authority("server", &["db.example.com"]));
    let Some((_server, rest)) = start(&own, &own) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let root = written(dir.path(), "root.crt", &own.pem());
    let impostor = written(dir.path(), "other.crt", &other.pem());
    let url = |host: &str, root: &str| format!("postgres://etude@{host}{rest}&sslrootcert={root}");
    assert_eq!(look(&url("db.example.com", &root)), Ok((Status::Ok, "TLS 1.3".to_owned())));
    assert!(refusal(&url("db2.example.com", &root)).contains("for another name"));
    refusal(&url("db.example.com", &impostor));
}

/// K-58: a server without TLS is refused unless the URL has `sslmode=disable`, and the check names the cost.
#[test]
fn a_server_without_tls_needs_the_consent_of_the_url() {
    let address = server::address();
    let Some(_server) = Server::start_with(&[&format!("listen_addresses={address}")], &[]) else { return };
    let url = |mode: &str| format!("postgres://etude@db.example.com/postgres?hostaddr={address}{mode}");
    for mode in ["", "&sslmode=require", "&sslmode=verify-full"] {
        let error = refusal(&url(mode));
        assert!(error.contains("it does not support TLS") && error.contains("sslmode=disable"), "{mode}: {error}");
    }
    for mode in ["&sslmode=disable", "&sslmode=prefer", "&sslmode=allow"] {
        assert_eq!(look(&url(mode)), Ok((Status::Error, "none".to_owned())), "{mode}");
    }
    let here = format!("postgres://etude@{address}/postgres");
    assert_eq!(look(&here), Ok((Status::Skipped, "this machine".to_owned())));
}
