"""A grid on a Slurm cluster, by dask-jobqueue: Slurm starts and ends the workers, one GPU each.

    pip install 'fednb[cluster]' dask-jobqueue
    python examples/slurm_cluster.py                      # on the login node, in tmux or screen: it stays until the end

Put FEDNB_STORE on a file system that all nodes see: runs that lose their node then go on after their last saved round.
"""

from dask_jobqueue import SLURMCluster

import fednb as fn

if __name__ == "__main__":
    cluster = SLURMCluster(
        queue="gpu",  # your partition
        cores=1,  # one run at a time, or one set of runs that share a GPU
        processes=1,
        memory="32GB",
        walltime="08:00:00",
        job_extra_directives=["--gres=gpu:1"],
        worker_extra_args=[
            "--resources", "GPU=1",  # runs that need a GPU go to workers that offer one
            "--lifetime", "7h50m", "--lifetime-stagger", "5m",  # end in time: the run is saved and goes on elsewhere
        ],
        job_script_prologue=["export FEDNB_STORE=$HOME/fednb FEDNB_DATA=$HOME/data"],
    )  # fmt: skip
    cluster.adapt(minimum_jobs=16, maximum_jobs=16)  # jobs whose time is over are replaced
    print(f"look from another terminal: fednb grid status fedfft table1 --scale paper --on {cluster.scheduler_address}")
    results = fn.papers("fedfft").grid("table1", scale="paper").run(on=cluster.scheduler_address)
    print(results.table())
