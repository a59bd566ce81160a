#!/bin/sh
# Makes tests/fixture.git, the bare repository that the recorded tests review: the same commits on every machine.
# Run it only to change the fixture; the recordings belong to these commits.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=Fixture GIT_AUTHOR_EMAIL=fixture@example.org
export GIT_COMMITTER_NAME=Fixture GIT_COMMITTER_EMAIL=fixture@example.org
export GIT_AUTHOR_DATE='2026-01-05T09:00:00+0000' GIT_COMMITTER_DATE='2026-01-05T09:00:00+0000'

cd "$work"
git init -q -b main .
mkdir -p shop bin
cat >shop/orders.py <<'PY'
"""Orders of the shop."""

import sqlite3


def connect(path):
    return sqlite3.connect(path)


def find_order(db, number):
    rows = db.execute("SELECT * FROM orders WHERE number = ?", (number,))
    return rows.fetchone()


def total(order):
    return sum(item["price"] * item["quantity"] for item in order["items"])
PY
cat >bin/backup <<'SH'
#!/bin/sh
set -eu
target="$1"
mkdir -p "$target"
cp -R data "$target/"
SH
printf 'The shop\n========\n\nA small shop, kept in one SQLite file.\n\nRun `bin/backup DIR` every night.\n' >README.md
printf '\211PNG\r\n\032\n\000one' >logo.png
git add -A
git commit -q -m 'Orders, a backup script and a logo'

GIT_AUTHOR_DATE='2026-01-06T09:00:00+0000' GIT_COMMITTER_DATE='2026-01-06T09:00:00+0000'
python3 - <<'PY'
path = "shop/orders.py"
text = open(path).read()
text = text.replace('db.execute("SELECT * FROM orders WHERE number = ?", (number,))', 'db.execute(f"SELECT * FROM orders WHERE number = \'{number}\'")')
text += '''

def average(orders):
    return sum(total(order) for order in orders) / len(orders)


def load_settings(path):
    try:
        return open(path).read()
    except OSError:
        pass
'''
open(path, "w").write(text)
path = "bin/backup"
text = open(path).read()
text = text.replace("set -eu\n", "").replace('mkdir -p "$target"', 'rm -rf $target\nmkdir -p $target')
open(path, "w").write(text)
PY
git mv README.md GUIDE.md
printf '\nA backup replaces the one before.\n' >>GUIDE.md
printf '\211PNG\r\n\032\n\000two' >logo.png
git add -A
git commit -q -m 'Averages, settings, and a backup that replaces the old one'

rm -rf "$here/fixture.git"
git clone -q --bare --no-local . "$here/fixture.git"
cd "$here/fixture.git"
git remote remove origin
git -c repack.writeBitmaps=false -c pack.writeReverseIndex=false repack -q -a -d
rm -rf hooks description info branches
head=$(git rev-parse main)
# git knows a bare repository by HEAD, objects/ and refs/; empty directories would be lost in a commit.
mkdir -p refs/heads
printf '%s\n' "$head" >refs/heads/main
rm -f packed-refs
find . -type d -empty -delete
echo "$head"
