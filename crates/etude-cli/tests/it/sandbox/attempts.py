"""Tries to get out of a sandbox, and tells of each attempt whether it was kept from it."""

import ctypes
import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
import termios

given = json.load(sys.stdin)["input"]
secret, outside, victim = given["secret"], given["outside"], given["victim"]
scratch = os.environ.get("TMPDIR", "/tmp")
libc = ctypes.CDLL(None, use_errno=True)
attempts = {}

# Numbers of calls on x86-64, and on the processors that number them alike.
NUMBERS = {
    "init_module": (175, 105),
    "add_key": (248, 217),
    "keyctl": (250, 219),
    "perf_event_open": (298, 241),
    "open_by_handle_at": (304, 265),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "finit_module": (313, 273),
    "bpf": (321, 280),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
}


def attempt(name, apart=False):
    """Notes whether the work could be done; `apart` is for what changes the process that does it."""

    def register(work):
        try:
            if not apart:
                work()
            elif (child := os.fork()) == 0:
                try:
                    work()
                    os._exit(0)
                except OSError:
                    os._exit(7)
            elif os.waitpid(child, 0)[1] != 0:
                raise OSError("kept in a child")
            attempts[name] = "done"
        except (OSError, subprocess.CalledProcessError) as error:
            attempts[name] = "kept"
            print(name, error, file=sys.stderr)
        return work

    return register


def call(name, *arguments):
    if getattr(libc, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)


def syscall(number, *arguments):
    if libc.syscall(number, *arguments) == -1:
        raise OSError(ctypes.get_errno(), str(number))


def number(name):
    return NUMBERS[name][os.uname().machine != "x86_64"]


def reach(name, *arguments):
    """Makes a call that has no sense: it was kept from the kernel if that is not what the kernel says."""
    if libc.syscall(number(name), *arguments) == -1:
        found = ctypes.get_errno()
        if found in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            raise OSError(found, name)


def reads(path):
    with open(path, "rb") as file:
        file.read(1)


@attempt("write outside")
def _():
    with open(outside + "/new", "w") as file:
        file.write("x")


@attempt("write into the app")
def _():
    with open(os.environ["ETUDE_APP_DIR"] + "/new", "w") as file:
        file.write("x")


@attempt("truncate")
def _():
    os.truncate(outside + "/kept", 0)


@attempt("remove")
def _():
    os.unlink(outside + "/removed")


@attempt("rename into the scratch directory")
def _():
    os.rename(outside + "/renamed", scratch + "/renamed")


@attempt("make a link outside")
def _():
    os.symlink("x", outside + "/link")


@attempt("link a file into the scratch directory")
def _():
    os.link(secret, scratch + "/linked")
    reads(scratch + "/linked")


@attempt("change modes")
def _():
    # Modes and owners are no matter of Landlock: without capabilities they are those of the owner.
    if os.geteuid() == 0:
        os.chown(outside + "/kept", 12345, 12345)
    else:
        raise OSError("not root")


@attempt("read a secret")
def _():
    reads(secret)


@attempt("list a home")
def _():
    os.listdir(os.path.dirname(secret))


@attempt("read a secret through a link")
def _():
    os.symlink(secret, scratch + "/symlink")
    reads(scratch + "/symlink")


@attempt("read a secret through /proc/self/root")
def _():
    reads("/proc/self/root" + secret)


@attempt("read a secret through /proc/self/cwd")
def _():
    reads("/proc/self/cwd/" + os.path.relpath(secret, os.getcwd()))


@attempt("read a secret through a descriptor of /")
def _():
    root = os.open("/", os.O_PATH)
    os.close(os.open(secret[1:], os.O_RDONLY, dir_fd=root))


@attempt("read a secret in a child")
def _():
    subprocess.run(["cat", secret], check=True, capture_output=True)


@attempt("read the password hashes")
def _():
    reads("/etc/shadow")


@attempt("read the environment of another process")
def _():
    reads(f"/proc/{victim}/environ")


@attempt("read the environment of the runner")
def _():
    reads(f"/proc/{os.getppid()}/environ")


@attempt("read the root of another process")
def _():
    reads(f"/proc/{victim}/root{secret}")


@attempt("read the memory of another process")
def _():
    os.close(os.open(f"/proc/{victim}/mem", os.O_RDONLY))


@attempt("attach to another process")
def _():
    call("ptrace", 16, victim, 0, 0)
    call("ptrace", 17, victim, 0, 0)


@attempt("signal another process")
def _():
    os.kill(victim, 0)


@attempt("signal the runner")
def _():
    os.kill(os.getppid(), 0)


@attempt("set limits of another process")
def _():
    import resource

    resource.prlimit(victim, resource.RLIMIT_CORE, (0, 0))


@attempt("connect by TCP")
def _():
    socket.create_connection(("127.0.0.1", given["tcp"]), timeout=5).close()


@attempt("listen by TCP")
def _():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))


@attempt("send by UDP")
def _():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("127.0.0.1", given["tcp"]))


@attempt("send by UDP over IPv6")
def _():
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM):
        pass


@attempt("connect to a socket of the file system")
def _():
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(outside + "/socket")


@attempt("send to a socket of the file system from one of a pair")
def _():
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    pair[0].sendto(b"x", outside + "/datagrams")


@attempt("send to a socket of the file system from one of a raw pair")
def _():
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)
    pair[0].sendto(b"x", outside + "/datagrams")


@attempt("make a ring for sockets")
def _():
    syscall(425, 8, ctypes.create_string_buffer(120))


@attempt("make a user namespace", apart=True)
def _():
    call("unshare", 0x10000000)


@attempt("make a namespace with a new process")
def _():
    flags = 0x10000000 | 17
    child = libc.syscall({"x86_64": 56}.get(os.uname().machine, 220), flags, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    if child == -1:
        raise OSError(ctypes.get_errno(), "clone")
    os.waitpid(child, 0)


@attempt("mount", apart=True)
def _():
    call("unshare", 0x00020000)
    call("mount", b"none", scratch.encode(), b"tmpfs", 0, 0)


@attempt("change the root", apart=True)
def _():
    os.chroot(scratch)


@attempt("become another user", apart=True)
def _():
    os.setresuid(12345, 12345, 12345)


@attempt("gain rights by a program with the set-user-id bit")
def _():
    status = open("/proc/self/status").read()
    facts = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    if facts["NoNewPrivs"] == "1" and int(facts["CapEff"], 16) == int(facts["CapPrm"], 16) == 0:
        raise OSError("no new privileges, no capabilities")


@attempt("load a program into the kernel")
def _():
    reach("bpf", 0, ctypes.create_string_buffer(128), 128)


@attempt("trace the kernel")
def _():
    reach("perf_event_open", ctypes.create_string_buffer(bytes([1, 0, 0, 0, 112, 0, 0, 0]) + bytes(120)), 0, -1, -1, 0)


@attempt("load a module")
def _():
    reach("init_module", ctypes.create_string_buffer(64), 64, b"")


@attempt("load a module from a file")
def _():
    reach("finit_module", -1, b"", 0)


@attempt("add a key")
def _():
    syscall(number("add_key"), b"user", b"etude-attempt", b"x", 1, -2)


@attempt("use a ring of keys")
def _():
    syscall(number("keyctl"), 0, -2, 1)


@attempt("open a file by its handle")
def _():
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    reach("open_by_handle_at", root, ctypes.create_string_buffer(bytes([8, 0, 0, 0, 1, 0, 0, 0]) + bytes(120)), 0)


def vectors():
    """A place of our own, and one of the other process where nothing is."""
    own = ctypes.create_string_buffer(8)
    pair = ctypes.c_uint64 * 2
    return own, pair(ctypes.addressof(own), 8), pair(0x1000, 8)


@attempt("read the memory of another process by a call")
def _():
    own, here, there = vectors()
    reach("process_vm_readv", victim, here, 1, there, 1, 0)


@attempt("write the memory of another process by a call")
def _():
    own, here, there = vectors()
    reach("process_vm_writev", victim, here, 1, there, 1, 0)


@attempt("take a descriptor of another process")
def _():
    process = libc.syscall(number("pidfd_open"), victim, 0)
    if process == -1:
        raise OSError(ctypes.get_errno(), "pidfd_open")
    syscall(number("pidfd_getfd"), process, 0, 0)


@attempt("join a namespace")
def _():
    reach("setns", -1, 0)


@attempt("ask the kernel about the network")
def _():
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()


@attempt("see every packet")
def _():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()


@attempt("connect to the machine around this one")
def _():
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()


@attempt("read a file that the caller has left open")
def _():
    os.pread(17, 1, 0)


@attempt("write to a file that the caller has left open")
def _():
    os.write(18, b"x")


@attempt("share memory")
def _():
    with open("/dev/shm/etude-attempt", "w"):
        os.unlink("/dev/shm/etude-attempt")


@attempt("type into a terminal of its own", apart=True)
def _():
    ours, theirs = os.openpty()
    os.setsid()
    fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
    fcntl.ioctl(theirs, termios.TIOCSTI, b"x")


@attempt("type into the terminal")
def _():
    os.close(os.open("/dev/tty", os.O_RDWR))


print(json.dumps({"output": attempts}))
