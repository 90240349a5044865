"""A grid on a PBS cluster, by dask-jobqueue: PBS starts and ends the workers, eight runs at a time on a node's cores.

    pip install 'fednb[cluster]' dask-jobqueue
    python examples/pbs_cluster.py                        # on the login node, in tmux or screen: it stays until the end

Put FEDNB_STORE on a file system that all nodes see: runs that lose their node then go on after their last saved round.
"""

from dask_jobqueue import PBSCluster

import fednb as fn

if __name__ == "__main__":
    cluster = PBSCluster(
        queue="workq",  # your queue
        cores=8,
        processes=8,  # a process for every core: runs do not share an interpreter
        memory="32GB",
        walltime="08:00:00",
        resource_spec="select=1:ncpus=8:mem=32GB",
        worker_extra_args=["--lifetime", "7h50m", "--lifetime-stagger", "5m"],
        job_script_prologue=["export FEDNB_STORE=$HOME/fednb FEDNB_DATA=$HOME/data OMP_NUM_THREADS=1"],
    )
    cluster.adapt(minimum_jobs=4, maximum_jobs=4)  # jobs whose time is over are replaced
    setting = fn.Setting(data="cifar10", model="resnet20-gn", clients=20, rounds=100)
    grid = fn.grid(setting, ["FedAvg", "FedSAM", "SCAFFOLD"], seeds=5, name="mine")
    print(f"the cluster is at {cluster.scheduler_address}")
    print(grid.run(device="cpu", on=cluster.scheduler_address).table(base="FedAvg"))
