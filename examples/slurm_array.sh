#!/bin/bash
# A grid as a plain Slurm job array, without any server: every task makes its part of the runs.
#   sbatch examples/slurm_array.sh
# A task that is ended, or fails, is started again by the same command: finished runs are skipped, others go on.
# A grid that is tuned takes two arrays: the first makes the tuning, the second one the grid itself:
#   first=$(sbatch --parsable examples/slurm_array.sh) && sbatch --dependency=afterok:$first examples/slurm_array.sh
#SBATCH --job-name=fednb
#SBATCH --array=1-16
#SBATCH --gres=gpu:1
#SBATCH --mem=32G
#SBATCH --time=08:00:00
set -euo pipefail
export FEDNB_STORE=$HOME/fednb FEDNB_DATA=$HOME/data    # on a file system that all nodes see
fednb grid run fedfft table1 --scale paper --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
