"""Nothing here is collected: these are scripts, which import one another from their own folder."""

collect_ignore_glob = ["*.py"]
