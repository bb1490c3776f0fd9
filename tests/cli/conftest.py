"""Fixtures of the command-line tests."""

from __future__ import annotations

import pytest

from tests.cli.tools import Workspace, make_workspace


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A model, its data, and its containers; not to be changed."""
    return make_workspace(tmp_path_factory.mktemp("cli"))
