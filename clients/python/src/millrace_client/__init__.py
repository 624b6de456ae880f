"""Streams of a Millrace server that go on after a broken connection or a restart."""

from .events import Event, attach, stream
from .resumption import Patience, StreamLost
from .transport import AsyncResumingTransport, ResumingTransport, async_http_client, http_client

__all__ = ["AsyncResumingTransport", "Event", "Patience", "ResumingTransport", "StreamLost"]
__all__ += ["async_http_client", "attach", "http_client", "stream"]
