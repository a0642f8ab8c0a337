"""The command line of convgrad."""
