"""The door for clients: their calls pass unchanged, an operator's never do, and nobody can block it."""

import asyncio
import contextlib
import re
import resource
import socket
import ssl
import subprocess
import sys
import threading
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.supercore.primitives.asymmetric import sign_message
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedcohort.flower import proxy
from fedcohort.flower.certs import write_certificates, write_key
from fedcohort.flower.door import EACH, MOST, RESERVE, open_files, origin
from fedcohort.flower.processes import free_port

HOME, ELSEWHERE = "127.0.0.1", "127.0.0.2"  # two addresses of this machine
FILES, PER_ADDRESS, HEAD, PATIENCE = 256, 20, 1.0, 1.5
LATE = 5.0  # seconds that a busy machine may add
MEGABYTE = 1 << 20
MUCH = 32 * MEGABYTE
PULL, PUSH = "/v1/fleet/pull-object", "/v1/fleet/push-object"


class Link(BaseHTTPRequestHandler):
    """A SuperLink that says what it was asked, and that has a large answer for those who want one."""

    protocol_version = "HTTP/1.1"
    heard = 0  # bytes of bodies
    counting = threading.Lock()
    cut = threading.Event()  # an answer could not be delivered
    free = threading.Event()  # to answer those who wish to wait

    def do_POST(self):
        length, body, wish = int(self.headers["content-length"]), bytearray(), self.headers.get("x-wish")
        while len(body) < length and (piece := self.rfile.read1(min(65536, length - len(body)))):
            body += piece
            with Link.counting:
                Link.heard += len(piece)
        if wish == "wait":
            Link.free.wait(10)
        answer = f"{self.path} {wish} ".encode() + bytes(body[:100])
        if wish == "much":
            answer = bytes(MUCH)
        with contextlib.suppress(OSError):
            self.send_response(401 if wish == "refusal" else 200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            return
        Link.cut.set()

    def log_message(self, *_):
        pass


class Proxy:
    """A gate that runs, and ways to reach it."""

    def __init__(self, certs: Path, of_link: Path | None = None) -> None:
        self.certs, self.port, of_link = certs, free_port(), of_link or certs
        self.trust = ssl.create_default_context(cafile=certs / "ca.crt")
        self.link = ThreadingHTTPServer((HOME, 0), Link)
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(of_link / "server.crt", of_link / "server.key")
        self.link.socket = serving.wrap_socket(self.link.socket, server_side=True)
        threading.Thread(target=self.link.serve_forever, daemon=True).start()

    def start(self) -> None:
        words = [
            sys.executable,
            "-m",
            "fedcohort.flower.proxy",
            "--host",
            "0.0.0.0",
            "--port",
            str(self.port),
        ]
        words += ["--upstream", f"{HOME}:{self.link.server_port}", "--clients", str(self.certs / "clients")]
        words += ["--ca", str(self.certs / "ca.crt"), "--certificate", str(self.certs / "server.crt")]
        words += ["--key", str(self.certs / "server.key"), "--per-address", str(PER_ADDRESS)]
        words += ["--head", str(HEAD), "--patience", str(PATIENCE), "--rate", "1e6"]
        few = (FILES // 2, FILES)  # it may raise its limit from the first to the second
        self.process = subprocess.Popen(
            words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few)
        )
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                assert self.ask("/health", method="GET").text == "ok"
                return
            time.sleep(0.05)
        raise AssertionError("the gate did not start")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        self.link.shutdown()
        self.link.server_close()

    def signed(self, key: Path | None = None, at: str = "") -> dict[str, str]:
        """The headers with which Flower's client says who it is, now or at another time."""
        private = load_ssh_private_key((key or self.certs / "clients/client-0.key").read_bytes(), None)
        request = httpx.Request("POST", "https://gate")
        context = ProtobufRequestContext("", None, request)
        NodeAuthHttpInterceptor(private, private.public_key()).intercept(context, lambda _: None)
        if at:
            request.headers["flwr-timestamp"] = at
            request.headers["flwr-signature"] = b64encode(sign_message(private, at.encode())).decode()
        return {name: value for name, value in request.headers.items() if name.startswith("flwr-")}

    def ask(self, path=PULL, content=b"", method="POST", **headers) -> httpx.Response:
        """One request as an honest client sends it."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        with httpx.Client(verify=self.trust, timeout=10) as client:
            url = f"https://{HOME}:{self.port}{path}"
            return client.request(method, url, content=content, headers={**self.signed(), **headers})

    def connect(self, source: str = ELSEWHERE) -> socket.socket:
        return socket.create_connection((HOME, self.port), timeout=10, source_address=(source, 0))

    def connect_tls(self, source: str = ELSEWHERE) -> ssl.SSLSocket:
        return self.trust.wrap_socket(self.connect(source), server_hostname=HOME)

    def head(self, path: str, length: int | str, headers: dict[str, str]) -> bytes:
        lines = [f"POST {path} HTTP/1.1", "host: gate", f"content-length: {length}"]
        return "\r\n".join(
            [*lines, *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        ).encode()

    def memory(self, field: str) -> int:
        """In bytes: VmRSS now, VmHWM at most so far."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+) kB", text)[1]) * 1024


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    certs = tmp_path_factory.mktemp("certs")
    write_certificates(certs, [], clients=1)
    gate = Proxy(certs)
    try:
        gate.start()
        yield gate
    finally:
        gate.stop()


def seconds_until_closed(connection: socket.socket, send: bytes = b"", pause: float = 0.1) -> float:
    """How long the other side bears with somebody who says next to nothing, and takes nothing."""
    began = time.monotonic()
    connection.settimeout(pause)
    while time.monotonic() - began < 2 * LATE:
        try:
            connection.sendall(send)
            if not connection.recv(4096):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    connection.close()
    return time.monotonic() - began


def status(connection: ssl.SSLSocket) -> bytes:
    """Of the answer; nothing if there is none."""
    with contextlib.suppress(OSError):
        return connection.recv(4096).split(b" ")[1]
    return b""


def test_a_clients_call_passes_and_so_does_the_answer(gate):
    answer = gate.ask("/v1/fleet/pull-messages", b"\x00body", x_wish="mine")
    assert answer.status_code == 200
    assert answer.content == b"/v1/fleet/pull-messages mine \x00body"
    assert answer.headers["content-type"] == "application/x-protobuf"


def test_one_connection_serves_many_calls(gate):
    with httpx.Client(verify=gate.trust) as client:
        for number in range(3):
            answer = client.post(
                f"https://{HOME}:{gate.port}{PULL}", content=f"{number}", headers=gate.signed()
            )
            assert answer.text.endswith(f" {number}")
        (connection,) = client._transport._pool.connections
        assert connection.info().endswith("Request Count: 3")


def test_a_refusal_passes_too(gate):
    assert gate.ask(x_wish="refusal").status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/runtime/acquire-task",
        "/v1/fleet/register-node",
        "/v1/fleet/%2e%2e%2fcontrol%2fstart-run",
        "/v1/fleet//../control/start-run",
        "/v1/fleet/pull-messages/../../control/start-run",
        "/docs",
    ],
)
def test_an_operators_call_never_passes(gate, path):
    heard = Link.heard
    assert gate.ask(path, b"body").status_code == 404
    assert Link.heard == heard


def test_nothing_passes_to_a_superlink_of_another_authority(gate, tmp_path):
    """Whoever took its port on this machine: the client is told to try again, and its call is not heard."""
    write_certificates(tmp_path, [], clients=0)
    impostor, heard = Proxy(gate.certs, tmp_path), Link.heard
    impostor.start()
    try:
        assert impostor.ask(PUSH, b"body").status_code == 503
        assert Link.heard == heard
    finally:
        impostor.stop()


def test_a_strangers_call_never_passes(gate, tmp_path):
    """With a key that nobody admitted, an admitted key whose signature is another's, or is old or of the
    future."""
    stranger, _ = write_key(tmp_path / "stranger.key")
    mine, theirs, old = gate.signed(), gate.signed(stranger), gate.signed(at="2026-01-01T00:00:00+00:00")
    heard = Link.heard
    for headers in (
        theirs,
        {**mine, "flwr-signature": theirs["flwr-signature"]},
        old,
        gate.signed(at="2999-01-01T00:00:00+00:00"),
        {**mine, "flwr-timestamp": old["flwr-timestamp"]},
        {**mine, "flwr-timestamp": "yesterday"},
        {**mine, "flwr-signature": "%"},
    ):
        assert gate.ask(PUSH, b"body", **headers).status_code == 401
    assert Link.heard == heard


def test_a_client_is_refused_from_the_moment_its_key_is_gone(gate):
    key, public = write_key(gate.certs / "clients/late.key")
    time.sleep(1.1)  # the folder is read once a second
    assert gate.ask(**gate.signed(key)).status_code == 200
    public.unlink()
    time.sleep(1.1)
    assert gate.ask(**gate.signed(key)).status_code == 401


def test_a_client_is_told_to_try_again_while_the_superlink_is_away(gate, tmp_path):
    """503 is one of the answers after which Flower's client tries again."""
    away = Proxy(gate.certs)
    away.link.shutdown()
    away.link.server_close()
    away.start()
    try:
        assert away.ask("/v1/fleet/pull-messages").status_code == 503
    finally:
        away.process.terminate()
        away.process.wait(10)


@pytest.mark.parametrize("known", [True, False])
def test_a_body_of_two_hundred_megabytes_costs_no_memory(gate, known):
    """Its sender pushes as hard as it can, declared or in pieces without an end."""
    before, heard = gate.memory("VmRSS"), Link.heard
    signed = gate.signed() if known else {}
    for length, pieces in ((200 * MEGABYTE, ""), ("", "chunked")):
        head = gate.head(PUSH, length, {**signed, **({"transfer-encoding": pieces} if pieces else {})})
        if pieces:
            head = head.replace(b"content-length: \r\n", b"")
        with gate.connect_tls() as flood:
            flood.sendall(head)
            piece = bytes(MEGABYTE)
            with contextlib.suppress(OSError):
                for _ in range(200):
                    flood.sendall(b"100000\r\n" + piece + b"\r\n" if pieces else piece)
    assert gate.ask().status_code == 200
    assert gate.memory("VmRSS") - before < 8 * MEGABYTE
    assert Link.heard == heard


@pytest.mark.parametrize(
    ("path", "length", "known", "answer"),
    [
        (PUSH, 9 * MEGABYTE, True, b"413"),
        ("/v1/fleet/push-messages", 70_000, True, b"413"),  # would announce a thousand pieces
        (PUSH, 9 * MEGABYTE, False, b"401"),
        (PUSH, 5 * MEGABYTE, False, b"401"),
    ],
)
def test_a_call_that_is_too_long_or_a_strangers_is_refused_by_its_headers(gate, path, length, known, answer):
    with gate.connect_tls() as connection:
        connection.sendall(gate.head(path, length, gate.signed() if known else {}))
        assert status(connection) == answer


@pytest.mark.parametrize("line", ["HEAD / HTTP/1.1", "HEAD /health HTTP/1.1", "nonsense", "GET / HTTP/9.9"])
def test_a_request_that_nobody_makes_is_no_error_of_ours(gate, line):
    """A traceback for each would fill the log of the server, at the wish of a stranger."""

    said = [f"{line}\r\nhost: gate\r\n\r\n".encode(), b""]

    class Stranger:
        async def read(self):
            return said.pop(0)

        async def write(self, data):
            pass

        async def end(self):
            pass

        def wait(self):
            pass

    passed_on = proxy.Proxy("localhost:1", gate.certs / "ca.crt", proxy.Keys(gate.certs))
    assert asyncio.run(passed_on.receive(Stranger())) is None


def test_a_call_that_does_not_say_how_long_it_is_is_refused(gate):
    """Nor may it say so twice, for two readers may then disagree on where the next call begins."""
    pieces = {"transfer-encoding": "chunked", **gate.signed()}
    with gate.connect_tls() as connection:
        connection.sendall(gate.head(PUSH, 4, pieces) + b"0\r\n\r\n")
        assert status(connection) == b"411"
    with gate.connect_tls() as connection:
        connection.sendall(gate.head(PUSH, 4, pieces).replace(b"content-length: 4\r\n", b""))
        assert status(connection) == b"411"


def test_what_passes_is_not_kept(gate):
    """Five pieces of the largest size at a time, then an answer that is larger still."""
    before, heard = gate.memory("VmHWM"), Link.heard
    with ThreadPoolExecutor(5) as clients:
        answers = clients.map(lambda _: gate.ask(PUSH, bytes(8 * MEGABYTE)), range(5))
        assert [answer.status_code for answer in answers] == [200] * 5
    assert Link.heard - heard == 40 * MEGABYTE
    assert len(gate.ask(x_wish="much").content) == MUCH
    assert gate.memory("VmHWM") - before < 10 * MEGABYTE


@pytest.mark.parametrize("source", [HOME, ELSEWHERE])
def test_three_hundred_idle_connections_shut_nobody_out(gate, source):
    """Of the honest client's own address, too: those who say nothing make room for those who come."""
    with contextlib.ExitStack() as held:
        for _ in range(300):
            with contextlib.suppress(OSError):
                held.enter_context(gate.connect(source))
        began = time.monotonic()
        assert gate.ask().status_code == 200
        assert time.monotonic() - began < LATE


def test_idle_connections_of_many_addresses_leave_files_to_open(gate):
    """From 127.0.0.2 to 127.0.0.31, ten each, with and without a handshake: more than there may be files."""
    with contextlib.ExitStack() as held:
        for number in range(300):
            connect = gate.connect_tls if number % 10 == 0 else gate.connect
            with contextlib.suppress(OSError):
                held.enter_context(connect(f"127.0.0.{2 + number % 30}"))
        files = len(list(Path(f"/proc/{gate.process.pid}/fd").iterdir()))
        assert FILES / 4 < files < FILES / 2 + 20
        began = time.monotonic()
        assert gate.ask().status_code == 200
        assert time.monotonic() - began < LATE


def test_who_says_nothing_is_dropped(gate):
    assert HEAD / 2 < seconds_until_closed(gate.connect()) < HEAD + LATE
    assert HEAD / 2 < seconds_until_closed(gate.connect_tls()) < HEAD + LATE


def test_who_sends_headers_byte_by_byte_is_dropped(gate):
    connection = gate.connect_tls()
    connection.sendall(b"POST /v1/fleet/pull-object HTTP/1.1\r\nx-name: ")
    assert HEAD / 2 < seconds_until_closed(connection, b"a") < HEAD + LATE


def test_who_sends_a_body_byte_by_byte_is_dropped(gate):
    connection = gate.connect_tls()
    connection.sendall(gate.head(PUSH, 1000, gate.signed()))
    assert PATIENCE / 2 < seconds_until_closed(connection, b"a") < PATIENCE + LATE


def test_a_stranger_who_sends_a_body_byte_by_byte_is_dropped_sooner(gate):
    connection = gate.connect_tls()
    connection.sendall(gate.head(PUSH, 1000, {}))
    assert seconds_until_closed(connection, b"a") < HEAD + LATE


def test_who_does_not_read_its_answer_is_dropped(gate):
    Link.cut.clear()
    with gate.connect_tls() as connection:
        connection.sendall(gate.head(PULL, 0, {**gate.signed(), "x-wish": "much"}))
        assert Link.cut.wait(PATIENCE + LATE)


def test_an_address_has_its_share_and_no_more(gate):
    """Where all are busy the next one is refused, by a reset, after which Flower's client tries again."""
    Link.free.clear()
    with contextlib.ExitStack() as held:
        for _ in range(PER_ADDRESS):
            busy = held.enter_context(gate.connect_tls())
            busy.sendall(gate.head(PULL, 0, {**gate.signed(), "x-wish": "wait"}))
        time.sleep(0.2)
        with pytest.raises(ConnectionResetError), gate.connect() as refused:
            refused.recv(1)
        assert gate.ask().status_code == 200
        Link.free.set()
        assert status(busy) == b"200"


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_what_counts_as_one_address(address, counted):
    assert origin(address) == counted


def test_a_system_without_limits_has_room_for_all(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)  # as in Windows
    assert (open_files() - RESERVE) // EACH == MOST
