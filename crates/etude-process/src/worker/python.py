"""The fork server of warm Python steps. It runs nothing of a step itself, and ends with its socket, which is its stdin.

Messages are a length and that many bytes: fields, each ended by a NUL. The first has how many modules to import, the
modules, and the variables that the interpreter was started with, as NAME=VALUE. Answers are lines: the id of a process that
waits for a request, or "!" and a reason. Requests have how many words there are, how many flags follow the first of them,
the words, the directory, and the variables. With their length come the file descriptors of stdin, stdout and stderr. The
process that was announced last reads the request and becomes the step; the next one is forked and announced meanwhile.

A step is forked twice, so that it is given to the runner, who has asked for orphans: it is watched, ended and waited for
exactly as a process that the runner has started itself. Until it is asked for it is in the group of the server.

But for `json`, in which steps are spoken to, nothing is imported here that a new interpreter has not imported either. A step
that has a module of its own by a name that is taken is run by a new interpreter.
"""

import _socket
import os
import sys

INT = 4


def answer(channel, text):
    os.write(channel.fileno(), (" ".join(text.split()) + "\n").encode("utf-8", "replace"))


def receive(channel, data, count):
    """`data` and what follows, `count` bytes in all; None at the end of the socket."""
    data = bytearray(data)
    while len(data) < count:
        piece = channel.recv(count - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


def request(channel):
    """The next request and its file descriptors."""
    room = _socket.CMSG_SPACE(3 * INT)
    head, extras, _, _ = channel.recvmsg(INT, room)
    if not head:
        return None, []
    fds = []
    for level, kind, data in extras:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            fds += [int.from_bytes(data[at : at + INT], sys.byteorder) for at in range(0, len(data), INT)]
    head = receive(channel, head, INT)
    return head and receive(channel, b"", int.from_bytes(head, "big")), fds


def prepare(channel, shared):
    """Imports what is asked for; what steps need to know of the start, or None if none can be forked from here."""
    size = receive(channel, b"", INT)
    fields = size and receive(channel, b"", int.from_bytes(size, "big"))
    if not fields:
        return None
    count, *fields = fields.split(b"\0")[:-1]
    modules, given = fields[: int(count)], fields[int(count) :]
    # What a step finds first on its path is not the server's directory.
    if sys.path[:1] == [""]:
        del sys.path[0]
    external = sys.modules["_frozen_importlib_external"]
    json = external.PathFinder.find_spec("json")
    if json and json.origin == os.path.join(os.path.dirname(os.__file__), "json", "__init__.py"):
        # The interpreter's own; another one would be somebody's code, which never runs here.
        __import__("json")
    for name in modules:
        name = name.decode()
        try:
            __import__(name)
        except BaseException as error:
            answer(channel, "!`%s` cannot be preloaded: %r" % (name, error))
            return None
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        answer(channel, "!what it preloads has started threads (%d)" % (threads - 1))
        return None
    # What imports have printed must not be printed again by every step.
    sys.stdout.flush()
    sys.stderr.flush()
    given, found = variables_of(given), dict(os.environb)
    # What stands between the runner and the interpreter, such as a script that chooses its version, may have changed
    # variables. It would change those of a new interpreter in the same way.
    names = [name for name in list(found) + list(given) if given.get(name) != found.get(name)]
    changes = {name: (given.get(name), found.get(name)) for name in names}
    # Each step has its own, which leaves the memory that /proc shows to `rewrite`.
    os.environb.clear()
    start = given, changes, contents("/proc/self/cmdline").partition(b"\0")[0], areas()
    if hasattr(__import__("gc"), "freeze"):
        remember(shared)
    return start


def variables_of(fields):
    return dict(field.partition(b"=")[::2] for field in fields)


def contents(path):
    """What stands in a small file of the kernel's, of which `open` asks more than there is to know."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while True:
            piece = os.read(fd, 1 << 16)
            if not piece:
                return data
            data += piece
    finally:
        os.close(fd)


def serve(shared):
    """Returns in the process of a step, with what it is to run; in the server at its end, with None."""
    before = set(sys.modules)
    channel = _socket.socket(fileno=os.dup(0))
    start = prepare(channel, shared)
    if start is None:
        return None
    preloaded = {name.partition(".")[0] for name in set(sys.modules) - before}
    # Each step would free it, and copy all pages that have one of the names.
    del before
    while True:
        reads, writes = os.pipe()
        try:
            between = os.fork()
        except OSError as error:
            answer(channel, "!it cannot fork: %r" % error)
            return None
        if between == 0:
            fork_step(writes)
            os.close(reads)
            rehearse(start[0])
            return become(channel, writes, start) + (preloaded,)
        os.close(writes)
        step = os.read(reads, 32)
        os.waitpid(between, 0)
        # From here on it is a child of the runner.
        answer(channel, step.decode() or "!it cannot fork twice")
        is_taken = os.read(reads, 1)
        os.close(reads)
        if not is_taken:
            return None


def fork_step(writes):
    """Forks the step and returns in it; the process between it and the server ends here."""
    try:
        step = os.fork()
        if step:
            os.write(writes, str(step).encode())
            os._exit(0)
    except OSError:
        os._exit(1)


def rehearse(given):
    """Does once what every step does, with no effect. A page of a fork is copied when it is first written to. These copies
    take most of the time of a small step, and here nothing waits for them."""
    os.environb.update(given)
    joined([name + b"=" + value for name, value in os.environb.items()], 1)
    os.environb.clear()
    try:
        is_module(os.path.realpath(os.getcwd()), "".join(listed("")))
    except OSError:
        # Names on the way may change just now. The step looks again.
        pass
    exec(compile(b"def f(): pass\nf()", "<worker>", "exec", 0, True), {})


def become(channel, writes, start):
    """Turns this copy of the server into the process of a step, once it is asked for."""
    try:
        body, fds = request(channel)
    except OSError:
        body = None
    if body is None:
        os._exit(0)
    try:
        os.write(writes, b"!")
    except OSError:
        # The server is gone. This step is not.
        pass
    os.close(writes)
    channel.close()
    for number in range(3):
        os.dup2(fds[number], number)
    for fd in fds:
        os.close(fd)
    fields = body.split(b"\0")[:-1]
    count, flags = int(fields[0]), int(fields[1])
    words, (directory, *variables) = fields[2 : 2 + count], fields[2 + count :]
    _, changes, words[0], places = start
    os.chdir(directory)
    variables = variables_of(variables)
    for name, (given, found) in changes.items():
        if variables.get(name) != given:
            continue
        if found is None:
            del variables[name]
        else:
            variables[name] = found
    os.environb.update(variables)
    rewrite(places, words, [name + b"=" + value for name, value in variables.items()])
    return [os.fsdecode(word) for word in words], 1 + flags


def areas():
    """Where the command and the environment lie that /proc shows of this process and its forks; None if it does not say."""
    try:
        # Fields 48 to 51 of the line, whose first after the name is field 3.
        fields = contents("/proc/self/stat").rpartition(b")")[2].split()[45:49]
        args, args_end, env, env_end = (int(field) for field in fields)
    except (OSError, ValueError):
        return None
    return (args, args_end), (env, env_end)


def rewrite(places, words, variables):
    """Shows the step's own command and environment in /proc: what a step leaves behind is found by its environment."""
    if places is None:
        # Then it is found by its group only.
        return
    # The marks come first: they must be there, however little room there is.
    variables = sorted(variables, key=lambda variable: not variable.startswith(b"ETUDE_"))
    try:
        memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
        try:
            for (start, end), entries in zip(places, (words, variables)):
                os.pwrite(memory, joined(entries, end - start), start)
        finally:
            os.close(memory)
    except OSError:
        pass


def joined(entries, room):
    data = b"".join(entry + b"\0" for entry in entries)
    if len(data) > room:
        data = data[: data.rfind(b"\0", 0, room) + 1]
    return data.ljust(room, b"\0")


def run(words, at, preloaded):
    """Runs the step as `python WORDS` would. What is out of the ordinary is left to a new interpreter."""
    main = type(sys)("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], __annotations__={})
    main.__loader__ = sys.modules["_frozen_importlib"].BuiltinImporter
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = list(words)
    what = words[at]
    if what in ("-c", "-m"):
        sys.argv = [what] + words[at + 2 :]
        entry = "" if what == "-c" else os.getcwd()
    else:
        sys.argv = words[at:]
        entry = os.path.dirname(os.path.realpath(what))
    hides = not (sys.flags.isolated or getattr(sys.flags, "safe_path", False))
    if hides and any(is_module(entry, name) for name in listed(entry) if name.partition(".")[0] in preloaded):
        # The step has a module of its own by that name.
        os.execv(sys.executable, words)
    source = words[at + 1] if what == "-c" else None if what == "-m" else script(what)
    if hides:
        sys.path.insert(0, entry)
    sys.modules["__main__"] = main
    if what == "-m":
        return __import__("runpy")._run_module_as_main(words[at + 1], alter_argv=True)
    if what == "-c":
        path = "<string>"
    elif source is None:
        os.execv(sys.executable, words)
    else:
        # Python before 3.9 left it relative.
        path = os.path.join(os.getcwd(), what) if sys.version_info >= (3, 9) else what
        main.__file__, main.__cached__ = path, None
        main.__loader__ = sys.modules["_frozen_importlib_external"].SourceFileLoader("__main__", path)
    numpy = sys.modules.get("numpy.random")
    if numpy:
        # It does not notice that it was forked.
        numpy.seed()
    try:
        code = compile(source, path, "exec", 0, True)
    except SyntaxError:
        # A new interpreter shows the line as it reads the file.
        os.execv(sys.executable, words)
    lines = sys.modules.get("linecache")
    if lines and path == "<string>":
        # Newer interpreters show lines of `-c` in tracebacks; those that are kept are the server's.
        for cache in (lines.cache, getattr(lines, "_interactive_cache", {})):
            cache.clear()
        lines.cache[path] = (len(source), None, [line + "\n" for line in source.splitlines()], path)
    exec(code, main.__dict__)


def is_module(directory, name):
    """True for what an import would find before what is loaded: data hides nothing, nor does a directory that is no package."""
    if name.endswith((".py", ".pyc", ".so")):
        return True
    return "." not in name and os.path.isfile(os.path.join(directory, name, "__init__.py"))


def listed(directory):
    try:
        return os.listdir(directory or ".")
    except OSError:
        return []


def script(name):
    """The source of a plain script; None for what is missing, an archive, a directory, or compiled."""
    try:
        with open(name, "rb") as file:
            source = file.read()
    except OSError:
        return None
    return None if name.endswith(".pyc") or source[:2] == b"PK" else source


def remember(shared):
    """Notes what all steps have in common, before the first of them."""
    io, collector = sys.modules["_io"], __import__("gc")
    shared.update(collector=collector, threads=__import__("_thread")._count, streams=(sys.stdout, sys.stderr))
    last = next(latest())
    shared.update(last=(last, sys.modules[last]), is_pure=is_pure(sys.modules.items()))
    shared["memory"] = io.StringIO, io.BytesIO
    shared["files"] = io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO
    shared["open"] = [thing for thing in collector.get_objects() if type(thing) in shared["files"]]
    collector.freeze()
    # The first of what is not frozen.
    shared["canary"] = []


def leave(shared, end=os._exit, is_last=True):
    """Called when a step has ended, and all that it has registered was called. If nothing is left in the process that has
    something to do at its end, it ends here: the interpreter would free every object first, which takes longer than most steps
    do, because a page is copied for nearly each of them. If it is not the last call, there is another one later."""
    if "canary" not in shared:
        return
    try:
        things = shared["collector"].get_objects()
        if not any(thing is shared["canary"] for thing in things):
            # The step has frozen its own. The interpreter frees nothing of that, wherever it was started.
            return
        is_left = has_finalizers(shared, things)
        if "status" in shared and not is_left and is_plain(shared) and flushed(shared["streams"]):
            for file in shared["open"]:
                flushed([file])
            end(shared["status"])
    except BaseException:
        # The step has taken away what is looked at.
        is_left = True
    if is_left and is_last:
        # What is frozen would never be freed, nor would what the step has hung on it.
        shared["collector"].unfreeze()


def leave_at_once(shared):
    """Leaves before the interpreter prepares its end, if neither the step nor what was preloaded has registered a function to be
    called there."""
    if shared["registered"]() == shared["registered_first"] > 0:
        leave(shared, is_last=False)


def has_finalizers(shared, things):
    """True if the step has left something that has to do something at its end: files, generators, objects with `__del__`."""
    kinds = {kind for kind in set(map(type, things)) if hasattr(kind, "__del__")}.difference(shared["memory"])
    return any(type(thing) in kinds and not (type(thing) in shared["files"] and thing.closed) for thing in things)


def is_plain(shared):
    """True if nothing but the interpreter is at work in this process, and its streams are those that it was given."""
    if shared["threads"]():
        return False
    if (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__) != shared["streams"] * 2:
        return False
    return shared["is_pure"] and is_pure(added(shared["last"]))


def latest():
    """The names of all modules, from the latest import to the first."""
    return reversed(sys.modules if sys.version_info >= (3, 8) else list(sys.modules))


def added(last):
    """What was imported since `last`, a name and its module: an import puts it at the end, also where the name was there."""
    for name in latest():
        if name == last[0] and sys.modules[name] is last[1]:
            return
        yield name, sys.modules[name]


def is_pure(modules):
    """False if libraries from elsewhere are among them: they may have printed something that Python does not know of, and that
    the system's own library writes at the end of a process."""
    for name, module in modules:
        origin = getattr(getattr(module, "__spec__", None), "origin", None) or ""
        is_own = os.path.basename(os.path.dirname(origin)) == "lib-dynload"
        if name in ("_ctypes", "_curses", "_dbm", "_gdbm") or (origin.endswith(".so") and not is_own):
            return False
    return True


def flushed(streams):
    """False if something could not be written."""
    try:
        for stream in streams:
            if not stream.closed:
                stream.flush()
        return True
    except BaseException:
        return False


def main():
    atexit = __import__("atexit")
    # The number of functions that are registered for the end. Not every interpreter tells it.
    shared = {"registered": getattr(atexit, "_ncallbacks", lambda: -1)}
    # The first that is registered is the last that is called.
    atexit.register(leave, shared)
    shared["registered_first"] = shared["registered"]()
    step = serve(shared)
    if step is None:
        return
    try:
        run(*step)
    except SystemExit as end:
        if end.code is None or (type(end.code) is int and 0 <= end.code < 256):
            shared["status"] = end.code or 0
            leave_at_once(shared)
        raise
    except BaseException as error:
        # The interpreter tells of it, without the frames of this file.
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_globals is globals():
            trace = trace.tb_next
        hook = sys.excepthook

        def tell(kind, value, _):
            nonlocal trace
            sys.excepthook = hook
            # Kept here, it would keep what the step has made.
            shown, trace = trace, None
            hook(kind, value.with_traceback(shown), shown)

        sys.excepthook = tell
        raise
    shared["status"] = 0
    leave_at_once(shared)


main()
