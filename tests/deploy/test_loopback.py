"""The proof that nothing leaves the machine is one that can fail."""

import os
import socket
import subprocess
import sys

import pytest

from support.loopback import foreign, foreign_peers, own_network

OUT = """
import contextlib, socket
with contextlib.suppress(OSError):
    socket.create_connection(("192.0.2.1", 443), timeout=1)
"""
LOOK_UP = """
import contextlib, socket
with contextlib.suppress(OSError):
    socket.getaddrinfo("telemetry.example.org", 443)
"""
WITHIN = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(("localhost", server.getsockname()[1])).close()
"""
LISTEN = """
import socket, sys
with socket.create_server(("127.0.0.1", 7)):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def network():
    with own_network() as network:
        if network.holder is None:
            pytest.skip("this system permits no network of its own")
        yield network


@pytest.mark.parametrize(("code", "counted"), [(WITHIN, False), (OUT, True), (LOOK_UP, True)])
def test_an_attempt_to_leave_is_counted(network, code, counted):
    subprocess.run(network.command([sys.executable, "-c", code]), check=True)
    assert bool(network.attempts()) == counted
    assert not network.listening()


def test_a_listener_is_seen(network):
    words = network.command([sys.executable, "-c", LISTEN])
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        assert network.listening() == {7}
        holder.communicate(b"")


def test_sockets_to_other_machines_are_named():
    """As the kernel writes them: 192.0.2.1, 127.0.0.1, 2001:db8::1, ::1 and 127.0.0.1 in IPv6's clothes."""
    rows = [
        ("010200C0:01BB", "1"),
        ("0100007F:01BB", "2"),
        ("B80D0120000000000000000001000000:01BB", "3"),
        ("00000000000000000000000001000000:01BB", "4"),
        ("0000000000000000FFFF00000100007F:01BB", "5"),
        ("00000000:0000", "6"),
        ("010200C0:01BB", "99"),
    ]
    lines = [f"0: 00000000:0001 {peer} 02 0:0 0:0 0 0 0 {inode}" for peer, inode in rows]
    table = "\n".join(["header", *lines])
    assert foreign(table, {"1", "2", "3", "4", "5", "6"}) == {"192.0.2.1", "2001:db8::1"}
    assert foreign(table, {"2"}) == set()


def test_our_own_sockets_are_found():
    """Connecting a UDP socket sends nothing; it needs a way to that network, which not every machine has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("no way out of this machine")
        assert foreign_peers([os.getpid()]) == {"192.0.2.1"}
