"""Both official clients of one server: Google's Python client of Bigtable, and HBase's Java client.

The addresses come from STELE_ADDRESS and STELE_HBASE; STELE_HBASE_JARS is the class path of the Java client.
"""

import os
import subprocess
import uuid

import pytest

os.environ["BIGTABLE_EMULATOR_HOST"] = os.environ["STELE_ADDRESS"]

from google.cloud import bigtable  # noqa: E402  (reads the variable when it is imported)

# An instance is a namespace. HBase allows letters, digits and underscores in its name.
NAMESPACE = "semantics"


class HBase:
    """HBase's client: one line for a command, one for its answer."""

    def __init__(self):
        command = ["java", "-Xmx256m", "-cp", os.environ["STELE_HBASE_JARS"], "stele.clients.hbase.Lines"]
        self.process = subprocess.Popen(
            command + [os.environ["STELE_HBASE"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )

    def __call__(self, *words):
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the Java client has ended"
        return answer.rstrip("\n")


@pytest.fixture(scope="session")
def hbase():
    client = HBase()
    assert client("namespace", NAMESPACE) == "ok"
    yield client
    client.process.stdin.close()
    client.process.wait(timeout=30)


@pytest.fixture(scope="session")
def instance():
    return bigtable.Client(project="stele", admin=True).instance(NAMESPACE)


@pytest.fixture
def name():
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def of_bigtable(instance, name):
    """A table that was made through Bigtable: its name for HBase, and the table."""
    table = instance.table(f"{name}_bigtable")
    table.create(column_families={"f": None})
    yield f"{NAMESPACE}:{table.table_id}", table
    table.delete()


@pytest.fixture
def of_hbase(hbase, instance, name):
    """The same, made through HBase."""
    table = instance.table(f"{name}_hbase")
    assert hbase("create", f"{NAMESPACE}:{table.table_id}", "f:5:2147483647") == "ok"
    yield f"{NAMESPACE}:{table.table_id}", table
    table.delete()
