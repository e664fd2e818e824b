"""Holds the settings of a client: addresses, TLS and credentials, and how they are read from the environment."""

import ipaddress
import os
import re
import socket
import ssl
import sys
from typing import Callable, List, Mapping, Optional, Sequence, Tuple, Union

from ._lease_timing import LeaseTiming
from .errors import Invalid

DEFAULT_ADDRESS = "127.0.0.1:7450"
_API_KEY = re.compile(r"tenure_[0-9a-f]{16}_[0-9a-f]{64}\Z")
# Members refuse longer headers.
_TOKEN_MAX = 8 * 1024

PathLike = Union[str, "os.PathLike[str]"]


class Credentials:
    """What the client proves its identity with, and where it may send it. Its representation has no secret."""

    def __init__(self, api_key: Optional[str], token_file: Optional[PathLike], insecure: bool) -> None:
        self._key = None if api_key is None else api_key.strip()
        if self._key is not None and not _API_KEY.match(self._key):
            raise Invalid("INVALID_API_KEY", "it is no API key: those are `tenure_`, 16 hexadecimal digits, `_` and 64 more")
        self._file = token_file
        self._insecure = insecure

    def __repr__(self) -> str:
        if self._key is not None:
            return "<an API key>"
        return "<none>" if self._file is None else f"<the token in {os.fspath(self._file)}>"

    def authorization(self) -> Optional[str]:
        """The value of the header `Authorization`. A token file is read again for every connection."""
        if self._key is not None:
            return f"Bearer {self._key}"
        if self._file is None:
            return None
        with open(self._file, encoding="utf-8") as file:
            token = file.read().strip()
        if not token or len(token) > _TOKEN_MAX or not all("!" <= it <= "~" for it in token):
            raise OSError(f"there is no token in {os.fspath(self._file)}")
        return f"Bearer {token}"

    def may_not_go_to(self, address: str, tls: bool) -> Optional[str]:
        """Returns why they may not be sent to an address: not under TLS, and not on this machine."""
        if (self._key is None and self._file is None) or tls or self._insecure or _is_loopback(address):
            return None
        return (
            f"credentials are not sent to {address} in plain text: "
            "use TLS (`ca_file` or TENURE_CA), or say `insecure_credentials=True`"
        )


class Settings:
    """The settings of one client."""

    def __init__(
        self,
        addresses: Union[str, Sequence[str], None] = None,
        *,
        name: Optional[str] = None,
        api_key: Optional[str] = None,
        token_file: Optional[PathLike] = None,
        insecure_credentials: bool = False,
        ca_file: Optional[PathLike] = None,
        cert_file: Optional[PathLike] = None,
        key_file: Optional[PathLike] = None,
        ttl: float = 15.0,
        window: Optional[float] = None,
        grace: float = 0.0,
        timeout: float = 10.0,
        traceparent: Optional[Callable[[], Optional[str]]] = None,
    ) -> None:
        self.name = name or own_name()
        self.credentials = Credentials(api_key, token_file, insecure_credentials)
        self._ca = ca_file
        if (cert_file is None) != (key_file is None):
            raise Invalid("INVALID_FIELD", "`cert_file` and `key_file` go together")
        if cert_file is not None and ca_file is None:
            raise Invalid("INVALID_FIELD", "a certificate is of no use without an authority: `ca_file`")
        self._identity = None if cert_file is None or key_file is None else (cert_file, key_file)
        self._context: Optional[ssl.SSLContext] = None
        self.is_tls = ca_file is not None
        self.addresses = self._read_addresses(addresses)
        self.ttl, self.window, self.grace = ttl, window, grace
        self.traceparent = traceparent
        self.timeout_us = us(timeout, "timeout")
        # Refuses times that do not fit each other before anything is sent.
        self.timing(None, None, None)
        if self.is_tls:
            self.tls_context()

    def timing(self, ttl: Optional[float], window: Optional[float], grace: Optional[float]) -> LeaseTiming:
        """The times of a lease, from what the request says or else the client."""
        length = window if window is not None else (self.window if ttl is None else None)
        return LeaseTiming(
            us(self.ttl if ttl is None else ttl, "ttl"),
            None if length is None else us(length, "window"),
            us(self.grace if grace is None else grace, "grace"),
        )

    def tls_context(self) -> Optional[ssl.SSLContext]:
        """The TLS configuration of the files as they are now, or the previous one if they cannot be used any more."""
        if self._ca is None:
            return None
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.load_verify_locations(cafile=os.fspath(self._ca))
            if self._identity is not None:
                context.load_cert_chain(*(os.fspath(path) for path in self._identity))
        except (OSError, ssl.SSLError) as error:
            if self._context is None:
                files = ", ".join(os.fspath(path) for path in (self._ca, *(self._identity or ())))
                raise Invalid("INVALID_FIELD", f"cannot use the certificates in {files}: {error}") from None
            return self._context
        self._context = context
        return context

    def _read_addresses(self, addresses: Union[str, Sequence[str], None]) -> List[str]:
        if isinstance(addresses, str):
            addresses = [it.strip() for it in addresses.split(",") if it.strip()]
        found = []
        for address in addresses or [DEFAULT_ADDRESS]:
            bare, wants_tls = _split_scheme(address)
            # All sessions use TLS or none does: a mix would be worse than plain text everywhere.
            if wants_tls is True and not self.is_tls:
                raise Invalid("INVALID_FIELD", f"{address} needs an authority: `ca_file`")
            if wants_tls is False and self.is_tls:
                raise Invalid("INVALID_FIELD", f"{address} is in plain, but `ca_file` is set")
            host, _, port = bare.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise Invalid("INVALID_FIELD", f"{address} is no address: those are `host:port`")
            unsent = self.credentials.may_not_go_to(bare, self.is_tls)
            if unsent is not None:
                raise Invalid("UNAUTHENTICATED", unsent)
            found.append(bare)
        return found


class FromEnv(dict):  # type: ignore[type-arg]
    """The arguments that the environment gives, as the Rust SDK reads them.

    `TENURE_ADDR` has addresses separated by commas; `TENURE_CA`, `TENURE_CERT` and `TENURE_KEY` name files;
    `TENURE_API_KEY` is an API key, or else `TENURE_API_KEY_FILE` names a file that has one, or else `TENURE_TOKEN_FILE`
    names a file with a bearer token.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__()

        def given(name: str) -> Optional[str]:
            return environment.get(name) or None

        self["addresses"] = given("TENURE_ADDR")
        self["ca_file"] = given("TENURE_CA")
        if given("TENURE_CERT") and given("TENURE_KEY"):
            self["cert_file"], self["key_file"] = given("TENURE_CERT"), given("TENURE_KEY")
        key, key_file = given("TENURE_API_KEY"), given("TENURE_API_KEY_FILE")
        if key is None and key_file is not None:
            try:
                with open(key_file, encoding="utf-8") as file:
                    key = file.read()
            except OSError as error:
                raise Invalid("INVALID_API_KEY", f"cannot read {key_file}: {error}") from None
        if key is not None:
            self["api_key"] = key
        elif given("TENURE_TOKEN_FILE"):
            self["token_file"] = given("TENURE_TOKEN_FILE")


def us(seconds: float, what: str) -> int:
    """Microseconds. Refuses what is no duration."""
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 <= seconds < 1e12:
        raise Invalid("INVALID_FIELD", f"`{what}` is a number of seconds, not {seconds!r}")
    return round(seconds * 1e6)


def own_name() -> str:
    """The names of the program and the host, and the process id, as in `billing@web-3/4121`."""
    program = os.path.basename(sys.argv[0] if sys.argv else "") or "python"
    return f"{program}@{socket.gethostname() or 'unnamed'}/{os.getpid()}"


def _split_scheme(address: str) -> Tuple[str, Optional[bool]]:
    scheme, found, rest = address.partition("://")
    if found and scheme in ("http", "https"):
        return rest.rstrip("/"), scheme == "https"
    return address.rstrip("/"), None


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
