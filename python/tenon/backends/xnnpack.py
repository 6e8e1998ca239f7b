"""Asked by programs that look for XNNPACK; it is not used here."""

enabled = False
