#!/bin/bash
# Stop exactly what tests/slurm/slurm_up.sh DIR started, by its pid files; cancels the jobs that still run there.
set -u
dir=$(realpath "${1:?usage: slurm_down.sh DIR}")
export SLURM_CONF=$dir/slurm.conf

stop() {  # stop PIDFILE: ask, wait up to 20 seconds, then insist
    local pid
    pid=$(cat "$1" 2> /dev/null) || return
    kill "$pid" 2> /dev/null || return
    for _ in $(seq 40); do kill -0 "$pid" 2> /dev/null || return; sleep 0.5; done
    kill -9 "$pid" 2> /dev/null
}

if [ -f "$dir/slurmctld.pid" ]; then
    scancel --user=root 2> /dev/null
    for _ in $(seq 20); do [ -z "$(squeue --noheader --states=running,completing 2> /dev/null)" ] && break; sleep 0.5; done
fi
for service in slurmd.pid slurmctld.pid slurmdbd.pid db/pid munge/pid; do stop "$dir/$service"; done
