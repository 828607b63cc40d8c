"""A KV connector's scheduler side that keeps to NIXL's rules of ownership, and whose transfers end when they are told to.

vLLM's own factory loads it by the name of this module. A prefill request that ran to its length leaves its pages under a lease, from
which another engine reads; a decode request has its prompt written from afar, once, into the pages that it was allocated.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

__all__ = ["NAME"]

NAME = "LoopbackConnector"


def __getattr__(name: str) -> type:
    """The connector's class, which can be made only once vLLM has been imported."""
    if name == NAME:
        return _connector()
    raise AttributeError(f"module {__name__} has no {name}")


@cache
def _connector() -> type:
    base: Any = importlib.import_module("vllm.distributed.kv_transfer.kv_connector.v1.base")
    statuses: Any = importlib.import_module("vllm.v1.request").RequestStatus

    class LoopbackConnector(base.KVConnectorBase_V1):  # type: ignore[misc]
        """What was begun since the adapter looked last: `writes` has for a request its block ids and the first token that is
        written, `leases` its block ids and how many tokens are read."""

        def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
            super().__init__(vllm_config, role, kv_cache_config)
            self.writes: dict[str, tuple[Any, tuple[tuple[int, ...], ...], int]] = {}
            self.leases: dict[str, tuple[Any, tuple[tuple[int, ...], ...], int]] = {}

        def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
            rest = len(request.prompt_token_ids) - num_computed_tokens
            wanted = rest > 0 and (request.kv_transfer_params or {}).get("do_remote_prefill", False)
            return (rest, True) if wanted else (0, False)

        def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
            parameters = request.kv_transfer_params or {}
            if not parameters.get("do_remote_prefill"):
                return
            if num_external_tokens > 0:
                first = len(request.prompt_token_ids) - num_external_tokens
                self.writes[request.request_id] = (request, _rows(blocks.get_block_ids()), first)
            parameters["do_remote_prefill"] = False  # one transfer a request

        def build_connector_meta(self, scheduler_output: Any) -> Any:
            return base.KVConnectorMetadata()

        def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, dict[str, Any] | None]:
            parameters = request.kv_transfer_params or {}
            if not parameters.get("do_remote_decode") or request.status != statuses.FINISHED_LENGTH_CAPPED or not block_ids:
                return False, None
            rows = _rows(block_ids if isinstance(block_ids, tuple) else (block_ids,))
            self.leases[request.request_id] = (request, rows, request.num_computed_tokens)
            return True, {}

        def start_load_kv(self, forward_context: Any, **named: Any) -> None: ...

        def wait_for_layer_load(self, layer_name: str) -> None: ...

        def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **named: Any) -> None: ...

        def wait_for_save(self) -> None: ...

    return LoopbackConnector


def _rows(groups: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in groups)
