"""Contents of a folder, to see that no code has written there."""


def written(folder):
    """Content and time of every file and folder."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted([folder, *folder.rglob("*")])
    }
