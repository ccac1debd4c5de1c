"""A profile, read and rendered by dbt itself, for commands other than dbt's."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

from dbt_common.context import set_invocation_context, try_get_invocation_context
from dbt_common.exceptions import DbtBaseException

from dbt_streamsql.adapter.profile.credentials import StreamSqlCredentials
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.spark.settings import SessionSettings


def settings_of(
    project_dir: str | None, profiles_dir: str | None, profile: str | None, target: str | None
) -> SessionSettings:
    """How the target of a project reaches Spark. As `credentials_of`."""
    credentials, root = credentials_of(project_dir, profiles_dir, profile, target)
    return credentials.settings(root)


def meta_of(
    project_dir: str | None, profiles_dir: str | None, profile: str | None, target: str | None
) -> tuple[str, str]:
    """The MetaService of a project's target: its store's address, and the token ('' for none)."""
    credentials, root = credentials_of(project_dir, profiles_dir, profile, target)
    return credentials.meta_url(root), credentials.meta_token or ""


def credentials_of(
    project_dir: str | None, profiles_dir: str | None, profile: str | None, target: str | None
) -> tuple[StreamSqlCredentials, Path]:
    """The target of a project, and the project's folder.

    What is None is found as in dbt: by the environment variables `DBT_PROJECT_DIR`,
    `DBT_PROFILES_DIR`, `DBT_PROFILE` and `DBT_TARGET`, then by default. Error: CONFIG_INVALID.
    """
    from dbt.cli.resolvers import default_profiles_dir, default_project_dir
    from dbt.config.runtime import load_profile
    from dbt.flags import set_from_args

    root = Path(project_dir or _told("PROJECT_DIR") or default_project_dir()).absolute()
    folder = Path(profiles_dir or _told("PROFILES_DIR") or default_profiles_dir()).absolute()
    profile, target = profile or _told("PROFILE"), target or _told("TARGET")
    try:
        # `env_var` uses the invocation, and outside dbt's commands there is none.
        if try_get_invocation_context() is None:
            set_invocation_context(os.environ)
        set_from_args(Namespace(PROFILES_DIR=str(folder), PROJECT_DIR=str(root)), None)
        credentials = load_profile(str(root), {}, profile, target).credentials
    except DbtBaseException as error:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "the profile cannot be read",
            given=str(error).strip(),
            hint="set `--project-dir` and `--profiles-dir`, or use `--warehouse`",
        ) from error
    if not isinstance(credentials, StreamSqlCredentials):
        raise StreamSqlError(
            "CONFIG_INVALID",
            "the profile is for a different adapter",
            given=f"`type: {credentials.type}`",
            allowed="`type: streamsql`",
            hint="choose a different `--profile` or `--target`",
        )
    return credentials, root


def _told(option: str) -> str | None:
    """The environment's value of one of dbt's options, by the newer of its names first."""
    return os.environ.get(f"DBT_ENGINE_{option}") or os.environ.get(f"DBT_{option}") or None
