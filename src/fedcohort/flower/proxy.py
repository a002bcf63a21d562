"""The only door of a server that faces its clients: what clients need of the SuperLink, and nothing else.

Flower's SuperLink answers operators on the same port as clients, and asks operators for no password: whoever
reaches it may admit a key of their own, or start an app that clients will run. So the SuperLink listens on
this machine alone, and this program passes on the calls of clients. Headers carry the signature of a client's
key: of a stranger's call nothing else is read, and of a client's call nothing is kept.
"""

import argparse
import asyncio
import math
import ssl
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import h11
import httpx
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from fedcohort.flower.door import CHUNK, Door, Limits, Visit

OBJECT = 8 << 20  # bytes of a piece of a message: Flower cuts arrays into pieces of 5 MiB
ANSWER = 64 << 10  # bytes that announce an answer, 68 for each piece: what the server fetches at once
OTHER = 1 << 20  # bytes of any other call: who and what
CALLS = {  # of Flower's Fleet API, with the most bytes they bring; an admitted client needs no others
    b"/v1/fleet/activate-node": OTHER,
    b"/v1/fleet/deactivate-node": OTHER,
    b"/v1/fleet/send-node-heartbeat": OTHER,
    b"/v1/fleet/pull-messages": OTHER,
    b"/v1/fleet/push-messages": ANSWER,
    b"/v1/fleet/get-run": OTHER,
    b"/v1/fleet/get-fab": OTHER,
    b"/v1/fleet/push-object": OBJECT,
    b"/v1/fleet/pull-object": OTHER,
    b"/v1/fleet/confirm-message-received": OTHER,
}
HEADERS = 16 << 10  # bytes of all headers of a request
KEY, SIGNATURE, TIME = b"flwr-public-key", b"flwr-signature", b"flwr-timestamp"
EARLY, LATE = -5.0, 305.0  # seconds since a signature, as the SuperLink has it
NOT_PASSED_ON = frozenset({b"host", b"connection", b"transfer-encoding", b"accept-encoding"})
SECONDS = 120.0  # that the SuperLink may take for one answer
LOOK = 1.0  # seconds after which the folder of keys is read again


class Keys:
    """The public keys of the clients that are admitted, as a folder has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._keys: dict[bytes, ec.EllipticCurvePublicKey] = {}
        self._looked = -math.inf

    def signed(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether one of them signed this call, and lately."""
        try:
            key = self._now()[b64decode(headers[KEY], validate=True)]
            when = headers[TIME]
            key.verify(b64decode(headers[SIGNATURE], validate=True), when, ec.ECDSA(SHA256()))
            age = (datetime.now(UTC) - datetime.fromisoformat(when.decode("ascii"))).total_seconds()
        except (KeyError, ValueError, TypeError, InvalidSignature):
            return False
        return EARLY < age < LATE

    def _now(self) -> dict[bytes, ec.EllipticCurvePublicKey]:
        if time.monotonic() - self._looked > LOOK:
            self._looked, self._keys = time.monotonic(), {}
            for path in self.folder.glob("*.pub"):
                with suppress(OSError):  # it went while we looked
                    self._keys.update(_read_key(path.read_bytes()))
        return self._keys


@cache
def _read_key(text: bytes) -> dict[bytes, ec.EllipticCurvePublicKey]:
    """A public key by the bytes with which Flower's clients name it; nothing for what is none."""
    with suppress(ValueError, UnsupportedAlgorithm):
        key = form.load_ssh_public_key(text)
        if isinstance(key, ec.EllipticCurvePublicKey):
            return {key.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo): key}
    return {}


class Proxy:
    """Passes clients' calls on to the SuperLink at ``upstream``."""

    def __init__(self, upstream: str, ca: Path, keys: Keys) -> None:
        self.keys = keys
        self.link = httpx.AsyncClient(
            base_url=f"https://{upstream}",
            verify=ssl.create_default_context(cafile=str(ca)),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=2.0),
            timeout=SECONDS,
            trust_env=False,
        )

    async def receive(self, visit: Visit) -> None:
        """One request after the other, until one of both sides has enough."""
        http = h11.Connection(h11.SERVER, HEADERS)
        with suppress(h11.ProtocolError):  # it does not speak HTTP, or not as we do
            while await self._answer(http, visit):
                http.start_next_cycle()

    async def _answer(self, http: h11.Connection, visit: Visit) -> bool:
        """The next request, if there is one; true if another may follow."""
        visit.wait()
        request = await _next(http, visit)
        if not isinstance(request, h11.Request):
            return False
        headers = dict(request.headers)
        status, words = self._judge(request, headers)
        if words:
            if int(headers.get(b"content-length", HEADERS)) < HEADERS:
                await _skip_body(http, visit)  # who is still speaking may not hear the answer
            await _say(http, visit, status, words)
        else:
            visit.begin()
            await self._pass_on(http, visit, request)
        if http.our_state is h11.DONE:
            return True
        await visit.end()
        return False

    def _judge(self, request: h11.Request, headers: Mapping[bytes, bytes]) -> tuple[int, str]:
        """The answer to a request that is not passed on; no words if it is."""
        if (request.method, request.target) == (b"GET", b"/health"):
            return 200, "ok"
        if request.method != b"POST" or request.target not in CALLS:
            return 404, "not for clients"
        if not self.keys.signed(headers):
            return 401, "no key that is admitted has signed this"
        if b"content-length" not in headers or b"transfer-encoding" in headers:
            return 411, "say how long it is"
        most = CALLS[request.target]
        if int(headers[b"content-length"]) > most:
            return 413, f"more than {most} bytes"
        return 200, ""

    async def _pass_on(self, http: h11.Connection, visit: Visit, request: h11.Request) -> None:
        headers = [*_kept(request.headers), (b"accept-encoding", b"identity")]
        call = self.link.stream(
            "POST", request.target.decode("ascii"), headers=headers, content=_body(http, visit)
        )
        try:
            async with call as answer:
                start = h11.Response(status_code=answer.status_code, headers=_kept(answer.headers.raw))
                await _send(http, visit, start)
                async for piece in answer.aiter_raw(CHUNK):
                    await _send(http, visit, h11.Data(data=piece))
                await _send(http, visit, h11.EndOfMessage())
        except httpx.TransportError:
            if http.our_state is not h11.SEND_RESPONSE:
                raise ConnectionError("the SuperLink left before its answer was complete") from None
            await _say(http, visit, 503, "the SuperLink is not there; try again")


async def _next(http: h11.Connection, visit: Visit) -> object:
    while (event := http.next_event()) is h11.NEED_DATA:
        http.receive_data(await visit.read())
    return event


async def _body(http: h11.Connection, visit: Visit) -> AsyncIterator[bytes]:
    while isinstance(event := await _next(http, visit), h11.Data):
        yield bytes(event.data)


async def _skip_body(http: h11.Connection, visit: Visit) -> None:
    async for _ in _body(http, visit):
        continue


async def _send(http: h11.Connection, visit: Visit, event: h11.Event) -> None:
    await visit.write(http.send(event) or b"")


async def _say(http: h11.Connection, visit: Visit, status: int, words: str) -> None:
    """An answer of our own, and the last one."""
    headers = [("content-type", "text/plain"), ("content-length", str(len(words))), ("connection", "close")]
    await _send(http, visit, h11.Response(status_code=status, headers=headers))
    await _send(http, visit, h11.Data(data=words.encode()))
    await _send(http, visit, h11.EndOfMessage())


def _kept(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name.lower() not in NOT_PASSED_ON]


def main(words: Sequence[str] | None = None) -> None:
    """Serves until it is told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True, help="host:port of the SuperLink")
    for name in ("--ca", "--certificate", "--key", "--clients"):
        parser.add_argument(name, type=Path, required=True)
    for limit in fields(Limits):
        name = limit.name.replace("_", "-")
        parser.add_argument(f"--{name}", type=type(limit.default), default=limit.default)
    given = parser.parse_args(words)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(given.certificate, given.key)
    proxy = Proxy(given.upstream, given.ca, Keys(given.clients))
    limits = Limits(**{limit.name: getattr(given, limit.name) for limit in fields(Limits)})
    door = Door(limits, serving, proxy.receive, lambda line: print(line, flush=True))
    try:
        asyncio.run(door.stay_open(given.host, given.port))
    except OSError as error:
        raise SystemExit(f"cannot listen at {given.host}:{given.port}: {error.strerror}") from None


if __name__ == "__main__":
    main()
