"""The pages that MetaService serves: read-only JSON routes, metrics, and a small web UI.

    app.include_router(web.router(store, verify))

FastAPI and prometheus-client come with the extra `service`.
"""

from __future__ import annotations

from dbt_streamsql.web.access import PUBLIC, Sees, Verify, everything, token_of
from dbt_streamsql.web.routes import router

__all__ = ["PUBLIC", "Sees", "Verify", "everything", "router", "token_of"]
