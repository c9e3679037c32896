"""Text that may stand in XML."""

import re


_IMPOSSIBLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def valid_xml(text: str) -> str:
    """The text with U+FFFD in the place of what XML 1.0 cannot hold.

    That is most control characters, and halves of a surrogate pair.
    """
    return _IMPOSSIBLE.sub("\ufffd", text)
