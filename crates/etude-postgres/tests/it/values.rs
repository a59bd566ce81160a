//! Large values in object storage: in a directory, and in a bucket of an independent server.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use etude_core::digest::Digest;
use etude_postgres::{Credentials, Location, Postgres, Settings, Status};
use etude_runtime::blob::{Unavailable, put};
use etude_runtime::conformance::{block_on, new_run, record};
use etude_runtime::engine::{Engine as _, Error, Fleet as _, Query, RunState};
use tempfile::TempDir;

use crate::moto::Moto;
use crate::server::Server;
use crate::settings;

/// A server, and a storage of values.
struct World {
    server: Server,
    dir: TempDir,
    url: String,
    credentials: Credentials,
}

impl World {
    fn new(url: impl Fn(&Path) -> String, credentials: Credentials) -> Option<Self> {
        let server = Server::start()?;
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("shared")).expect("a directory");
        let url = url(&dir.path().join("shared"));
        let world = Self { server, dir, url, credentials };
        let settings = world.settings("one");
        Postgres::migrate(settings.address, settings.connect_timeout).expect("a schema can be created");
        world.engine("one").apply_blobs(Some(&world.url)).expect("a place for values");
        Some(world)
    }

    fn with_directory() -> Option<Self> {
        Self::new(|shared| format!("file://{}", shared.display()), Credentials::default())
    }

    fn settings(&self, machine: &str) -> Settings {
        let cache = self.cache(machine);
        Settings { credentials: self.credentials.clone(), ..settings(&self.server, "etude", &cache) }
    }

    /// The engine of another machine.
    fn engine(&self, machine: &str) -> Postgres {
        Postgres::open(self.settings(machine)).expect("an engine")
    }

    fn cache(&self, machine: &str) -> PathBuf {
        self.dir.path().join(machine)
    }

    fn object(&self, name: &str) -> PathBuf {
        self.dir.path().join("shared").join(name)
    }

    /// Makes every upload old.
    fn age(&self) {
        self.server.sql("update etude.blobs set uploaded_at = uploaded_at - interval '2 days'");
    }
}

/// Credentials that the server of buckets accepts.
fn credentials() -> Credentials {
    let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let variables = vec![of("AWS_ACCESS_KEY_ID", "key"), of("AWS_SECRET_ACCESS_KEY", "secret")];
    Credentials { variables, ..Credentials::default() }
}

/// A value that is long enough for object storage.
fn large(word: &[u8]) -> Vec<u8> {
    let mut bytes = vec![b' '; 300_000];
    bytes[..word.len()].copy_from_slice(word);
    bytes
}

/// The word at the beginning of a value.
fn read(engine: &Postgres, digest: Digest) -> io::Result<Vec<u8>> {
    let blob = engine.blobs().open(digest)?;
    let mut bytes = vec![0; 64];
    let len = blob.read_at(0, &mut bytes).map_err(io::Error::other)?;
    Ok(bytes[..len].trim_ascii_end().to_vec())
}

/// Keeps a large value that begins with a word.
fn keep(engine: &Postgres, word: &[u8]) -> Digest {
    put(&*engine.blobs(), &large(word)).expect("a value can be kept").0
}

/// K-45, K-46, K-47: values and bundles are objects under their hash, and any machine reads them; none is in the
/// database. A wrong or missing object is an error with the hash; a damaged copy is fetched again.
fn values_are_objects(world: &World, object: &dyn Fn(&str) -> Option<Vec<u8>>, spoil: &dyn Fn(&str, &str)) {
    let (one, two) = (world.engine("one"), world.engine("two"));
    let value = keep(&one, b"value");
    let bundle = put(&*one.bundles(), b"bundle").expect("a bundle can be kept").0;
    assert_eq!(object(&format!("values/{value}")).as_deref(), Some(&large(b"value")[..]));
    assert_eq!(object(&format!("bundles/{bundle}")).as_deref(), Some(&b"bundle"[..]));
    assert_eq!(world.server.sql("select count(*) from etude.chunks"), "0");
    assert_eq!(
        (read(&two, value).expect("a value"), read(&two, bundle).expect("a bundle")),
        (b"value".to_vec(), b"bundle".to_vec())
    );
    // Keeping an existing value writes nothing, and succeeds.
    assert_eq!(keep(&two, b"value"), value);
    let copy = world.cache("two").join(&value.to_string()[..2]).join(value.to_string());
    fs::write(&copy, b"other").expect("the copy is a file");
    assert_eq!(read(&two, value).expect("it is fetched again"), b"value");
    spoil(&format!("values/{value}"), "other");
    let error = read(&world.engine("three"), value).expect_err("it is wrong or missing");
    assert!(matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::NotFound), "{error:?}");
    assert!(error.to_string().contains(&value.to_string()), "{error}");
    // Keeping the value again repairs the object.
    assert_eq!(keep(&world.engine("one again"), b"value"), value);
    assert_eq!(read(&world.engine("three"), value).expect("it is right again"), b"value");
    // An object of the right length has other bytes. No copy is made of it, and the process that has read it replaces it.
    spoil(&format!("values/{value}"), &String::from_utf8(large(b"eulav")).expect("text"));
    let four = world.engine("four");
    let error = read(&four, value).expect_err("it is something else");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().contains(&value.to_string()), "{error}");
    let copy = world.cache("four").join(&value.to_string()[..2]).join(value.to_string());
    assert!(
        !copy.exists() && fs::read_dir(world.cache("four").join("tmp")).is_ok_and(|mut left| left.next().is_none())
    );
    assert_eq!(keep(&four, b"value"), value);
    assert_eq!(read(&world.engine("three again"), value).expect("it is right again"), b"value");
    // A short value needs no object.
    put(&*one.blobs(), b"short").expect("a value can be kept");
    assert_eq!(world.server.sql("select count(*) from etude.chunks"), "1");
    assert!(one.blobs().has(Digest::of(b"short")) && !one.blobs().has(Digest::of(b"other")));
    let never = Digest::of(b"never kept");
    let error = read(&two, never).expect_err("it was never kept");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().contains(&never.to_string()), "{error}");
}

/// K-45, K-46, K-47: values are objects in a directory.
#[test]
fn values_are_objects_in_a_directory() {
    let Some(world) = World::with_directory() else { return };
    let object = |name: &str| fs::read(world.object(name)).ok();
    let spoil = |name: &str, bytes: &str| fs::write(world.object(name), bytes).expect("it is a file");
    values_are_objects(&world, &object, &spoil);
    assert!(!world.credentials.are_used.load(Ordering::Relaxed));
}

/// K-45, K-46, K-47: values are objects in a bucket, including a value that is sent in parts.
#[test]
fn values_are_objects_in_a_bucket() {
    let Some(moto) = Moto::start() else { return };
    let Some(world) = World::new(|_| moto.url("a/b"), credentials()) else { return };
    let object = |name: &str| moto.object(&format!("a/b/{name}"));
    values_are_objects(&world, &object, &|name, bytes| moto.spoil(&format!("a/b/{name}"), bytes));
    moto.remove(&format!("a/b/values/{}", Digest::of(&large(b"value"))));
    let error = read(&world.engine("five"), Digest::of(&large(b"value"))).expect_err("it is gone");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(world.credentials.are_used.load(Ordering::Relaxed), "steps do not get the variables");
    let long = vec![7; 17 << 20];
    let value = put(&*world.engine("one").blobs(), &long).expect("a value can be kept").0;
    assert_eq!(object(&format!("values/{value}")).map(|bytes| bytes.len()), Some(long.len()));
    assert_eq!(read(&world.engine("four"), value).expect("a value"), [7; 64]);
    // Old values are removed with their objects.
    world.age();
    world.engine("one").prune(&Query::default()).expect("prune");
    assert_eq!(object(&format!("values/{value}")), None);
    let report = Postgres::check(
        world.settings("one").address,
        world.settings("one").connect_timeout,
        &world.credentials,
        &SystemTime::now,
    );
    let checks = report.expect("a report").checks;
    let blobs = checks.iter().find(|check| check.id == "blobs").expect("a check");
    assert_eq!(blobs.status, Status::Ok, "{blobs:?}");
}

/// An address that forbids every request.
fn forbidding() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A client that is still sending would not read the response.
            let (mut request, mut part) = (Vec::new(), [0; 4096]);
            while !request.ends_with(b"etude engine check\n") {
                match stream.read(&mut part) {
                    Ok(count @ 1..) => request.extend_from_slice(&part[..count]),
                    _ => break,
                }
            }
            let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    format!("http://{address}")
}

/// cluster §6: a process that can never keep a large value is refused before it is a worker; a process whose object
/// storage is away is not.
#[test]
fn a_worker_needs_access_to_object_storage() {
    let Some(world) = World::with_directory() else { return };
    let engine = world.engine("one");
    engine.check_work().expect("values can be kept");
    engine.check_values().expect("values can be reached");
    assert_eq!(fs::read_dir(world.object("values")).expect("values").count(), 0, "the probe is gone");
    fs::rename(world.dir.path().join("shared"), world.dir.path().join("away")).expect("it can be moved");
    for away in [engine.check_work(), engine.check_values()] {
        assert!(matches!(&away, Err(Error::ValuesAway(why)) if why.contains("shared")), "{away:?}");
    }
    let refused = |url: &str, credentials: Credentials, word: &str| {
        engine.apply_blobs(Some(url)).expect("there are no values");
        let checked =
            Postgres::open(Settings { credentials, ..world.settings("two") }).expect("an engine").check_work();
        let Err(Error::Refused { why, hint }) = checked else { panic!("{url}: {checked:?}") };
        assert!(why.contains(word) && hint.contains("etude engine check"), "{why}; {hint}");
    };
    let server = forbidding();
    refused(&format!("s3://values?endpoint={server}"), Credentials::default(), "AWS_ACCESS_KEY_ID");
    refused(&format!("s3://values?endpoint={server}"), credentials(), "403");
    fs::write(world.dir.path().join("file"), "").expect("a file");
    refused(&format!("file://{}", world.dir.path().join("file").display()), Credentials::default(), "not a directory");
    let Some(moto) = Moto::start() else { return };
    refused(&moto.url("a").replace("s3://values", "s3://others"), credentials(), "NoSuchBucket");
    engine.apply_blobs(Some(&moto.url("a"))).expect("there are no values");
    let settings = Settings { credentials: credentials(), ..world.settings("two") };
    Postgres::open(settings).expect("an engine").check_work().expect("values can be kept");
}

/// K-47: many machines can upload the same values at once.
#[test]
fn uploads_of_the_same_value_are_harmless() {
    let Some(world) = World::with_directory() else { return };
    let engines: Vec<Postgres> = (0..4).map(|number| world.engine(&format!("machine-{number}"))).collect();
    let barrier = Barrier::new(engines.len());
    std::thread::scope(|scope| {
        for engine in &engines {
            scope.spawn(|| {
                barrier.wait();
                for number in 0..20_u32 {
                    keep(engine, format!("value {number}").as_bytes());
                }
            });
        }
    });
    let shelf = fs::read_dir(world.object("values")).expect("values");
    assert_eq!(shelf.count(), 20, "objects, and no part of one");
    assert_eq!(world.server.sql("select count(*) from etude.blobs"), "20");
    let reader = world.engine("reader");
    for number in 0..20_u32 {
        let word = format!("value {number}");
        assert_eq!(read(&reader, Digest::of(&large(word.as_bytes()))).expect("a value"), word.as_bytes());
    }
}

/// K-45: a process that dies after the row of a value, or after its object, leaves a value without a record, and the
/// next upload is complete.
#[test]
fn an_upload_that_ended_half_way_is_repeated() {
    let Some(world) = World::with_directory() else { return };
    let value = Digest::of(&large(b"value"));
    // There is a row, and no object.
    world.server.sql(&format!(
        "insert into etude.blobs (hash, length, uploaded_at, place) values ('\\x{value}', 300000, now(), 'values')"
    ));
    let engine = world.engine("one");
    assert_eq!(read(&engine, value).map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
    assert_eq!(keep(&engine, b"value"), value);
    assert_eq!(read(&world.engine("two"), value).expect("a value"), b"value");
    // A part of an object does not have the name of a value.
    fs::write(world.object("values/.part-0"), b"val").expect("a part");
    // There is an object, and no record: it is removed after a day.
    engine.prune(&Query::default()).expect("prune");
    assert!(world.object(&format!("values/{value}")).exists(), "an upload of the last day");
    world.age();
    engine.prune(&Query::default()).expect("prune");
    assert!(!world.object(&format!("values/{value}")).exists());
    assert_eq!(world.server.sql("select count(*) from etude.blobs"), "0");
}

/// K-48: a prune keeps values of records and bundles in use. A value that is uploaded again during its removal is kept.
#[test]
fn a_prune_leaves_the_objects_that_are_needed() {
    let Some(world) = World::with_directory() else { return };
    let engine = world.engine("one");
    let (needed, other, again) = (keep(&engine, b"needed"), keep(&engine, b"other"), keep(&engine, b"again"));
    let bundle = put(&*engine.bundles(), b"bundle").expect("a bundle can be kept").0;
    let mut run = new_run("r-1", 1);
    run.placement.bundle = Some(bundle);
    let session = block_on(engine.create(&run)).expect("create");
    let mut of_value = record("a", "{}");
    of_value.blobs = vec![needed];
    block_on(session.append(of_value)).expect("append");
    world.age();
    // Another prune has begun and will remove this object at any moment.
    world.server.sql(&format!("update etude.blobs set is_going = true where hash = '\\x{again}'"));
    assert_eq!(keep(&engine, b"again"), again);
    engine.prune(&Query::default()).expect("prune");
    fs::remove_file(world.object(&format!("values/{again}"))).expect("the removal arrives late");
    let reader = world.engine("two");
    assert_eq!(read(&reader, again).expect("it is in the database"), b"again");
    assert_eq!(read(&reader, needed).expect("a record refers to it"), b"needed");
    assert_eq!(read(&reader, bundle).expect("a run has it"), b"bundle");
    assert_eq!(read(&reader, other).map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
    assert!(!world.object(&format!("values/{other}")).exists());
    block_on(session.set_state(RunState::Succeeded, Some("{}"))).expect("set_state");
    drop(session);
    world.age();
    // A process died while it wrote an object.
    let part = world.object("values/.part-1");
    File::create(&part).expect("a file").set_modified(SystemTime::UNIX_EPOCH).expect("aged");
    assert_eq!(engine.prune(&Query::default()).expect("prune"), 1);
    assert!(!world.object(&format!("values/{needed}")).exists() && !part.exists());
    assert!(!world.object(&format!("bundles/{bundle}")).exists());
}

/// cluster §6: another storage is refused while there are values, and used once there are none. Other engines follow.
#[test]
fn another_place_is_refused_while_values_exist() {
    let Some(world) = World::with_directory() else { return };
    let (engine, other) = (world.engine("one"), world.engine("two"));
    keep(&engine, b"value");
    let refused =
        |url| matches!(engine.apply_blobs(url), Err(Error::Store { why, .. }) if why.contains("engine.blobs"));
    assert!(refused(Some("file:///elsewhere")) && refused(None));
    engine.apply_blobs(Some(&world.url)).expect("it is the same place");
    assert_eq!(engine.rules().expect("rules").blobs.as_deref(), Some(&*world.url));
    world.age();
    engine.prune(&Query::default()).expect("prune");
    engine.apply_blobs(None).expect("there are no values");
    let value = keep(&other, b"value");
    assert_eq!(world.server.sql("select count(*) from etude.chunks"), "1");
    assert_eq!(read(&engine, value).expect("a value"), b"value");
}

/// K-66: the check of object storage names its fault. A missing storage proves nothing about its contents.
#[test]
fn a_place_that_is_not_there_is_no_missing_value() {
    let Some(world) = World::with_directory() else { return };
    let settings = world.settings("one");
    let check = || {
        let report =
            Postgres::check(settings.address.clone(), settings.connect_timeout, &world.credentials, &SystemTime::now);
        report.expect("a report").checks.into_iter().find(|check| check.id == "blobs").expect("a check")
    };
    assert_eq!(check().status, Status::Ok);
    assert_eq!(fs::read_dir(world.object("values")).expect("values").count(), 0, "the probe is gone");
    let engine = world.engine("one");
    let value = keep(&engine, b"value");
    fs::rename(world.dir.path().join("shared"), world.dir.path().join("away")).expect("it can be moved");
    let found = check();
    assert_eq!(found.status, Status::Error, "{found:?}");
    assert!(found.found.contains("shared") && !found.hint.is_empty(), "{found:?}");
    let away = |error: io::Error| {
        assert!(Unavailable::of(&error).is_some_and(|cause| !cause.is_refused), "{error:?}");
    };
    away(read(&world.engine("two"), value).expect_err("the place is away"));
    away(put(&*engine.blobs(), &large(b"another")).expect_err("the place is away"));
    assert_eq!(read(&engine, value).expect("the copy is enough"), b"value");
}

/// K-49: copies have a limited total size, and may be removed at any time, even while a value is in use.
#[test]
fn copies_are_bounded_and_may_be_removed() {
    let Some(world) = World::with_directory() else { return };
    let limit = 64 * 1024;
    let engine = Postgres::open(Settings { cache_limit: limit, ..world.settings("one") }).expect("an engine");
    let value = |number: u8| vec![number; 4096];
    for number in 0..40 {
        put(&*engine.blobs(), &value(number)).expect("a value can be kept");
    }
    let taken: u64 = files(&world.cache("one")).iter().map(|(_, len)| len).sum();
    assert!(taken <= limit, "{taken} bytes");
    let blobs: Vec<_> =
        (0..40).map(|number| engine.blobs().open(Digest::of(&value(number))).expect("a value")).collect();
    fs::remove_dir_all(world.cache("one")).expect("a user removes the copies");
    for (number, blob) in (0..40).zip(&blobs) {
        let mut bytes = vec![0; 8];
        assert_eq!(blob.read_at(4090, &mut bytes), Ok(6));
        assert_eq!(bytes[..6], [number; 6]);
    }
}

fn files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let meta = entry.metadata().expect("a file");
        match meta.is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push((entry.path(), meta.len())),
        }
    }
    found
}

/// cluster §6: valid values of `engine.blobs`. Without TLS, values do not leave this machine; a URL has no credentials.
#[test]
fn places_for_values_are_checked() {
    let bucket = |text: &str| match Location::parse(text) {
        Ok(Location::Bucket { bucket, prefix, region, endpoint }) => (bucket, prefix, region, endpoint),
        other => panic!("{text}: {other:?}"),
    };
    let named = |text: &str| Some(text.to_owned());
    assert_eq!(bucket("s3://bucket"), ("bucket".to_owned(), String::new(), None, None));
    assert_eq!(
        bucket("s3://bucket/a/b/?region=eu-central-1&endpoint=http://127.0.0.1:9000"),
        ("bucket".to_owned(), "a/b".to_owned(), named("eu-central-1"), named("http://127.0.0.1:9000"))
    );
    assert_eq!(bucket("s3://b?endpoint=https://s3.example.com").3, named("https://s3.example.com"));
    assert_eq!(Location::parse("file:///srv/values"), Ok(Location::Directory("/srv/values".into())));
    for wrong in [
        "/srv/values",
        "file://host/srv",
        "https://bucket",
        "s3://",
        "s3://bucket/a//b",
        "s3://bucket/ä",
        "s3://bucket?colour=red",
        "s3://key:secret@bucket",
        "s3://bucket?endpoint=http://s3.example.com",
        "s3://bucket?endpoint=http://127.0.0.1.example.com",
        "file:///srv?x=1",
    ] {
        assert!(Location::parse(wrong).is_err(), "{wrong}");
    }
}
