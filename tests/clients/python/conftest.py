"""Fixtures: one client for the whole run, one table for each test.

The server's address comes from STELE_ADDRESS or BIGTABLE_EMULATOR_HOST.
"""

import os
import uuid

import pytest

ADDRESS = os.environ.get("STELE_ADDRESS") or os.environ.get("BIGTABLE_EMULATOR_HOST")
if not ADDRESS:
    raise SystemExit("set STELE_ADDRESS to the server's Bigtable address")
os.environ["BIGTABLE_EMULATOR_HOST"] = ADDRESS

from google.cloud import bigtable  # noqa: E402  (reads the variable when it is imported)
from google.cloud.bigtable import column_family  # noqa: E402

PROJECT = "stele-project"
INSTANCE = "stele-python"


@pytest.fixture(scope="session")
def client():
    return bigtable.Client(project=PROJECT, admin=True)


@pytest.fixture(scope="session")
def instance(client):
    return client.instance(INSTANCE)


@pytest.fixture
def table(instance):
    """A table with families `f` (everything kept), `g` and `one` (one version kept)."""
    table = instance.table(f"t-{uuid.uuid4().hex[:16]}")
    table.create(
        column_families={"f": None, "g": None, "one": column_family.MaxVersionsGCRule(1)}
    )
    yield table
    table.delete()
