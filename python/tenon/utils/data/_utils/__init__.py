"""Parts of DataLoader, by the names that packages import them from."""

from tenon.utils.data._utils import collate, fetch, pin_memory, worker

__all__ = ["collate", "fetch", "pin_memory", "worker"]
