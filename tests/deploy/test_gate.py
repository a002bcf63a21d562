"""The door for clients: their calls pass unchanged, an operator's never do."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import httpx
import pytest

from fedcohort.flower.certs import write_certificates
from fedcohort.flower.gate import make_gate


class Link(BaseHTTPRequestHandler):
    """A SuperLink that answers with what it was asked."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(401 if "forged" in self.headers["x-signature"] else 200)
        self.send_header("content-type", "application/x-protobuf")
        self.end_headers()
        self.wfile.write(f"{self.path} {self.headers['x-signature']} ".encode() + body)

    def log_message(self, *_):
        pass


def call(app, path, content=b"", method="POST", signature="mine"):
    """One request to the gate, without a network on this side of it."""

    async def ask():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="https://gate") as client:
            return await client.request(method, path, content=content, headers={"x-signature": signature})

    return asyncio.run(ask())


@pytest.fixture
def gate(tmp_path):
    write_certificates(tmp_path, [])
    link = HTTPServer(("127.0.0.1", 0), Link)
    serving = SSLContext(PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    link.socket = serving.wrap_socket(link.socket, server_side=True)
    threading.Thread(target=link.serve_forever, daemon=True).start()
    yield make_gate(f"127.0.0.1:{link.server_port}", tmp_path / "ca.crt")
    link.shutdown()
    link.server_close()


def test_a_clients_call_passes_with_its_signature_and_so_does_the_answer(gate):
    answer = call(gate, "/v1/fleet/pull-messages", b"\x00body")
    assert answer.status_code == 200
    assert answer.content == b"/v1/fleet/pull-messages mine \x00body"
    assert answer.headers["content-type"] == "application/x-protobuf"


def test_a_refusal_passes_too(gate):
    assert call(gate, "/v1/fleet/pull-messages", signature="forged").status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/runtime/acquire-task",
        "/v1/fleet/register-node",
        "/v1/fleet/%2e%2e%2fcontrol%2fstart-run",
        "/v1/fleet//../control/start-run",
        "/docs",
    ],
)
def test_an_operators_call_never_passes(gate, path):
    assert call(gate, path).status_code == 404


def test_a_client_is_told_to_try_again_while_the_superlink_is_away(tmp_path):
    """503 is one of the answers after which Flower's client tries again."""
    write_certificates(tmp_path, [])
    gate = make_gate("127.0.0.1:1", tmp_path / "ca.crt")
    assert call(gate, "/v1/fleet/pull-messages").status_code == 503


def test_anybody_may_ask_whether_the_gate_is_there(gate):
    assert call(gate, "/health", method="GET").status_code == 200
