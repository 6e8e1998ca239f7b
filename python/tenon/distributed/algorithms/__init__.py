"""Ways to exchange gradients."""
