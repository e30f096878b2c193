# shellcheck shell=bash
# From here on the same in every job. The variables above are set by `rollyard slurm`.
set -euo pipefail
export PATH="${ROLLYARD_BIN}:${PATH}"
cd "${ROLLYARD_SUBMIT_DIRECTORY}"
# It becomes the batch step itself, so that signals of Slurm reach it.
exec rollyard slurm run --directory "${ROLLYARD_DIRECTORY}"
