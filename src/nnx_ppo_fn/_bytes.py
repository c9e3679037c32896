"""How much memory something takes, in words."""


def bytes_text(count: int) -> str:
    """A number of bytes: `512 bytes`, `1.5 MiB`."""
    size, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count:,} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
