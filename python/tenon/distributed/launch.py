"""The old name of torchrun: `python -m torch.distributed.launch`."""

from tenon.distributed.run import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
