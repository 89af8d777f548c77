"""Addresses, host:port."""

from __future__ import annotations


def split_addr(addr: str) -> tuple[str, int] | None:
    """Returns host and port, or None if that is no address of a node."""
    host, colon, port = addr.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None  # IPv6 without brackets
    if not colon or not host or any(c in host for c in " \r\n\t/[]"):
        return None
    if not (port.isascii() and port.isdigit()) or len(port) > 5 or not 0 < int(port) < 1 << 16:
        return None
    return host, int(port)


def valid_addr(addr: str) -> bool:
    """Reports whether addr is host:port with a port from 1 to 65535."""
    return isinstance(addr, str) and split_addr(addr) is not None


def join_addr(host: str, port: str | int) -> str:
    """Returns host:port. Redis writes IPv6 addresses without brackets."""
    host = host.strip("[]")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
