"""The pages that MetaService serves: JSON routes that only read, metrics, and a small web UI.

    app.include_router(web.router(reader, verify))

FastAPI and prometheus-client come with the extra `service`.
"""

from __future__ import annotations

from dbt_streamsql.web.access import Verify, token_of
from dbt_streamsql.web.routes import router

__all__ = ["Verify", "router", "token_of"]
