"""What is recorded, as Python sees it: Function, nodes, hooks, modes."""
