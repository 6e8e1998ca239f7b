"""What PyTorch's launcher shares with the programs that it starts."""
