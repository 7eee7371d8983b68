"""What the tests of the fleet share."""

import importlib.util
import logging
import warnings
from pathlib import Path

import pytest

STORE = 80 << 20  # bytes of an object store


@pytest.fixture(scope="session")
def logbook():
    """The helpers in logbook.py, which write small logs and read them back."""
    place = Path(__file__).with_name("logbook.py")
    spec = importlib.util.spec_from_file_location("logbook", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def machines():
    """A Ray cluster of two machines of one CPU each, with small stores, on this one.

    It is a ``ray.cluster_utils.Cluster``, and this process is connected to its head.
    """
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    # A machine that is gone is noticed after two seconds, one that is slow not before twenty.
    quick = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}
    head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = Cluster(initialize_head=True, head_node_args={**head, "_system_config": quick})
        cluster.add_node(num_cpus=1, object_store_memory=STORE)
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def server():
    """The address of a store on this machine."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def storage(server):
    """Options as users of s3fs know them."""
    return {"endpoint_url": server, "key": "us", "secret": "them"}


@pytest.fixture
def store(server):
    """The store, with an empty bucket."""
    from pyarrow import fs

    system = fs.S3FileSystem(
        access_key="us",
        secret_key="them",
        endpoint_override=server,
        allow_bucket_creation=True,
        allow_bucket_deletion=True,
    )
    system.create_dir("bucket")
    yield system
    system.delete_dir("bucket")
