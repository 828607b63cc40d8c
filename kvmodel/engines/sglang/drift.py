"""What differs between releases of SGLang, 0.5.11 to 0.5.23, in one place.

A function here asks a release how it does something that other releases do otherwise; each says when it changed. What is missing
altogether is EngineDriftError.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from kvmodel.engines.sglang.boot import Release, StandIn

__all__ = [
    "abort_message",
    "allocated_length",
    "announces_aborts",
    "configure",
    "defers_release",
    "expire",
    "free_list",
    "held_back",
    "make_cache",
    "make_request",
    "mark_computed",
    "row_number",
    "set_lengths",
    "stop_reason",
    "use_cpu_kernels",
]

RANK_ZERO = {
    **dict.fromkeys(("tp_rank", "pp_rank", "attn_tp_rank", "attn_cp_rank", "attn_dp_rank", "attn_dcp_rank", "dcp_rank"), 0),
    **dict.fromkeys(("world_rank", "gpu_id"), 0),
    **dict.fromkeys(("tp_size", "pp_size", "dp_size", "attn_tp_size", "attn_cp_size", "attn_dp_size", "attn_dcp_size", "dcp_size"), 1),
    **dict.fromkeys(("moe_ep_size", "moe_tp_size", "moe_dp_size", "num_dp_ranks"), 1),
    **dict.fromkeys(("dcp_enabled", "enable_dp_attention", "enable_kv_cache_sharding", "enable_dsa_cache_layer_split"), False),
    "dp_rank": None,
}
GROUPS = ("attn_tp_group", "attn_cp_group", "tp_group", "pp_group")


def configure(release: Release, page_size: int) -> Any:
    """Publish server arguments and a world of one rank, as the release does (``publish`` from 0.5.17). Returns the arguments."""
    arguments = release.symbol("srt.server_args", "ServerArgs")(model_path="none")
    for name, value in {"disaggregation_transfer_backend": "fake", "page_size": page_size}.items():
        try:
            object.__setattr__(arguments, name, value)
        except TypeError:  # no dataclass from 0.5.20
            setattr(arguments, name, value)
    publish = release.optional("srt.runtime_context", "publish")
    if publish is not None:
        release.symbol("srt.runtime_context", "reset_context")()
        publish(arguments, role="tokenizer")
    else:
        release.symbol("srt.server_args", "set_global_server_args_for_scheduler")(arguments)
    one_rank(release)
    return arguments


def one_rank(release: Release) -> None:
    """Make every module believe in a world of one rank, and give torch a process group of one process, without sockets."""
    group = StandIn(cpu_group=None, rank_in_group=0, world_size=1)
    parallel = StandIn(**RANK_ZERO, **dict.fromkeys(GROUPS, group))
    for name, module in list(sys.modules.items()):
        if name.startswith("sglang.") and module is not None:
            if "get_parallel" in vars(module):
                vars(module)["get_parallel"] = lambda: parallel
            if "get_tensor_model_parallel_rank" in vars(module):  # up to 0.5.11
                vars(module)["get_tensor_model_parallel_rank"] = lambda: 0
    distributed = import_module("torch.distributed")
    if not distributed.is_initialized():
        hook = sys.excepthook
        distributed.init_process_group(backend="gloo", store=distributed.HashStore(), rank=0, world_size=1)
        sys.excepthook = hook  # not torch's, which says "[rank0]"


# --- allocators


class CpuKernel:
    """A Triton kernel's launch syntax, ``kernel[grid](...)``, for a function."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __getitem__(self, grid: object) -> Any:
        return self.function


def use_cpu_kernels() -> None:
    """Stand in for the two Triton kernels of the paged allocator, which up to 0.5.20 has nothing else."""
    for name, module in list(sys.modules.items()):
        if name.startswith("sglang.srt.mem_cache.allocator") and module is not None:
            for kernel, function in (("alloc_extend_kernel", extend), ("alloc_decode_kernel", decode)):
                if kernel in vars(module):
                    vars(module)[kernel] = CpuKernel(function)


def extend(before: Any, after: Any, last: Any, free: Any, out: Any, _: int, page_size: int, *rest: object, **named: object) -> None:
    """Places for the positions from `before` up to `after` of each request: the rest of its last page, then pages from the free list."""
    pages, written = iter(free.tolist()), 0
    for first, end, place in zip(before.tolist(), after.tolist(), last.tolist(), strict=True):
        for position in range(first, end):
            place = next(pages, -1) * page_size if position % page_size == 0 else place + 1
            out[written] = place
            written += 1


def decode(after: Any, last: Any, free: Any, out: Any, _: int, page_size: int, *rest: object, **named: object) -> None:
    """A place for one more position of each request."""
    pages = iter(free.tolist())
    for number, (end, place) in enumerate(zip(after.tolist(), last.tolist(), strict=True)):
        out[number] = next(pages, -1) * page_size if (end - 1) % page_size == 0 else place + 1


def free_list(allocator: Any) -> tuple[int, ...]:
    """The free pages: those to be handed out next first, then those that were given back (``staged_pages`` from 0.5.22)."""
    pages = allocator.free_pages.tolist()
    for later in allocator.staged_pages if hasattr(allocator, "staged_pages") else (allocator.release_pages,):
        pages += later.tolist()
    return tuple(pages)


def make_cache(release: Release, rows: Any, allocator: Any, page_size: int) -> Any:
    """The prefix cache when it is off, as by default on decode nodes: ChunkCache up to 0.5.21, then a disabled UnifiedRadixCache."""
    more: dict[str, Any] = {}
    kind = release.optional("srt.mem_cache.chunk_cache", "ChunkCache")
    if kind is None:
        kind = release.symbol("srt.mem_cache.unified_radix_cache", "UnifiedRadixCache")
        more["tree_components"] = (release.symbol("srt.mem_cache.unified_cache.components", "ComponentType").FULL,)
    parameters = release.symbol("srt.mem_cache.cache_init_params", "CacheInitParams")
    cache = kind(
        parameters(disable=True, req_to_token_pool=rows, token_to_kv_pool_allocator=allocator, page_size=page_size, **more)
    )
    if not hasattr(cache, "finish"):  # asked for by schedulers from 0.5.20
        cache.finish = lambda *arguments, **named: None
    return cache


# --- requests


def make_request(release: Release, rid: str, tokens: Sequence[int], room: int, max_new_tokens: int) -> Any:
    """A real ``Req``. Token ids are lists up to 0.5.11, then arrays."""
    parameters = release.symbol("srt.sampling.sampling_params", "SamplingParams")(max_new_tokens=max_new_tokens)
    request = release.symbol("srt.managers.schedule_batch", "Req")(
        rid=rid,
        origin_input_text="",
        origin_input_ids=array("q", tokens),
        sampling_params=parameters,
        bootstrap_host="10.0.0.1",
        bootstrap_port=8998,
        bootstrap_room=room,
        vocab_size=1 << 30,
    )
    if isinstance(request.output_ids, list):
        request.origin_input_ids = request.origin_input_ids_unpadded = list(tokens)
    return request


def record(request: Any) -> Any:
    """Where the request keeps account of its KV: ``req.kv`` from 0.5.19, the request itself before."""
    kv = getattr(request, "kv", None)
    return kv if kv is not None and hasattr(kv, "req_pool_idx") else request


def row_number(request: Any) -> int | None:
    """The request's row in the request-to-token pool; None: it holds none."""
    number = record(request).req_pool_idx
    return None if number is None else int(number)


def allocated_length(request: Any) -> int:
    """How many places of its row the request holds (kept apart in ``req.kv`` in 0.5.16 to 0.5.18)."""
    kv = getattr(request, "kv", None)
    return int(kv.kv_allocated_len if kv is not None else request.kv_allocated_len)


def set_lengths(release: Release, request: Any, length: int) -> None:
    """The request holds `length` places, and what is in them counts."""
    kind = release.optional("srt.managers.schedule_batch", "ReqKvInfo")
    if kind is not None and getattr(request, "kv", None) is None:
        request.kv = kind(kv_allocated_len=length, swa_evicted_seqlen=0)
    holder = request if kind is None else request.kv
    holder.kv_allocated_len = length
    record(request).kv_committed_len = length


def mark_computed(request: Any, length: int) -> None:
    """The forward pass covers the first `length` tokens (``fill_ids`` up to 0.5.11, ``set_extend_range`` up to 0.5.21, ``extend_end``)."""
    if hasattr(request, "full_untruncated_fill_ids"):
        request.full_untruncated_fill_ids = request.origin_input_ids[:]
        if hasattr(request, "set_extend_range"):
            request.set_extend_range(0, length)
        else:
            request.extend_end = length
    else:
        request.fill_ids = list(request.origin_input_ids)
        request.extend_input_len = length


def stop_reason(release: Release, request: Any) -> Any:
    """Why a request ends that has all its tokens, or whose client is gone."""
    return request.to_finish or release.symbol("srt.managers.schedule_batch", "FINISH_LENGTH")(length=len(request.output_ids))


def release_pages(release: Release, request: Any, cache: Any) -> None:
    """``release_kv_cache``, keeping nothing for the prefix cache (``checkpoint`` from 0.5.22, ``is_insert`` before)."""
    function = release.symbol("srt.mem_cache.common", "release_kv_cache")
    release.call(function, req=request, tree_cache=cache, checkpoint=False, is_insert=False)


def abort_message(release: Release, rid: str) -> Any:
    """What the front end sends when a client is gone."""
    return release.symbol("srt.managers.io_struct", "AbortReq")(rid=rid)


# --- transfers


def announces_aborts(release: Release) -> bool:
    """Whether decode tells prefill that a request was aborted (from 0.5.16)."""
    receiver = release.symbol("srt.disaggregation.common.conn", "CommonKVReceiver")
    return hasattr(receiver, "_send_abort_notification")


def defers_release(release: Release) -> bool:
    """Whether pages of an aborted transfer are held back, by default (there from 0.5.19, on from 0.5.21)."""
    variable = getattr(release.symbol("srt.environ", "envs"), "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE", None)
    return bool(variable.get()) if variable is not None else False


def held_back(queue: Any) -> tuple[Any, ...]:
    """The decode requests whose pages the transfer queue holds back."""
    return tuple(entry[0] for entry in getattr(queue, "_deferred_releases", ()))


def expire(queue: Any, request: Any) -> None:
    """The deadline of what is held back for the request passes: the second of four entries, the third of five from 0.5.22."""
    for number, entry in enumerate(queue._deferred_releases):
        if entry[0].req is request:
            deadline = len(entry) - 3
            queue._deferred_releases[number] = (*entry[:deadline], float("-inf"), *entry[deadline + 1 :])
