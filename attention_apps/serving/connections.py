"""Limits on connections that uvicorn itself does not have."""

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from attention_apps.serving.server import ServingLimits

_MESSAGE = b'{"error":"Too many connections; try again later"}'
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(_MESSAGE), _MESSAGE)
)


class LimitedConnection(H11Protocol):
    """An HTTP connection that is closed when it keeps the server waiting, or when others need its place.

    A connection is idle until its request has arrived with the whole body. At the limit of connections, a new one
    takes the place of the one that has been idle for the longest time. So there is always room for a health check,
    and no request that has arrived is dropped.

    Args:
        limits: of the server.
        arguments: of uvicorn's own class.
    """

    def __init__(self, limits: "ServingLimits", **arguments: Any):
        super().__init__(**arguments)
        self.limits = limits
        self.since = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
        super().connection_made(transport)
        self._close_after(self.limits.header_timeout)
        per_peer, most = self.limits.max_connections_per_peer, self.limits.max_connections
        refused: Any = None
        is_open: list[Any] = []
        if per_peer is not None or len(self.connections) > most:
            is_open = [one for one in self.connections if not one.transport.is_closing()]
        peer = self.client and self.client[0]
        if per_peer is not None and sum((one.client and one.client[0]) == peer for one in is_open) > per_peer:
            refused = self
        elif len(is_open) > most:
            cycles = ((one, one.cycle) for one in is_open)
            idle = (one for one, cycle in cycles if cycle is None or cycle.response_complete or cycle.more_body)
            refused = min(idle, key=lambda one: one.since)
        if refused is not None:
            if refused.cycle is None or not refused.cycle.response_started:
                refused.transport.write(_REFUSAL)
            refused.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def handle_events(self) -> None:
        cycle = self.cycle
        super().handle_events()
        if self.cycle is not cycle:
            # The request has `timeout` seconds to be answered; a client that does not read the answer has as many.
            self._close_after(2 * self.limits.timeout)

    def on_response_complete(self) -> None:
        is_unread = self.transport.get_write_buffer_size() > 0
        self._close_after(self.limits.timeout if is_unread else self.limits.header_timeout)
        super().on_response_complete()

    def _close_after(self, seconds):
        """Abort the connection unless its state changes before."""
        self.since = self.loop.time()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self.transport.abort)
