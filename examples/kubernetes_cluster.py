"""A grid on Kubernetes, by dask-kubernetes and its operator: pods of an image that has fednb of your version.

    pip install 'fednb[cluster]' dask-kubernetes
    helm install --repo https://helm.dask.org --generate-name dask-kubernetes-operator
    python examples/kubernetes_cluster.py

Pods have no common store here: every finished run comes back to yours, checked by its checksums. Mount one volume into
all of them and name it FEDNB_STORE, here too, and runs that lose their pod go on after their last saved round.
"""

from dask_kubernetes.operator import KubeCluster

import fednb as fn

if __name__ == "__main__":
    cluster = KubeCluster(
        name="fednb",
        image="registry.example.org/fednb:latest",  # yours: pip install 'fednb[cluster]', and the data in /data
        env={"FEDNB_DATA": "/data", "OMP_NUM_THREADS": "1"},
        resources={"limits": {"nvidia.com/gpu": "1", "memory": "32Gi"}},
        worker_command=["dask", "worker", "--nthreads", "1", "--resources", "GPU=1"],
    )
    cluster.scale(16)
    results = fn.papers("fedfft").grid("table1", scale="paper").run(on=cluster.scheduler_address)
    print(results.table())
    cluster.close()
