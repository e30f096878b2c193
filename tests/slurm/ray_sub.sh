#!/bin/bash
# A stand-in for NeMo-RL's ray.sub: what is documented of its variables, as far as Rollyard meets it.
# There is no Ray here, and no container, since Debian's Slurm has no pyxis: CONTAINER, MOUNTS and
# what belongs to them are demanded and ignored. `localhost` is the address of the node, since all nodes of
# the emulated cluster are on one machine.
set -euo pipefail

: "${CONTAINER:?}" "${MOUNTS:?}" "${COMMAND:?}" "${SANDBOX_CONTAINER:?}" "${SANDBOX_COMMAND:?}"
logs="${BASE_LOG_DIR:-$SLURM_SUBMIT_DIR}/$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}-logs"
mkdir -p "$logs/ready"
export logs SANDBOX_PORT="${NEMO_SKILLS_SANDBOX_PORT:-6000}"
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sort | head -n1)

# On each node: the command, and the word that its port is open, for which it has five minutes.
cat > "$logs/sandbox.sh" <<TASK
($SANDBOX_COMMAND) &
sandbox=\$!
address=\$(scontrol --oneliner show node "\$SLURMD_NODENAME" | sed 's/.* NodeAddr=\([^ ]*\) .*/\1/')
deadline=\$((SECONDS + 300))
until (: > "/dev/tcp/\$address/\$SANDBOX_PORT") 2> /dev/null; do
    kill -0 "\$sandbox" || exit 1
    ((SECONDS < deadline)) || exit 1
    sleep 1
done
touch "\$logs/ready/\$SLURMD_NODENAME"
wait "\$sandbox"
TASK
srun --overlap --nodes="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --wait=60 --kill-on-bad-exit=1 \
    --export="ALL${SANDBOX_ENV_VARS:+,$SANDBOX_ENV_VARS}" --output="$logs/sandbox-%t.log" \
    bash "$logs/sandbox.sh" &
sandboxes=$!

# On the head: once every port is open, for which they have ten minutes, the command, which knows
# nothing of Slurm, but for what the tests know processes of a job by.
printf '%s\n' "${SETUP_COMMAND:-}" > "$logs/setup.sh"
printf '%s\n' "$COMMAND" > "$logs/command.sh"
cat > "$logs/head.sh" <<'TASK'
nodes=$SLURM_JOB_NUM_NODES
for name in $(compgen -e SLURM_ | grep -vxE 'SLURM_(CONF|JOB_ID)'); do unset "$name"; done
bash "$logs/setup.sh"
deadline=$((SECONDS + 600))
until (($(find "$logs/ready" -type f | wc -l) >= nodes)); do
    ((SECONDS < deadline)) || exit 1
    sleep 1
done
bash "$logs/command.sh" > "$logs/ray-driver.log" 2>&1
TASK
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" bash "$logs/head.sh" &
driver=$!

# The job ends with the command, or with the first node on which the other one ends.
while kill -0 "$driver" 2> /dev/null; do
    kill -0 "$sandboxes" 2> /dev/null || exit 1
    sleep 1
done
wait "$driver"
