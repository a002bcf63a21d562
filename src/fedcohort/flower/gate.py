"""The only door of a server that faces its clients: what clients need of the SuperLink, and nothing else.

Flower's SuperLink answers operators on the same port as clients, and asks operators for no password: whoever
reaches it may admit a key of their own, or start an app that clients will run. So the SuperLink listens on
this machine alone, and this program passes on the calls of clients, which carry their keys' signatures.
"""

import argparse
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

CALLS = frozenset(  # of Flower's Fleet API; a client whose key is admitted needs no others
    {
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "get-fab",
        "push-object",
        "pull-object",
        "confirm-message-received",
    }
)
NOT_PASSED_ON = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding"})
SECONDS = 120.0  # that the SuperLink may take for one answer


def make_gate(upstream: str, ca: Path) -> "Starlette":
    """The web application that passes clients' calls on to the SuperLink at ``upstream``."""
    import httpx
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    trust = ssl.create_default_context(cafile=str(ca))
    unlimited = httpx.Limits(max_connections=None, max_keepalive_connections=20)
    link = httpx.AsyncClient(
        base_url=f"https://{upstream}", verify=trust, limits=unlimited, timeout=SECONDS, trust_env=False
    )

    async def forward(request: "Request") -> "Response":
        call = request.path_params["call"]
        if call not in CALLS:
            return PlainTextResponse("not for clients", 404)
        headers = [(name, value) for name, value in request.headers.items() if name not in NOT_PASSED_ON]
        headers.append(("accept-encoding", "identity"))
        try:
            answer = await link.post(f"/v1/fleet/{call}", content=await request.body(), headers=headers)
        except httpx.TransportError:
            return PlainTextResponse("the SuperLink is not there; try again", 503)
        kept = {name: value for name, value in answer.headers.items() if name not in NOT_PASSED_ON}
        return Response(answer.content, answer.status_code, kept)

    async def health(request: "Request") -> "Response":
        return PlainTextResponse("ok")

    return Starlette(
        routes=[
            Route("/v1/fleet/{call}", forward, methods=["POST"]),
            Route("/health", health, methods=["GET"]),
        ]
    )


def main(words: Sequence[str] | None = None) -> None:
    """Serves until it is told to stop."""
    import uvicorn

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True, help="host:port of the SuperLink")
    for name in ("--ca", "--certificate", "--key"):
        parser.add_argument(name, type=Path, required=True)
    given = parser.parse_args(words)
    uvicorn.run(
        make_gate(given.upstream, given.ca),
        host=given.host,
        port=given.port,
        ssl_certfile=given.certificate,
        ssl_keyfile=given.key,
        log_level="warning",
        access_log=False,
    )


if __name__ == "__main__":
    main()
