"""Certificates and keys of a federation: TLS proves the server to its clients, a key pair each client to it.

A client's operator makes the key pair and hands over the public half alone. Private keys are readable by
their owner only, and no file is ever overwritten: a lost key is cured by a new one, not by a silent swap.
"""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedcohort.util.errors import UserError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CA, CA_KEY = "ca.crt", "ca.key"
SERVER, SERVER_KEY = "server.crt", "server.key"
CLIENTS = "clients"  # the folder of the public keys that the server admits
LOOPBACK = ("localhost", "127.0.0.1")  # the server's own programs reach it here
DAYS = 397  # as long as browsers let a server's certificate live
AUTHORITY_DAYS = 3650
ALLOWED_CLOCK_SKEW = datetime.timedelta(minutes=10)


def write_certificates(folder: Path, hosts: Sequence[str], clients: int = 0) -> list[Path]:
    """An authority, the server's certificate for ``hosts`` and this machine, key pairs of this many clients.

    In a folder that has an authority and no certificate of a server (move an expired one away), the authority
    stays and signs the new one, so that clients keep the ``ca.crt`` they have.
    """
    _need_cryptography()
    keys = [folder / CLIENTS / f"client-{number}.key" for number in range(clients)]
    renewal = (folder / CA).exists() and not (folder / SERVER).exists()
    ours = [SERVER_KEY, SERVER] if renewal else [CA_KEY, CA, SERVER_KEY, SERVER]
    _refuse_existing(*(folder / name for name in ours), *keys)
    authority, authority_key = _read_authority(folder) if renewal else _make_authority()
    certificate, key = _make_server(authority, authority_key, list(dict.fromkeys([*hosts, *LOOPBACK])))
    written = []
    if not renewal:
        written.append(_write_private(folder / CA_KEY, _private_pem(authority_key)))
        written.append(_write(folder / CA, _certificate_pem(authority)))
    written.append(_write_private(folder / SERVER_KEY, _private_pem(key)))
    written.append(_write(folder / SERVER, _certificate_pem(certificate)))
    return written + [path for key_path in keys for path in write_key(key_path)]


def write_key(path: Path) -> list[Path]:
    """A client's key pair in OpenSSH's format: ``path`` stays there, ``.pub`` goes to the server."""
    _need_cryptography()
    from cryptography.hazmat.primitives import serialization as form

    key, public = _new_key(), path.with_suffix(".pub")
    _refuse_existing(path, public)
    secret = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    shared = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    return [_write_private(path, secret), _write(public, shared + b"\n")]


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise UserError("certificates need Flower's packages: pip install 'fedcohort[flower]'") from None


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


def _make_authority() -> "tuple[x509.Certificate, EllipticCurvePrivateKey]":
    from cryptography import x509

    key = _new_key()
    name = _name("fedcohort certificate authority")
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    builder = (
        _builder(name, name, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return _sign(builder, key), key


def _make_server(
    authority: "x509.Certificate", authority_key: "EllipticCurvePrivateKey", hosts: Sequence[str]
) -> "tuple[x509.Certificate, EllipticCurvePrivateKey]":
    from cryptography import x509

    key = _new_key()
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = (
        _builder(_name(hosts[0]), authority.subject, key, DAYS)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer, critical=False)
    )
    return _sign(builder, authority_key), key


def _builder(
    subject: "x509.Name", issuer: "x509.Name", key: "EllipticCurvePrivateKey", days: int
) -> "x509.CertificateBuilder":
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - ALLOWED_CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(identifier, critical=False)
    )


def _sign(builder: "x509.CertificateBuilder", key: "EllipticCurvePrivateKey") -> "x509.Certificate":
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA384())


def _name(common: str) -> "x509.Name":
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common[:64])])


def _alternative(host: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise UserError(f"--host {host}: give a DNS name in ASCII letters or an IP address") from None


def _read_authority(folder: Path) -> "tuple[x509.Certificate, EllipticCurvePrivateKey]":
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key((folder / CA_KEY).read_bytes(), None)
        authority = x509.load_pem_x509_certificate((folder / CA).read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            f"cannot sign with the authority in {folder} ({error}): choose an empty folder"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != authority.public_key():
        raise UserError(f"{folder / CA_KEY} is not the key of {CA}: choose an empty folder")
    return authority, key


def _certificate_pem(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _private_pem(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())


def _write_private(path: Path, content: bytes) -> Path:
    return _write(path, content, mode=0o600)


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise UserError(f"{path} exists already and is left as it is: choose another name or folder")


def _write(path: Path, content: bytes, mode: int = 0o644) -> Path:
    """Creates the file with these permissions from its first byte on; never opens an existing one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    except FileExistsError:
        _refuse_existing(path)
        raise
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; choose another folder") from None
    return path
