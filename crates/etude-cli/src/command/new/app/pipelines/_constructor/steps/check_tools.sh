#!/bin/sh
# The scripts of this app are written in Python. If it is missing, one clear message is better than one per step.
if ! command -v python3 >/dev/null; then
    echo "python3 is not installed" >&2
    exit 1
fi
echo '{"output": {"python3": true}}'
