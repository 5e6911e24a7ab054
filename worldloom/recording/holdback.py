"""Which bytes of an answer may pass on before the answer is stored: all but its end."""

import re

_END = re.compile(rb"^(data:[ ]?\[DONE\]|event:[ ]?(response\.(completed|failed|incomplete)|message_stop)[ ]*$)", re.M)
LONGEST_END_LINE = 64  # bytes


class Holdback:
    """Passes bytes on at once, except those without which a client cannot take the answer as whole.

    Of a stream of events these are the event that says that it ends (``[DONE]``, ``response.completed``, ...) and what
    follows; of an answer with a known length, the piece that completes it; of any other, each time the newest piece.

    Args:
        events: whether it is a stream of events.
        length: the answer's length in bytes, where it is known.
    """

    def __init__(self, events: bool, length: int | None):
        self._events, self._length = events, length
        self._line, self._seen, self._ending = b"", 0, False
        self.held = b""

    def pass_on(self, raw: bytes, said: bytes) -> bytes:
        """What may be sent now.

        Args:
            raw: the bytes that came.
            said: what they say without their content encoding.
        """
        self._seen += len(raw)
        if self._events:
            self._ending = self._ending or self._ends(said)
        elif self._length is not None:
            self._ending = self._seen >= self._length
        else:
            raw, self.held = self.held, raw
            return raw
        if self._ending:
            self.held += raw
            return b""
        return raw

    def _ends(self, said: bytes) -> bool:
        text = (self._line + said).replace(b"\r", b"\n")
        line = text.rpartition(b"\n")[2]
        self._line = line if len(line) <= LONGEST_END_LINE else b"-"
        return _END.search(text) is not None
