"""What hooks may ask of the target."""

from __future__ import annotations

from pathlib import Path

import pytest
from dbt.tests.adapter.hooks import test_model_hooks

_OURS = {"target_type": "streamsql", "target_dbname": "", "target_user": "", "target_host": "None"}
_POSTGRES = {
    "target_type": "postgres",
    "target_dbname": "dbt",
    "target_user": "root",
    "target_host": None,
}
"""What the unit compares with; an embedded session has no host and asks nobody's name."""


class Hooks:
    """The rows that hooks wrote, checked for our target and shown in the unit's words."""

    @pytest.fixture(scope="module")
    def test_data_dir(self):
        return str(Path(test_model_hooks.__file__).with_name("data"))

    def get_ctx_vars(self, *args, **kwargs):
        found = super().get_ctx_vars(*args, **kwargs)
        for row in found if isinstance(found, list) else [found]:
            assert {key: row[key] for key in _OURS} == _OURS
            row.update(_POSTGRES)
        return found


OVERRIDES: dict[str, type] = dict.fromkeys(
    (
        "BaseHookRefs",
        "BasePrePostModelHooks",
        "BasePrePostModelHooksInConfig",
        "BasePrePostModelHooksInConfigKwargs",
        "BasePrePostModelHooksInConfigWithCount",
        "BasePrePostRunHooks",
    ),
    Hooks,
)
