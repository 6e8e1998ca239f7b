"""Prints the addresses of the sockets of a job's ranks and their launcher, which wait for others or
are connected. `test_places.py` starts it: ENGINE METHOD PORT."""

import os
import socket
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def sockets_of(process: int) -> set[str]:
    """Numbers of the sockets that a process has open."""
    links = [os.readlink(f) for f in Path(f"/proc/{process}/fd").iterdir() if f.is_symlink()]
    return {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}


def address_of(text: str) -> str:
    """`0100007F` is 127.0.0.1: words of four bytes, each as this machine stores it."""
    words = [int(text[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(text), 8)]
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, b"".join(words))


def addresses(process: int) -> list[str]:
    """Where a process can be reached."""
    own = sockets_of(process)
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        if (table := Path(f"/proc/{process}/net/{name}")).exists()
        for line in table.read_text().splitlines()[1:]
    ]
    return [address_of(r[1].split(":")[0]) for r in rows if r[9] in own]


store = dist.TCPStore("localhost", int(sys.argv[3]), 2, os.environ["RANK"] == "0")
dist.init_process_group(sys.argv[1], init_method=sys.argv[2])
group = dist.new_group([0, 1])
total = torch.ones(4)
dist.all_reduce(total, group=group)
dist.barrier()
assert total.tolist() == [2.0] * 4
found = addresses(os.getpid()) + addresses(os.getppid())
dist.barrier()
print(" ".join(["reached at", *found]) + "\n", end="", flush=True)  # whole lines in a shared pipe
del store
dist.destroy_process_group()
