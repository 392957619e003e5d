#!/bin/bash
# `make test-slurm`: bring up a Slurm of one node on loopback, run tests/slurm against it, and stop it again.
# Where that is not possible (no root, packages that cannot be installed) it says so and counts as skipped.
set -uo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}
packages="slurmctld slurmd slurm-client munge slurmdbd mariadb-server"
programs="slurmctld slurmd slurmdbd munged mariadbd mariadb-install-db sbatch srun sacct runuser"

skip() { echo "skipped: test-slurm $*"; exit 0; }

all_there() { for program in $programs; do command -v "$program" > /dev/null || return 1; done; }

install_packages() {  # without starting the services that come with them
    local policy=/usr/sbin/policy-rc.d made=
    [ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' > $policy && chmod +x $policy && made=yes; }
    # shellcheck disable=SC2086
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $packages; } \
        > "$1" 2>&1
    local status=$?
    [ -z "$made" ] || rm -f $policy
    return $status
}

free_port() {  # the first of three ports that are free
    local port=16817
    while (exec 3<> "/dev/tcp/127.0.0.1/$port" || exec 3<> "/dev/tcp/127.0.0.1/$((port + 1))" \
        || exec 3<> "/dev/tcp/127.0.0.1/$((port + 2))") 2> /dev/null; do port=$((port + 10)); done
    echo $port
}

export PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" = 0 ] || skip "needs root, to run Slurm's daemons"
[ -x "$python" ] || command -v "$python" > /dev/null || skip "needs $python; run make setup first"
"$python" -c "import submitit, hydra_plugins.hydra_submitit_launcher" 2> /dev/null \
    || skip "needs hydra-submitit-launcher: pip install -c constraints.txt '.[slurm]'"
dir=$(mktemp -d "${TMPDIR:-/tmp}/varrnn-slurm-XXXXXX")
if ! all_there; then
    command -v apt-get > /dev/null || { rm -rf "$dir"; skip "needs Debian's packages $packages, and there is no apt-get"; }
    echo "installing $packages"
    if ! install_packages "$dir/apt.log" || ! all_there; then
        tail -n 3 "$dir/apt.log"
        rm -rf "$dir"
        skip "could not install $packages"
    fi
fi

trap 'tests/slurm/slurm_down.sh "$dir"; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
if ! SLURM_TEST_PORT=$(free_port) tests/slurm/slurm_up.sh "$dir"; then
    tail -n 5 "$dir"/log/*.log
    echo "failed: test-slurm could not bring up Slurm"
    exit 1
fi
VARRNN_TEST_SLURM=yes SLURM_CONF=$dir/slurm.conf "$python" -m pytest tests/slurm -q -p no:cacheprovider "$@"
