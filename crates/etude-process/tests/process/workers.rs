//! a step in a warm interpreter behaves and ends like one in a new interpreter.

use std::time::Duration;

use etude_core::effect::{ProcessCall, Worker};
use etude_core::outcome::{Exit, ProcessEnd, Warmth};
#[cfg(target_os = "linux")]
use rustix::process::Pid;

use crate::fixture::{Fixture, direct, eventually, is_alive, script, shell, value, with_stdin};

const IMPATIENT: Duration = Duration::from_millis(50);

/// Prints all that a script can see of itself.
const MIRROR: &str = "\
import json, os, signal, sys
main = sys.modules['__main__']
fds = sorted(int(fd) for fd in os.listdir('/proc/self/fd'))
facts = {
    'argv': sys.argv, 'path': sys.path, 'orig_argv': getattr(sys, 'orig_argv', None), 'name': __name__,
    'file': globals().get('__file__'), 'cached': globals().get('__cached__', 0), 'spec': str(__spec__).split(' at 0x')[0], 'package': __package__,
    'doc': __doc__, 'loader': getattr(__loader__, '__name__', type(__loader__).__name__), 'names': sorted(vars(main)),
    'main': main.__dict__ is globals(), 'flags': list(sys.flags), 'executable': sys.executable, 'prefix': sys.prefix,
    'cwd': os.getcwd(), 'environ': dict(os.environ), 'fds': len(fds), 'stdin': sys.stdin.read(),
    'leads': [os.getpid() == os.getpgrp(), os.getsid(0)], 'parent': os.getppid(), 'umask': os.umask(0),
    'streams': [[s.encoding, s.errors, s.line_buffering, s.isatty(), s.seekable(), s.fileno(), s.name, s.mode]
                for s in (sys.stdin, sys.stdout, sys.stderr)],
    'signals': [str(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD)],
    'cmdline': open('/proc/self/cmdline').read().split(chr(0))[:3][:2 + ('-c' not in sys.argv[:1])],
    'comm': open('/proc/self/comm').read(), 'threads': len(os.listdir('/proc/self/task')), 'builtins': str(__builtins__),
}
facts['environ'].pop('ETUDE_RUN_ID'); facts['environ'].pop('ETUDE_EFFECT_ID')
print(json.dumps({'output': json.dumps(facts, sort_keys=True, indent=1)}))
";

fn marked(mut call: ProcessCall) -> ProcessCall {
    call.setting.worker = Some(Worker::Python);
    call
}

fn warmth(end: &ProcessEnd) -> &Warmth {
    end.conditions.worker.as_ref().expect("a worker was asked for")
}

/// Results of the call from a new interpreter and from a warm one in the same directory.
fn both(fixture: &Fixture, call: &ProcessCall) -> [ProcessEnd; 2] {
    let cold = fixture.run(call);
    assert_eq!(cold.conditions.worker, None);
    let warm = fixture.run(&marked(call.clone()));
    assert_eq!(warmth(&warm), &Warmth::Warm);
    [cold, warm]
}

/// nothing that a script can easily see distinguishes a warm interpreter from a new one.
#[cfg(target_os = "linux")]
#[test]
fn script_sees_what_it_sees_in_a_new_interpreter() {
    let fixture = Fixture::new();
    fixture.write("steps/mirror.py", MIRROR, 0o644);
    fixture.write("mirror.py", MIRROR, 0o644);
    fixture.write("run.py", &format!("#!/usr/bin/env python3\n{MIRROR}"), 0o755);
    std::os::unix::fs::symlink("steps/mirror.py", fixture.path("link.py")).expect("linked");
    let absolute = fixture.path("mirror.py").display().to_string();
    let calls = [
        direct(&["python3", "mirror.py"]),
        direct(&["python3", "./mirror.py", "a", "", "é b", "-c"]),
        direct(&["python3", "steps/mirror.py"]),
        direct(&["python3", "-B", "-Wignore", "steps/../link.py"]),
        direct(&["python3", "-I", &absolute]),
        direct(&["python3", "-m", "mirror", "x"]),
        direct(&["python3", "-u", "-c", MIRROR, "y"]),
        direct(&["./run.py", "z"]),
        script("mirror.py"),
    ];
    for mut call in calls {
        call.env = vec![("LATE".into(), "é".into()), ("HOME".into(), "/nowhere".into())];
        let call = with_stdin(call, "some\ninput");
        let [cold, warm] = both(&fixture, &call);
        let [cold, warm] = [&cold, &warm].map(|end| value(end).replace("\\n", "\n"));
        let differ = cold.lines().zip(warm.lines()).find(|(cold, warm)| cold != warm);
        assert_eq!((differ, cold.len()), (None, warm.len()), "{:?}", call.command);
    }
}

/// exit statuses, signals, output at the end and tracebacks are those of a new interpreter.
#[test]
fn ends_are_those_of_a_new_interpreter() {
    let fixture = Fixture::new();
    fixture.write("raises.py", "def deep():\n    return 1 / 0\n\ntry:\n    deep()\nfinally:\n    deep()\n", 0o644);
    fixture.write("syntax.py", "x = (\n", 0o644);
    fixture.write(
        "hook.py",
        "import sys\nsys.excepthook = lambda *a: print('hooked', a[0].__name__, a[2].tb_lineno)\n1/0\n",
        0o644,
    );
    fixture.write("dir/__main__.py", "import sys\nsys.exit(6)\n", 0o644);
    let codes = [
        "import sys; sys.exit(7)",
        "import sys; sys.exit('a reason')",
        "raise SystemExit",
        "import os; os._exit(3)",
        "import os; os.kill(os.getpid(), 9)",
        "raise KeyboardInterrupt",
        "import atexit; atexit.register(print, 'at the end'); print('{', end='')",
        "import threading, time; threading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start()",
        "import sys; sys.stdout.close(); import os; os.close(1)",
        "def f(: pass",
        "import nothing_of_this_name",
        "import sys; sys.exit(True)",
        "import sys; sys.exit(-3)",
        "import sys; sys.exit(1 << 40)",
        "import atexit\nclass C:\n  __call__ = lambda c: 1 / 0\n  __repr__ = lambda c: 'c'\natexit.register(C()); print(1)",
        "import os, sys; os.close(1); sys.stdout.write('lost')",
        "import concurrent.futures as f, time; p = f.ThreadPoolExecutor(2); p.submit(lambda: (time.sleep(0.05), print('late')))",
        "import threading, time; threading.Thread(target=time.sleep, args=[60], daemon=True).start(); print('gone')",
        "class C:\n  def __del__(self): print('freed', self.name)\nfor n in ('a', '_b'):\n  globals()[n] = C(); globals()[n].name = n",
        "class C:\n  def __del__(self): print('freed')\na = C(); a.a = a; del a",
        "def g():\n  try: yield\n  finally: print('closed')\na = g(); next(a)",
        // Output that no interpreter knows of, and that only the end of the process writes.
        "import ctypes; c = ctypes.CDLL(None); c.printf(b'from C'); print('{', end='')",
        "import curses; curses.setupterm('xterm', 1); curses.putp(b'from curses')",
        "import tempfile, atexit, os; d = tempfile.TemporaryDirectory(); atexit.register(lambda: print(os.path.exists(d.name)))",
        // Streams that are replaced, wrapped or removed.
        "import sys; out = sys.stdout; sys.stdout = sys.stderr; out.write('kept'); print('aside')",
        "import sys, os; print('kept'); sys.stdout = open(os.devnull, 'w'); print('gone')",
        "import sys, io; sys.stdout = io.StringIO(); print('kept', file=sys.__stdout__)",
        "import sys, codecs; print('kept'); sys.stdout = codecs.getwriter('utf-8')(sys.stdout.buffer); print('é')",
        "import sys\nclass Tee:\n  held = ''\n  def write(self, text): self.held += text\n  \
         def flush(self): sys.__stdout__.write(self.held); self.held = ''\nsys.stdout = Tee(); print('held')",
        "import sys; print('kept'); sys.stdout.detach()",
        "import sys; print('kept'); del sys.stdout",
        "import sys; print('kept'); sys.modules.clear()",
        "import sys; print('kept'); del sys.modules['__main__']",
        // Code that is called at the end finds the objects that it needs.
        "import json\nclass C:\n  __del__ = lambda c: print(json.dumps(1))\nc = C()",
        "import json\nclass C:\n  __del__ = lambda c: print('freed')\njson.kept = C()",
        "import os\nP = 'P'\ndef g():\n  try: yield\n  finally: print(P, os.sep)\na = g(); next(a)",
        "class C:\n  def __del__(self):\n    import json, os\n    print(json.dumps(os.sep))\nc = C(); c.c = c; del c",
        "import threading, time\ndef step(): time.sleep(0.001)\ndef turn():\n  while True: step()\n\
         threading.Thread(target=turn, daemon=True).start(); time.sleep(0.02); print('left')",
        "import signal, threading, time, os\nsignal.signal(signal.SIGUSR1, lambda *a: print('told'))\n\
         threading.Thread(target=time.sleep, args=[0.1]).start()\n\
         threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGUSR1]).start()",
        "class A:\n  def __del__(self): print('freed')\na = A(); 1 / 0",
        "import signal\nclass A:\n  def __del__(self): print('freed')\na = A()\ndef f(*a): pass\nsignal.signal(signal.SIGTERM, f)",
        "import json\nclass A:\n  def __del__(self): print('freed')\na = A()\nold = json.dumps\ndef f(*a): return old(*a)\njson.dumps = f",
        "import builtins\ndef f(*a): raise ImportError('no')\nbuiltins.__import__ = f; print('kept')",
        "async def m(): pass\nx = m()",
        "import logging\nh = logging.FileHandler('log', delay=True); logging.root.addHandler(h); logging.error('it')",
        "import asyncio\nasync def f(): await asyncio.sleep(0); print('ran')\nasyncio.run(f())",
        // Code that would hide remaining objects.
        "import gc\nclass C:\n  def __del__(self): print('freed')\nc = C(); gc.freeze()",
        "import gc\nclass C:\n  def __del__(self): print('freed')\nc = C(); gc.freeze(); gc.unfreeze()",
        "import sys; del sys.modules[list(sys.modules)[-1]]; import ctypes; ctypes.CDLL(None).printf(b'from C'); print('{', end='')",
        "import sys, json; sys.modules['ctypes'] = json; del sys.modules['ctypes']; import ctypes; ctypes.CDLL(None).printf(b'from C')",
        "import sqlite3; c = sqlite3.connect(':memory:'); print(c.execute('select 1').fetchone())",
    ];
    // A step that writes unbuffered would hide missing output at the end.
    let buffered = |mut call: ProcessCall| {
        call.env = vec![("PYTHONUNBUFFERED".into(), String::new())];
        call
    };
    let mut calls: Vec<ProcessCall> = codes.iter().map(|code| buffered(direct(&["python3", "-c", code]))).collect();
    for words in [
        &["raises.py"][..],
        &["syntax.py"],
        &["hook.py"],
        &["dir"],
        &["missing.py"],
        &["-m", "missing"],
        &["-m", "dir"],
    ] {
        calls.push(direct(&[&["python3"], words].concat()));
    }
    for call in calls {
        let [cold, mut warm] = both(&fixture, &call);
        warm.conditions = cold.conditions.clone();
        assert_eq!(warm, cold, "{:?}", call.command);
    }
}

/// files that a step leaves open are written when it ends, also if a preloaded module holds them.
#[test]
fn files_that_are_left_open_are_written() {
    let fixture = Fixture::new();
    let code = "import json, csv, zipfile\n\
        a = open('a', 'w'); a.write('plain')\n\
        json.kept = open('b', 'wb'); json.kept.write(b'held by a module')\n\
        json.handlers = [csv.writer(open('c', 'w'))]; json.handlers[0].writerow(['by', 'something'])\n\
        z = zipfile.ZipFile('d', 'w'); z.writestr('in', 'it')\n\
        json.JSONEncoder.log = open('e', 'w'); json.JSONEncoder.log.write('held by a class')\n\
        print(json.dumps({'output': 1}))";
    let files = ["a", "b", "c", "d", "e"];
    // All but the date in the archive.
    let begins = |name| std::fs::read(fixture.path(name)).map(|bytes| bytes[..bytes.len().min(4)].to_vec());
    let expected = ["plai", "held", "by,s", "PK\u{3}\u{4}", "held"].map(|text| Some(text.as_bytes().to_vec()));
    // If a file is in a reference cycle with its user, it may be closed too early: by a new interpreter, and so by a warm one.
    let ring = "\ndef note(): a.write('er')\nnote()";
    let codes = [("", ""), ("import ctypes\n", ""), ("import atexit\natexit.register(lambda: None)\n", ""), ("", ring)];
    for (before, after) in codes {
        let call = direct(&["python3", "-c", &format!("{before}{code}{after}")]);
        let left = [call.clone(), marked(call)].map(|call| {
            let end = fixture.run(&call);
            assert_eq!(value(&end), "1");
            files.map(|name| {
                let begins = begins(name).ok();
                std::fs::remove_file(fixture.path(name)).expect("it was there");
                begins
            })
        });
        assert_eq!(left[1], left[0], "{before}{after}");
        assert!(!before.is_empty() || !after.is_empty() || left[0] == expected, "{left:?}");
    }
}

/// data that a step writes to a file of a preloaded module is written, though the module is not taken apart.
#[test]
fn files_of_preloaded_modules_are_written() {
    let fixture = Fixture::preloading("noted");
    fixture.write(
        "lib/noted.py",
        "import os\nFILE = open(os.path.join(os.path.dirname(__file__), 'notes'), 'a')\n",
        0o644,
    );
    let mut call = direct(&["python3", "-c", "import noted; noted.FILE.write('it'); print('{\"output\":1}')"]);
    call.env = vec![("PYTHONPATH".into(), fixture.path("lib").display().to_string())];
    for runs in 1..3 {
        let end = fixture.run(&call);
        assert_eq!((value(&end).as_str(), warmth(&end)), ("1", &Warmth::Warm));
        assert_eq!(std::fs::read_to_string(fixture.path("lib/notes")).expect("written"), "it".repeat(runs));
    }
}

/// functions that a preloaded module has registered with `atexit` are called at the end of each step.
#[test]
fn what_preloaded_modules_register_is_called_at_the_end() {
    let fixture = Fixture::preloading("noted");
    fixture.write("lib/noted.py", "import atexit, os\natexit.register(os.write, 2, b'the end')\n", 0o644);
    let mut call = direct(&["python3", "-c", "import noted; print('{\"output\":1}')"]);
    call.env = vec![("PYTHONPATH".into(), fixture.path("lib").display().to_string())];
    for _ in 0..2 {
        let end = fixture.run(&call);
        assert_eq!((value(&end).as_str(), warmth(&end), end.stderr.tail.as_str()), ("1", &Warmth::Warm, "the end"));
    }
}

/// `json` is imported before the step, unless a file of the step replaces it. Data and directories with that name hide
/// nothing.
#[test]
fn json_is_loaded_ahead_if_it_is_the_interpreter_s_own() {
    let fixture = Fixture::new();
    let code = "import json, os; print(json.dumps({'output': [len(json.__dict__) > 5, os.getppid()]}))";
    fixture.write("json/data.txt", "", 0o644);
    fixture.write("types.yaml", "", 0o644);
    fixture.write("lib/json.py", "def dumps(value): return '{\"output\": \"mine\"}'\n", 0o644);
    let call = marked(direct(&["python3", "-c", code]));
    let end = fixture.run(&call);
    assert!(value(&end).starts_with("[true"), "{end:?}");
    let mut theirs = call;
    theirs.env = vec![("PYTHONPATH".into(), fixture.path("lib").display().to_string())];
    let end = fixture.run(&theirs);
    assert_eq!((value(&end).as_str(), warmth(&end)), ("\"mine\"", &Warmth::Warm));
}

/// no step sees anything of the step before.
#[test]
fn every_step_has_a_fresh_state() {
    let fixture = Fixture::new();
    let code = "import json, sys, os, builtins\n\
        seen = [hasattr(builtins, 'left'), 'LEFT' in os.environ, 'left' in json.__dict__, '/left' in sys.path, os.getcwd()]\n\
        builtins.left = json.left = 1; os.environ['LEFT'] = '1'; sys.path.append('/left'); os.chdir('/')\n\
        print(json.dumps({'output': seen[:4] + [seen[4] != '/']}))";
    let call = marked(direct(&["python3", "-c", code]));
    for _ in 0..3 {
        assert_eq!(value(&fixture.run(&call)), "[false, false, false, false, true]");
    }
}

/// a step may have a module with the name of a preloaded one.
#[test]
fn modules_of_a_step_come_before_preloaded_ones() {
    let fixture = Fixture::warm(IMPATIENT, &[]);
    fixture.write("own/json.py", "def dumps(value): return '{\"output\": \"mine\"}'\n", 0o644);
    fixture.write("own/step.py", "import json\nprint(json.dumps({'output': 'theirs'}))\n", 0o644);
    fixture.write("step.py", "import json\nprint(json.dumps({'output': 'theirs'}))\n", 0o644);
    assert_eq!(value(&fixture.run(&direct(&["python3", "own/step.py"]))), "\"mine\"");
    assert_eq!(value(&fixture.run(&direct(&["python3", "step.py"]))), "\"theirs\"");
}

/// random numbers differ from step to step.
#[test]
fn random_numbers_are_not_those_of_the_step_before() {
    let fixture = Fixture::new();
    let code = "import random, uuid; print('{\"output\": \"%s %s\"}' % (random.random(), uuid.uuid4()))";
    let call = marked(direct(&["python3", "-c", code]));
    assert_ne!(value(&fixture.run(&call)), value(&fixture.run(&call)));
}

/// a cancelled step is gone with everything that left its group, with and without an `exec` of its own.
#[cfg(target_os = "linux")]
#[test]
fn cancelled_step_is_gone_with_everything_it_started() {
    let fixture = Fixture::with(IMPATIENT, &[]);
    let code = "import os, signal, subprocess, time\n\
        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
        def told(name): open(name, 'w').write(f'{os.getpid()}\\n')\n\
        told('leader')\n\
        subprocess.Popen(['sh', '-c', 'echo $$ >plain; exec sleep 600'])\n\
        subprocess.Popen(['setsid', 'sh', '-c', 'trap \"\" TERM; echo $$ >escaped; sleep 600'])\n\
        if os.fork() == 0:\n    \
            os.setsid()\n    \
            if os.fork(): os._exit(0)\n    \
            told('daemon'); time.sleep(600)\n\
        while not all(os.path.exists(n) and os.path.getsize(n) for n in ('plain', 'escaped', 'daemon')): time.sleep(0.01)\n\
        open('ready', 'w'); time.sleep(600)";
    fixture.cancel_when_ready(&marked(direct(&["python3", "-c", code])), "ready");
    for name in ["leader", "plain", "escaped", "daemon"] {
        assert!(!is_alive(fixture.pid(name)), "{name}");
    }
    assert_eq!(value(&fixture.run(&marked(direct(&["python3", "-c", "print('{\"output\":1}')"])))), "1");
}

/// background processes of a step serve later steps and end with the run, like the interpreter.
#[cfg(target_os = "linux")]
#[test]
fn background_process_and_interpreter_end_with_the_run() {
    let fixture = Fixture::with(IMPATIENT, &[]);
    let code = "import os, subprocess\n\
        subprocess.Popen(['sh', '-c', 'echo $$ >server; exec sleep 600'])\n\
        if os.fork() == 0:\n    \
            import time\n    \
            os.setsid(); open('daemon', 'w').write(f'{os.getpid()}\\n'); time.sleep(600)\n\
        while not (os.path.exists('daemon') and os.path.exists('server')): pass\n\
        print('{\"output\":1}')";
    assert_eq!(value(&fixture.run(&marked(direct(&["python3", "-c", code])))), "1");
    let (server, daemon) = (fixture.pid("server"), fixture.pid("daemon"));
    assert_eq!(fixture.output("kill -0 $(cat server) $(cat daemon) && echo '{\"output\":\"up\"}'"), "\"up\"");
    fixture.host.kill_leftovers();
    assert!(!is_alive(server) && !is_alive(daemon));
    assert_eq!(processes_of(&fixture), Vec::<Pid>::new());
}

/// the process of a step is forked while the run does something else, and ends with the run if no step needs it.
#[cfg(target_os = "linux")]
#[test]
fn process_of_the_next_step_waits_for_it() {
    let fixture = Fixture::new();
    let call = marked(direct(&["python3", "-c", "import os; print('{\"output\":%d}' % os.getpid())"]));
    value(&fixture.run(&call));
    for _ in 0..3 {
        let (next, _) = next_and_all(&fixture);
        assert_eq!(value(&fixture.run(&call)), next.as_raw_nonzero().to_string());
    }
    let (_, both) = next_and_all(&fixture);
    fixture.host.kill_leftovers();
    assert_eq!(both.into_iter().filter(|pid| is_there(*pid)).collect::<Vec<_>>(), Vec::<Pid>::new());
}

/// The process that waits for the next step, and all processes of its group, which its interpreter leads. The interpreter has
/// announced the process: before that, the runner does not know of it.
#[cfg(target_os = "linux")]
fn next_and_all(fixture: &Fixture) -> (Pid, Vec<Pid>) {
    let us = Some(rustix::process::getpid());
    let mut found = Vec::new();
    eventually("the interpreter and the next step are there", || {
        found = processes_of(fixture);
        matches!(found[..], [a, b] if group_of(a) == group_of(b))
            && found.iter().all(|pid| parent_of(*pid) == us)
            && found.iter().all(|pid| has_no_child(*pid) && is_asleep(*pid))
    });
    (*found.iter().find(|pid| group_of(**pid) != Some(**pid)).expect("one leads no group"), found)
}

#[cfg(target_os = "linux")]
fn group_of(pid: Pid) -> Option<Pid> {
    rustix::process::getpgid(Some(pid)).ok()
}

/// True for a process that has waited for each of its children.
#[cfg(target_os = "linux")]
fn has_no_child(pid: Pid) -> bool {
    let id = pid.as_raw_nonzero();
    std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default().is_empty()
}

/// True for a process that waits for something.
#[cfg(target_os = "linux")]
fn is_asleep(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')))
}

/// The processes of the fixture's run, by their environment.
#[cfg(target_os = "linux")]
fn processes_of(fixture: &Fixture) -> Vec<Pid> {
    let mark = format!("ETUDE_RUN_ID={}", fixture.run_id);
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    let environ = |pid: &Pid| std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    all.filter(|pid| environ(pid).split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())).collect()
}

/// True if the process is alive, or has ended and was not reaped.
#[cfg(target_os = "linux")]
fn is_there(pid: Pid) -> bool {
    std::fs::exists(format!("/proc/{}", pid.as_raw_nonzero())).expect("looked")
}

#[cfg(target_os = "linux")]
fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok().and_then(Pid::from_raw)
}

/// steps that run at the same time come from one interpreter and do not wait for each other.
#[test]
fn parallel_steps_come_from_one_interpreter() {
    let fixture = Fixture::new();
    let code = "import os, sys, time\n\
        open('here' + sys.argv[1], 'w')\n\
        while len([n for n in os.listdir() if n.startswith('here')]) < 4: time.sleep(0.01)\n\
        print('{\"output\":%s}' % sys.argv[1])";
    std::thread::scope(|scope| {
        let steps: Vec<_> = (0..4)
            .map(|n| {
                let call = marked(direct(&["python3", "-c", code, &n.to_string()]));
                let fixture = &fixture;
                scope.spawn(move || (n.to_string(), fixture.run(&call)))
            })
            .collect();
        for step in steps {
            let (expected, end) = step.join().expect("no panic");
            assert_eq!((value(&end), warmth(&end)), (expected, &Warmth::Warm));
        }
    });
}

/// without a worker the step runs cold, and the outcome gives the reason.
#[test]
fn what_cannot_be_warm_runs_cold_and_says_why() {
    let fixture = Fixture::new();
    let why = |call: ProcessCall| match fixture.run(&marked(call)).conditions.worker {
        Some(Warmth::Cold(why)) => why,
        other => panic!("{other:?}"),
    };
    let end = fixture.run(&marked(shell("echo '{\"output\":1}'")));
    assert_eq!((value(&end).as_str(), end.exit), ("1", Exit::Status(0)));
    assert_eq!(why(shell(":")), "the command is not a single Python process, or has unusual options");
    fixture.write(
        "broken/python3",
        "#!/bin/sh\ncase \"$*\" in *while*) echo oh no >&2; exit 3;; esac\necho '{\"output\":2}'\n",
        0o755,
    );
    assert_eq!(why(direct(&["broken/python3", "x.py"])), "it has ended: oh no");
    assert_eq!(value(&fixture.run(&marked(direct(&["broken/python3", "x.py"])))), "2");
}

/// preloaded modules that fail, or that start threads, keep the worker from being used, not the step from running.
#[cfg(target_os = "linux")]
#[test]
fn modules_that_cannot_be_forked_are_reported() {
    for (module, text, expected) in [
        (
            "late",
            "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n",
            "has started threads (1)",
        ),
        ("bad", "1 / 0\n", "`bad` cannot be preloaded: ZeroDivisionError"),
        ("chatty", "print('hello')\n", ""),
        ("loud", "import sys\nprint('x' * 300000)\nsys.stderr.write('y' * 300000)\n", ""),
    ] {
        let fixture = Fixture::preloading(module);
        fixture.write(&format!("lib/{module}.py"), text, 0o644);
        let mut call = direct(&["python3", "-c", "print('{\"output\":1}')"]);
        call.env = vec![("PYTHONPATH".into(), fixture.path("lib").display().to_string())];
        let end = fixture.run(&call);
        assert_eq!(value(&end), "1");
        match warmth(&end) {
            Warmth::Cold(why) => assert!(!expected.is_empty() && why.contains(expected), "{why}"),
            Warmth::Warm => assert_eq!(expected, "", "{module}"),
        }
    }
}

/// a step that is cancelled while its interpreter starts ends at once, and the next step starts it again.
#[test]
fn start_of_an_interpreter_can_be_cancelled() {
    let fixture = Fixture::preloading("slow");
    fixture.write(
        "lib/slow.py",
        "import os, time\nwhile not os.path.exists('go'):\n    open('ready', 'w'); time.sleep(0.01)\n",
        0o644,
    );
    let mut call = direct(&["python3", "-c", "print('{\"output\":1}')"]);
    call.env = vec![("PYTHONPATH".into(), fixture.path("lib").display().to_string())];
    fixture.cancel_when_ready(&call, "ready");
    std::fs::write(fixture.path("go"), "").expect("written");
    let end = fixture.run(&call);
    assert_eq!((value(&end).as_str(), warmth(&end)), ("1", &Warmth::Warm));
}

/// a killed interpreter is reported once, and the steps run cold.
#[cfg(target_os = "linux")]
#[test]
fn dead_interpreter_is_no_failure() {
    let fixture = Fixture::new();
    let call = marked(direct(&["python3", "-c", "print('{\"output\":1}')"]));
    assert_eq!(warmth(&fixture.run(&call)), &Warmth::Warm);
    let (_, both) = next_and_all(&fixture);
    kill(both);
    let end = fixture.run(&call);
    assert_eq!(value(&end), "1");
    assert!(matches!(warmth(&end), Warmth::Cold(_)), "{end:?}");
}

/// after the interpreter is gone, the process that already waits is the last warm step.
#[cfg(target_os = "linux")]
#[test]
fn next_step_survives_its_interpreter() {
    let fixture = Fixture::new();
    let call = marked(direct(&["python3", "-c", "print('{\"output\":1}')"]));
    assert_eq!(warmth(&fixture.run(&call)), &Warmth::Warm);
    let (_, both) = next_and_all(&fixture);
    kill(both.into_iter().filter(|pid| group_of(*pid) == Some(*pid)).collect());
    let [warm, cold] = [fixture.run(&call), fixture.run(&call)];
    assert_eq!([value(&warm), value(&cold)], ["1", "1"]);
    assert_eq!(warmth(&warm), &Warmth::Warm);
    assert!(matches!(warmth(&cold), Warmth::Cold(_)), "{cold:?}");
}

/// Kills processes that are children of this one.
#[cfg(target_os = "linux")]
fn kill(pids: Vec<Pid>) {
    for pid in pids {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
        let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
        eventually("it is dead", || std::fs::read_to_string(&stat).is_ok_and(|text| text.contains(") Z ")));
    }
}
