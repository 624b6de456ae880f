"""Streams of a Millrace server that go on after a broken connection or a restart."""

from .events import Event as Event, attach as attach, stream as stream
from .resumption import Patience as Patience, StreamLost as StreamLost
from .transport import AsyncResumingTransport as AsyncResumingTransport, ResumingTransport as ResumingTransport
from .transport import async_http_client as async_http_client, http_client as http_client
