"""Parts of the `tenon` command."""
