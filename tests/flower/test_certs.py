"""Certificates: what they prove, to whom, and that no secret is readable or replaced."""

import ipaddress
import socket
import ssl
import sys
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedcohort.flower.certs import write_certificates, write_key
from fedcohort.util.errors import UserError


def handshake(certs, ca, name):
    """A real TLS handshake between a server with ``certs`` and a client that trusts ``ca``."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certs / "server.crt", certs / "server.key")
    trusting = ssl.create_default_context(cafile=ca)
    ours, theirs = socket.socketpair()

    def serve():
        try:
            serving.wrap_socket(theirs, server_side=True).close()
        except OSError:
            theirs.close()

    other_side = threading.Thread(target=serve)
    other_side.start()
    try:
        with trusting.wrap_socket(ours, server_hostname=name) as secure:
            return secure.version()
    finally:
        ours.close()
        other_side.join()


def test_a_client_with_the_authority_trusts_the_server_by_name_and_address(tmp_path):
    write_certificates(tmp_path, ["fl.example.org", "192.0.2.7"])
    for name in ("fl.example.org", "192.0.2.7", "localhost", "127.0.0.1"):
        assert handshake(tmp_path, tmp_path / "ca.crt", name) == "TLSv1.3"


def test_a_server_of_another_name_or_another_authority_is_refused(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write_certificates(ours, ["fl.example.org"])
    write_certificates(theirs, ["fl.example.org"])
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(ours, ours / "ca.crt", "other.example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(theirs, ours / "ca.crt", "fl.example.org")


def test_secrets_are_their_owners_alone(tmp_path):
    written = write_certificates(tmp_path, [], clients=2)
    readable_by_others = {path.name for path in written if path.stat().st_mode & 0o077}
    assert readable_by_others == {"ca.crt", "server.crt", "client-0.pub", "client-1.pub"}


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path):
    write_certificates(tmp_path, [])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"ca\.key exists already"):
        write_certificates(tmp_path, [], clients=1)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_renewed_certificate_is_trusted_by_the_old_authority(tmp_path):
    write_certificates(tmp_path, ["old.example.org"])
    authority = (tmp_path / "ca.crt").read_bytes()
    for name in ("server.crt", "server.key"):
        (tmp_path / name).unlink()
    write_certificates(tmp_path, ["new.example.org"])
    assert (tmp_path / "ca.crt").read_bytes() == authority
    assert handshake(tmp_path, tmp_path / "ca.crt", "new.example.org")


def test_the_server_is_no_authority_and_its_names_are_alternatives(tmp_path):
    """Clients check the subject's alternative names; browsers and Flower ignore the common name."""
    write_certificates(tmp_path, ["fl.example.org"])
    server = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_clients_two_files_are_one_pair_as_ssh_writes_it(tmp_path):
    private, public = write_key(tmp_path / "hospital-a.key")
    key = load_ssh_private_key(private.read_bytes(), None)
    assert key.public_key() == load_ssh_public_key(public.read_bytes())
    assert public.read_text().startswith("ecdsa-sha2-nistp384 ")
    with pytest.raises(UserError, match="exists already"):
        write_key(tmp_path / "hospital-a.key")


def test_without_flowers_packages_there_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for write in (lambda: write_certificates(tmp_path, []), lambda: write_key(tmp_path / "a.key")):
        with pytest.raises(UserError, match=r"pip install 'fedcohort\[flower\]'"):
            write()
    assert not list(tmp_path.iterdir())


def test_a_host_that_no_certificate_can_name_is_refused(tmp_path):
    with pytest.raises(UserError, match="DNS name"):
        write_certificates(tmp_path, ["spital-zürich.example"])
    assert not list(tmp_path.iterdir())
