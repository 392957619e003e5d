#!/bin/bash
# A Slurm of one node on loopback, for tests: tests/slurm/slurm_up.sh DIR, then export SLURM_CONF=DIR/slurm.conf
# Needs root and Debian's packages (tests/slurm/test_slurm.sh installs them). Everything lives in DIR, its own munge, database
# and ports included, so that a real Slurm on this machine is not touched. tests/slurm/slurm_down.sh DIR stops it.
set -euo pipefail
dir=$(realpath -m "${1:?usage: slurm_up.sh DIR}")
port=${SLURM_TEST_PORT:-16817}
mkdir -p "$dir"/{state,spool,log,db,munge}
chmod 755 "$dir"
cpus=$(nproc)
memory=$(($(awk '/MemTotal/{print $2}' /proc/meminfo) / 1024 * 3 / 4))

cat > "$dir/slurm.conf" <<CONF
ClusterName=varrnn
SlurmctldHost=localhost(127.0.0.1)
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.log
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((port + 2))
AccountingStoragePass=$dir/munge/socket
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
NodeName=localhost NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=$memory State=UNKNOWN
PartitionName=test Nodes=localhost Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
CONF
cat > "$dir/slurmdbd.conf" <<CONF
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$((port + 2))
SlurmUser=root
LogFile=$dir/log/slurmdbd.log
PidFile=$dir/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=local
StorageLoc=slurm_acct_db
CommunicationParameters=NoInAddrAny
CONF
chmod 600 "$dir/slurmdbd.conf"

wait_for() {  # wait_for WHAT COMMAND...: up to two minutes, since the machine may be busy
    local what=$1; shift
    local until=$((SECONDS + 120))
    while [ $SECONDS -lt $until ]; do timeout 20 "$@" > "$dir/log/wait.log" 2>&1 && return; sleep 0.5; done
    echo "$what does not answer; see $dir/log. $(cat "$dir/log/wait.log")" >&2
    exit 1
}

export SLURM_CONF=$dir/slurm.conf MYSQL_UNIX_PORT=$dir/db/mysqld.sock
database=(mariadb --no-defaults --socket="$MYSQL_UNIX_PORT")

dd if=/dev/urandom of="$dir/munge/key" bs=128 count=1 2> /dev/null
chown -R munge:munge "$dir/munge" && chmod 755 "$dir/munge" && chmod 400 "$dir/munge/key"
runuser -u munge -- munged --key-file="$dir/munge/key" --socket="$dir/munge/socket" --pid-file="$dir/munge/pid" \
    --log-file="$dir/munge/log" --seed-file="$dir/munge/seed" --num-threads=10 --force

chown mysql:mysql "$dir/db"
mariadb-install-db --no-defaults --user=mysql --datadir="$dir/db" --auth-root-authentication-method=socket \
    > "$dir/log/install-db.log" 2>&1
mariadbd --no-defaults --user=mysql --datadir="$dir/db" --socket="$MYSQL_UNIX_PORT" --skip-networking \
    --pid-file="$dir/db/pid" --innodb-buffer-pool-size=64M > "$dir/log/mariadbd.log" 2>&1 &
wait_for mariadbd "${database[@]}" -e "select 1"
"${database[@]}" -e "create database slurm_acct_db; create user slurm@localhost identified by 'local';
    grant all on slurm_acct_db.* to slurm@localhost;"

slurmdbd
wait_for slurmdbd sacctmgr --noheader show cluster
slurmctld
slurmd -N localhost
wait_for slurmd sh -c "sinfo --noheader --format=%T | grep -q idle"
sinfo
