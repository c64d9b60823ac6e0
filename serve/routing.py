"""Serve's request router of a judge whose engines run in its replicas: queries stay together.

Serve runs it in the process that holds the handle. What it decides is ``serve/affinity.py``; loads
are those that Serve's router keeps: what a replica said last, and what was sent and came back
since. A replica is full here when its engine's places are taken, however many more calls Serve
would let in. A call without a query id goes to the replica that has least to do.
"""

import asyncio
from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from serve.affinity import tries


class QueryAffinityRouter(RequestRouter):
    """Sends the calls of a query to one replica, while that is not busier than the others."""

    _places: int

    def initialize_state(self, **kwargs: Any) -> None:
        """Take the deployment's argument ``places``: calls that a replica works on at a time."""
        self._places = int(kwargs["places"])

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Return the replicas to try, best first; Serve takes the first that has room."""
        if pending_request is None or not candidate_replicas:
            return [candidate_replicas]
        # Of Ray 2.60's request router:
        # Calls that come at once are placed in one go; this lets the last one be sent, and counted.
        await asyncio.sleep(0)
        # Without it Serve would try over and over without a pause while all are full.
        pending_request.routing_context.should_backoff = True
        key = _query_id(pending_request.args)
        if not key:
            return [candidate_replicas]
        replicas = {str(r.replica_id.unique_id): r for r in candidate_replicas}
        known = self.replica_queue_len_cache
        loads = {name: known.get(r.replica_id) for name, r in replicas.items()}
        return [[replicas[name] for name in names] for names in tries(key, loads, self._places)]


def _query_id(args: Any) -> str:
    """Return the query that a call is about; empty when it is about none."""
    return str(getattr(args[0], "query_id", "")) if args else ""
