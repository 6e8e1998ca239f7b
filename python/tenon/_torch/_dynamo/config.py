"""Accepted and not used."""

from tenon._torch._settings import accept

accept(__name__)
