//! Sandboxes of code steps and of agents' programs: limits for a step, permitted actions, and the behaviour where nothing
//! can be enforced.
//!
//! `sandbox/attempts.py` attempts every known way out. Each of them must succeed without a sandbox, unless it needs special
//! rights; otherwise the attempt would show nothing.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Child, Command};

use etude_process::sandbox;
use serde_json::{Value, json};

use crate::ran::Ran;
use crate::server::{Reply, Server};
use crate::test::{Test, printing, skipped};

const ATTEMPTS: &str = include_str!("sandbox/attempts.py");

/// Attempts that need rights which a test may lack, or that a kernel or container forbids. None of them may succeed in a
/// sandbox.
const MAY_FAIL: [&str; 26] = [
    "change modes",
    "read the password hashes",
    "read the environment of the runner",
    "attach to another process",
    "read the memory of another process",
    "make a ring for sockets",
    "make a user namespace",
    "make a namespace with a new process",
    "mount",
    "change the root",
    "type into the terminal",
    "send by UDP over IPv6",
    "load a program into the kernel",
    "trace the kernel",
    "load a module",
    "load a module from a file",
    "add a key",
    "use a ring of keys",
    "open a file by its handle",
    "read the memory of another process by a call",
    "write the memory of another process by a call",
    "take a descriptor of another process",
    "see every packet",
    "connect to the machine around this one",
    "share memory",
    "type into a terminal of its own",
];

/// Attempts that an older Landlock does not prevent: those with signals, before ABI 6.
const NEED_SIGNALS: [&str; 2] = ["signal another process", "signal the runner"];

/// Attempts at the network, with sockets of the families that the network has.
const NETWORK: [&str; 5] = [
    "connect by TCP",
    "listen by TCP",
    "send by UDP",
    "send by UDP over IPv6",
    // Programs use this request to read the addresses of the machine for name lookups.
    "ask the kernel about the network",
];

/// Reports whether this machine can enforce a sandbox. Elsewhere, tests of enforcement show nothing and say so.
pub(crate) fn is_supported() -> bool {
    if let Err(why) = sandbox::support() {
        let is_required = std::env::var_os("ETUDE_REQUIRE_SANDBOX").is_some();
        assert!(!is_required, "this machine is known to keep sandboxes, and it is said that it cannot: {why}");
        skipped("what a sandbox enforces", &why);
        return false;
    }
    true
}

struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The result of each attempt in a step with these fields.
fn attempts(fields: &str) -> Value {
    let test = Test::new().file("pipelines/p/attempts.py", ATTEMPTS).pipeline("p", |p| {
        let head = ["secret", "outside"].map(|name| format!("  {name}: string\n")).concat();
        p.with(&format!("input:\n{head}  victim: integer\n  tcp: integer"))
            .step(&format!("name: a\ntype: code\ncommand: python3 attempts.py\n{fields}"))
    });
    test.put("home/.ssh/id", "a secret");
    for name in ["kept", "removed", "renamed"] {
        test.put(&format!("outside/{name}"), "x");
    }
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let _socket = UnixListener::bind(test.path("outside/socket")).expect("a socket");
    let _datagrams = UnixDatagram::bind(test.path("outside/datagrams")).expect("a socket");
    let victim = Victim(Command::new("sleep").arg("600").spawn().expect("sleep"));
    let input = json!({
        "secret": test.path("home/.ssh/id"), "outside": test.path("outside"),
        "victim": victim.0.id(), "tcp": tcp.local_addr().expect("an address").port(),
    });
    let secret = test.path("home/.ssh/id").display().to_string();
    let caller = ["bash", "-c", "exec 17<\"$0\" 18>>\"$0\"; exec \"$@\"", &secret];
    let args = ["run", "--pipeline", "p", "--format", "json", "--input", &input.to_string()];
    let ran = test.start_through(&caller, &args).finish().exit(0);
    let sandboxed = !fields.is_empty();
    assert_eq!(test.read("outside/kept").is_empty(), !sandboxed, "{}", ran.err());
    ran.doc()["output"].clone()
}

fn names<'a>(attempts: &'a Value, result: &str) -> Vec<&'a str> {
    let attempts = attempts.as_object().expect("an object");
    attempts.iter().filter(|(_, found)| *found == result).map(|(name, _)| name.as_str()).collect()
}

/// without a sandbox the attempts succeed; otherwise they would show nothing.
#[test]
fn every_way_out_is_one_without_a_sandbox() {
    let kept = attempts("");
    let kept: Vec<_> = names(&kept, "kept").into_iter().filter(|name| !MAY_FAIL.contains(name)).collect();
    let by_rights = ["gain rights by a program with the set-user-id bit", "become another user"];
    let kept: Vec<_> = kept.into_iter().filter(|name| !by_rights.contains(name)).collect();
    assert_eq!(kept, Vec::<&str>::new());
}

/// a sandbox keeps a step from files, secrets, other processes, the network, and further rights.
#[test]
fn every_way_out_is_closed_in_a_sandbox() {
    if !is_supported() {
        return;
    }
    for fields in ["sandbox: {network: false}", "sandbox: {}\nworker: python"] {
        let done = attempts(fields);
        let signals = sandbox::support().is_ok_and(|support| support.keeps_signals());
        let done: Vec<_> =
            names(&done, "done").into_iter().filter(|name| signals || !NEED_SIGNALS.contains(name)).collect();
        assert_eq!(done, Vec::<&str>::new(), "{fields}");
    }
}

/// `network: true` opens the network and nothing else.
#[test]
fn a_declared_network_is_the_only_way_out() {
    if !is_supported() {
        return;
    }
    let (without, found) = (attempts(""), attempts("sandbox: {network: true}"));
    let possible = names(&without, "done");
    let keeps_signals = sandbox::support().is_ok_and(|support| support.keeps_signals());
    let others = NEED_SIGNALS.into_iter().filter(|_| !keeps_signals);
    // An attempt that is impossible here shows nothing; all others must match the declaration.
    let open: BTreeSet<_> = NETWORK.into_iter().chain(others).filter(|name| possible.contains(name)).collect();
    assert_eq!(names(&found, "done").into_iter().collect::<BTreeSet<_>>(), open);
}

/// a sandboxed step reads the app and what is declared, writes what is declared and its scratch directory, and runs
/// programs; the record says what was enforced.
#[test]
fn a_sandboxed_step_can_do_its_work() {
    if !is_supported() {
        return;
    }
    let code = "import json, os, subprocess, sys, tempfile\n\
        import multiprocessing.connection, threading\n\
        given = json.load(sys.stdin)['input']\n\
        open('out/result', 'w').write('done')\n\
        open(os.path.join(given['more'], 'written'), 'w').write('x')\n\
        with tempfile.NamedTemporaryFile('w', suffix='.sh') as script:\n    \
            script.write('echo from a script'); script.flush()\n    \
            said = subprocess.run(['sh', script.name], capture_output=True, text=True, check=True).stdout\n\
        thread = threading.Thread(target=lambda: None); thread.start(); thread.join()\n\
        here, there = multiprocessing.Pipe(); here.send('x'); there.recv()\n\
        open('/dev/null', 'w').write('x')\n\
        print(json.dumps({'output': [open(given['data']).read(), open('../../shared').read(), said.strip(), \
            os.environ['HOME'] == os.environ['TMPDIR'], os.path.exists('/dev/urandom')]}))";
    for worker in ["", "\nworker: python"] {
        let fields = "sandbox: {read: [\"{{input.data}}\"], write: [out, \"{{input.more}}\"]}";
        let test = Test::new().file("shared", "of the app").file("pipelines/p/a.py", code).pipeline("p", |p| {
            p.with("input: {data: string, more: string}")
                .step(&format!("name: a\ntype: code\ncommand: python3 a.py\n{fields}{worker}"))
        });
        test.put("data/file", "of the user");
        test.put("more/there", "");
        let input = json!({"data": test.path("data/file"), "more": test.path("more")}).to_string();
        let ran = test.run(&["run", "--pipeline", "p", "--format", "json", "--input", &input]).exit(0);
        let ran = ran.output(json!(["of the user", "of the app", "from a script", true, true]));
        assert_eq!(test.read("app/pipelines/p/out/result"), "done");
        let shown = test.run(&["runs", "show", &ran.id(), "--format", "json"]).exit(0).doc();
        let enforced = shown["effects"][0]["sandbox"].as_str().expect("a sandbox");
        assert!(enforced.starts_with("no network, no other processes"), "{enforced}");
        assert!(enforced.contains("; may write out, ") && enforced.contains("Landlock ABI"), "{enforced}");
        assert_eq!(shown["effects"][0]["worker"], json!(if worker.is_empty() { None } else { Some("warm") }));
        let left = std::fs::read_dir(test.path("tmp")).expect("a directory").flatten();
        let left: Vec<_> =
            left.map(|entry| entry.file_name()).filter(|name| name.to_string_lossy().starts_with("etude-")).collect();
        assert!(left.is_empty(), "the scratch directory is still there: {left:?}");
    }
}

/// a warm step in a sandbox finds no variable that another step has requested, not even in the memory of its interpreter.
#[test]
fn a_warm_step_has_no_key_of_another() {
    if !is_supported() {
        return;
    }
    let code = "import json, os\n\
        has = 'c4nary' in open('/proc/self/environ').read() or 'c4nary' in str(os.environ)\n\
        print(json.dumps({'output': has}))";
    let step = |name: &str, more: &str| {
        format!("name: {name}\ntype: code\ncommand: python3 a.py\nsandbox: {{}}\nworker: python{more}")
    };
    let key = "\nenv: {OPENAI_API_KEY: {from_env: OPENAI_API_KEY}}";
    for (output, has) in [("one", true), ("two", false)] {
        let test = Test::new()
            .env("OPENAI_API_KEY", "c4nary-c4nary")
            .file("pipelines/p/a.py", code)
            .pipeline("p", |p| p.step(&step("one", key)).step(&step("two", "")).with(&format!("output: {output}")));
        let ran = test.run_json("p").exit(0).output(json!(has));
        let shown = test.run(&["runs", "show", &ran.id(), "--format", "json"]).exit(0).doc();
        assert_eq!([0, 1].map(|at| shown["effects"][at]["worker"].clone()), [json!("warm"), json!("warm")]);
    }
}

/// a declared home is `HOME`, also behind a link; an undeclared one is not.
#[test]
fn a_declared_home_behind_a_link_is_home() {
    if !is_supported() {
        return;
    }
    for (fields, is_home) in [("sandbox: {read: [\"~\"]}", true), ("sandbox: {}", false)] {
        let (yes, no) = (printing("true"), printing("false"));
        let line = format!("case \"$HOME\" in */link) {yes} ;; *) {no} ;; esac");
        let test = Test::new().pipeline("p", |p| p.sh_with("a", &line, fields));
        test.put("home/there", "");
        std::os::unix::fs::symlink(test.path("home"), test.path("link")).expect("a link");
        let link = test.path("link").display().to_string();
        test.env("HOME", &link).run_json("p").output(json!(is_home));
    }
}

/// a path of the app that leads elsewhere is refused, because an earlier step may have put a link there.
#[test]
fn links_in_the_app_do_not_widen_a_sandbox() {
    if !is_supported() {
        return;
    }
    let test = Test::new().pipeline("p", |p| {
        p.sh("a", &format!("mkdir -p out && ln -s \"$ROOT/home\" out/data && {}", printing("1"))).sh_with(
            "b",
            &format!("cat out/data/secret; {}", printing("1")),
            "sandbox: {read: [out/data]}",
        )
    });
    test.put("home/secret", "x");
    let ran = test.run_json("p").exit(1).failed_with(&["business b: step_failed"]);
    let message = ran.at("/errors/0/message").to_string();
    assert!(message.contains("`out/data` is a link that leads out of the app"), "{message}");
}

/// a path that first goes up within the app is refused as well, and nothing is created at the target of a link.
#[test]
fn links_beside_the_pipeline_do_not_widen_a_sandbox_either() {
    if !is_supported() {
        return;
    }
    let test = Test::new().pipeline("p", |p| {
        p.sh("a", &format!("ln -s \"$ROOT/home\" ../../shared && {}", printing("1"))).sh_with(
            "b",
            &printing("2"),
            "sandbox: {write: [../../shared/new]}",
        )
    });
    test.put("home/secret", "x");
    let ran = test.run_json("p").exit(1).failed_with(&["business b: step_failed"]);
    let message = ran.at("/errors/0/message").to_string();
    assert!(message.contains("`../../shared/new` is a link that leads out of the app"), "{message}");
    assert!(!test.path("home/new").exists());
}

/// a missing program is reported as it is without a sandbox, not as a failure of the sandbox.
#[test]
fn a_missing_program_is_reported_in_a_sandbox_too() {
    if !is_supported() {
        return;
    }
    let test = Test::new().file("pipelines/p/odd", "#!/no/such/interpreter\n").executable("pipelines/p/odd");
    let test = test.pipeline("p", |p| p.step("name: a\ntype: code\ncommand: ./odd\nsandbox: {}"));
    let ran = test.run_json("p").exit(1);
    let message = ran.at("/errors/0/message").to_string();
    assert!(message.contains("could not be started: `./odd` could not be started"), "{message}");
}

/// a text without an interpreter is not passed to a shell: a sandboxed step fails like any other.
#[test]
fn a_text_without_an_interpreter_is_no_program_in_a_sandbox_either() {
    if !is_supported() {
        return;
    }
    for fields in ["", "sandbox: {}"] {
        let test = Test::new().file("pipelines/p/a.py", "echo '{\"output\": \"by a shell\"}'\n");
        let step = format!("name: a\ntype: code\ncommand: ./a.py x\n{fields}");
        let test = test.executable("pipelines/p/a.py").pipeline("p", |p| p.step(&step));
        let ran = test.run_json("p").exit(1).failed_with(&["business a: step_failed"]);
        let message = ran.at("/errors/0/message").to_string();
        assert!(message.contains("`./a.py` is neither a program of this machine nor a script"), "{fields}: {message}");
        assert!(message.contains("name an interpreter: `python3 ./a.py`"), "{fields}: {message}");
    }
}

/// variables of the loader have no effect before the rules hold.
#[test]
fn loader_variables_reach_the_program_and_not_the_sandbox() {
    if !is_supported() {
        return;
    }
    let test = Test::new().pipeline("p", |p| {
        let line = "printf '{\"output\":\"%s\"}' \"$LD_PRELOAD$ETUDE_HIDDEN_LD_PRELOAD\"";
        p.sh_with("a", line, "env: {LD_PRELOAD: /no/such/library.so}\nsandbox: {}")
    });
    let ran = test.run_json("p").output(json!("/no/such/library.so"));
    // The loader of `sh` complains; the loader of the sandbox did not receive the variable.
    assert_eq!(ran.err().matches("/no/such/library.so").count(), 1, "{}", ran.err());
}

/// programs of an agent run in a sandbox with the folders of the agent's tools.
#[test]
fn programs_of_agents_are_in_a_sandbox() {
    if !is_supported() {
        return;
    }
    let line = "cat \"$ROOT/home/secret\" || echo kept; echo x > made && cat made; echo y > \"$ROOT/outside/new\" || echo kept";
    let server = Server::new([Reply::bash(line), Reply::says("done")]);
    let test =
        Test::new().model(&server).skill("", "Do it.").file("etude.yaml", "agent: {sandbox: {network: false}}\n");
    test.put("home/secret", "a secret");
    test.put("outside/there", "");
    test.follow("go", &["--yolo"]).exit(0);
    let said = server.seen()[1].results().concat();
    assert!(!said.contains("a secret") && said.matches("kept").count() >= 2, "{said}");
    assert_eq!((test.read("app/made").as_str(), test.read("outside/new").as_str()), ("x\n", ""));
}

/// The enforcement that the record of a run states for its tools, by the path of each call.
fn enforced(test: &Test, id: &str) -> Vec<String> {
    let shown = test.run(&["runs", "show", id, "--format", "json"]).exit(0).doc();
    let of_tools = shown["effects"].as_array().into_iter().flatten().filter(|e| e["streams"]["result"].is_string());
    of_tools.map(|effect| effect["sandbox"].as_str().unwrap_or("-").to_owned()).collect()
}

/// the tools of an app are in the sandbox of its agents, and the record says for each call what was enforced. It does so
/// for programs that failed or timed out, and for no call without a program.
#[test]
fn tools_of_an_app_are_in_the_sandbox_of_its_agents() {
    if !is_supported() {
        return;
    }
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = tcp.local_addr().expect("an address").port();
    let peek = format!(
        "import json, os, socket\n\
         def tried(work):\n    try:\n        work()\n        return 'done'\n    except OSError:\n        return 'kept'\n\
         root = os.environ['ROOT']\n\
         print(json.dumps({{'ok': True, 'value': [\n    \
             tried(lambda: open('made', 'w')),\n    \
             tried(lambda: open(os.path.join(root, 'home', 'secret')).read()),\n    \
             tried(lambda: open(root + '/outside/new', 'w')),\n    \
             tried(lambda: os.kill(os.getppid(), 0)),\n    \
             tried(lambda: socket.create_connection(('127.0.0.1', {port})))]}}))\n"
    );
    let run = |settings: &str| {
        let server = Server::agent([
            Reply::call("peek", json!({})),
            Reply::bash("exit 3"),
            Reply::call("Bash", json!({"command": "sleep 600", "timeout": 1})),
            Reply::call("Read", json!({"path": "SKILL.md"})),
        ]);
        let test = Test::new()
            .model(&server)
            .skill("", "Do it.")
            .file("etude.yaml", settings)
            .file("tools/peek.yaml", "name: peek\ndescription: Peeks.\ncommand: python3 tools/peek.py\n")
            .file("tools/peek.py", &peek);
        test.put("home/secret", "a secret");
        test.put("outside/there", "");
        let ran = test.follow("go", &["--yolo"]).exit(0);
        let reported: Value = serde_json::from_str(&server.seen()[4].results()[0]).expect("a list");
        (reported, enforced(&test, &ran.id()), test, ran)
    };
    let (reported, enforced, ..) = run("");
    assert_eq!((reported, enforced), (json!(["done", "done", "done", "done", "done"]), vec!["-".to_owned(); 4]));

    let (mut reported, enforced, test, ran) = run("agent: {sandbox: {network: false}}\n");
    if !sandbox::support().is_ok_and(|support| support.keeps_signals()) {
        reported[3] = json!("kept");
    }
    assert_eq!(reported, json!(["done", "kept", "kept", "kept", "kept"]));
    assert_eq!((test.read("outside/there").as_str(), test.path("outside/new").exists()), ("", false));
    for of_program in &enforced[..3] {
        assert!(of_program.starts_with("no network, no other processes"), "{enforced:?}");
        assert!(of_program.contains("; may write [APP] (Landlock ABI "), "{enforced:?}");
    }
    assert_eq!(enforced[3..], ["-"]);
    let shown = test.run(&["runs", "show", &ran.id(), "--format", "json"]).exit(0);
    assert_eq!(shown.out().matches(", sandboxed: no network").count(), 3, "{}", shown.out());
    assert!(test.run(&["runs", "export", &ran.id()]).exit(0).out().contains("Landlock ABI"));
}

/// Runs `etude` on a kernel that appears to have no Landlock.
fn without_landlock(test: &Test, args: &[&str]) -> Ran {
    let mut filter = std::collections::BTreeMap::new();
    filter.insert(libc::SYS_landlock_create_ruleset, Vec::new());
    let arch = std::env::consts::ARCH.try_into().expect("a known processor");
    let missing = seccompiler::SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let filter =
        seccompiler::SeccompFilter::new(filter, seccompiler::SeccompAction::Allow, missing, arch).expect("a filter");
    let program: seccompiler::BpfProgram = filter.try_into().expect("a program");
    // The filter applies to this thread and the processes that it starts.
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            seccompiler::apply_filter(&program).expect("applied");
            test.run(args)
        });
        run.join().expect("no panic")
    })
}

/// a required sandbox that is not available is refused before anything runs, and `etude check` warns.
#[test]
fn a_sandbox_that_cannot_be_had_is_refused_before_anything_runs() {
    let test = Test::new().pipeline("p", |p| {
        p.note("before", "1").sh_with("a", &printing("1"), "sandbox: {network: false}").sh_with(
            "b",
            &printing("1"),
            "sandbox: {}",
        )
    });
    let ran = without_landlock(&test, &["run", "--pipeline", "p", "--format", "json"]).exit(4);
    let ran = ran.failed_with(&["- -: environment"]);
    let message = ran.at("/errors/0/message").to_string();
    assert!(message.contains("step `a` and one more must run in a sandbox"), "{message}");
    assert!(message.contains("this kernel has no Landlock"), "{message}");
    assert_eq!(test.ledger(), Vec::<String>::new());
    let found = without_landlock(&test, &["check", "--format", "json"]).exit(0).doc();
    let found = found["diagnostics"].as_array().expect("a list").clone();
    let codes: Vec<_> = found.iter().map(|d| (d["code"].clone(), d["severity"].clone(), d["line"].clone())).collect();
    assert_eq!(codes.len(), 2);
    assert!(codes.iter().all(|(code, severity, _)| code == "P0241" && severity == "warning"), "{codes:?}");
    // Agents whose programs must be in a sandbox are refused as well; those without a program are not affected.
    let server = Server::new([Reply::says("done")]);
    let test = Test::new().model(&server).skill("", "Do it.").file("etude.yaml", "agent: {sandbox: {}}\n");
    without_landlock(&test, &["run", "--skill", "go", "--format", "json"]).exit(4);
    assert_eq!(server.calls(), 0);
}
