"""One release of vLLM in this process: what is real, what is stood in for, and every way in which releases differ.

Of the release about 40 files run as they are: block pool, managers, coordinator, scheduler, requests, connectors, events. Everything else
(torch, configuration classes, tokenizers) is a stand-in. Whatever a new release changes is put right here and nowhere else.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kvmodel.engines.snapshot import PoolSnapshot, walk_free_list
from kvmodel.engines.standins import Plan, StandIns
from kvmodel.engines.wheels import Progress, fetch
from kvmodel.errors import EngineDriftError, UsageError, printable

__all__ = ["KNOWN", "PLAN", "RELEASES", "Release", "boot"]

RELEASES = ("0.11.2", "0.13.0", "0.16.0", "0.20.2", "0.25.0", "0.29.0", "0.33.0")
"""The releases that the tests drive."""

KNOWN = f"{RELEASES[0]} to {RELEASES[-1]}"

PAGE_TOKENS = 2  # of the small pools that are driven
LONGEST = 64  # tokens of a request at the level of the manager


class Silent:
    """A logger that says nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments, **named: None


class Sampling(SimpleNamespace):
    """What the scheduler reads of a request's sampling parameters: up to `max_tokens` tokens, and no stop before."""

    def __init__(self, max_tokens: int) -> None:
        super().__init__(
            max_tokens=max_tokens, min_tokens=0, ignore_eos=True, stop_token_ids=[], eos_token_id=None, all_stop_token_ids=set(),
            structured_outputs=None, guided_decoding=None, extra_args=None, prompt_logprobs=None, logprobs=None, num_logprobs=None,
            repetition_detection=None, skip_reading_prefix_cache=False, thinking_token_budget=None,
        )  # fmt: skip


PLAN = Plan(
    missing=frozenset(
        ["torch", "transformers", "zmq", "pydantic", "PIL", "xgrammar", "regex", "psutil", "openai", "triton", "prometheus_client"]
    ).union(["xxhash", "cbor2", "uvloop", "pybase64", "cloudpickle", "cachetools", "nixl", "nixl_rocm"]),
    package="vllm",
    real=(
        *("vllm.v1.core", "vllm.v1.hisparse.block_pool", "vllm.v1.kv_cache_interface", "vllm.v1.kv_cache_layout"),
        *("vllm.v1.kv_cache_spec_registry", "vllm.v1.request", "vllm.v1.outputs", "vllm.v1.utils", "vllm.v1.engine", "vllm.v1.kv_hints"),
        *("vllm.v1.metrics.stats", "vllm.v1.metrics.cache_hit_source", "vllm.v1.spec_decode.metrics"),
        *("vllm.v1.structured_output.request", "vllm.distributed.kv_events", "vllm.distributed.kv_transfer", "vllm.envs"),
        *("vllm.utils.hashing", "vllm.utils.math_utils", "vllm.utils.func_utils"),
    ),
    values={
        "vllm.logger": {"init_logger": lambda name: Silent()},
        "vllm.utils": {"length_from_prompt_token_ids_or_embeds": lambda tokens, embeddings: len(tokens)},
        "vllm.sampling_params": {"SamplingParams": Sampling},
        "vllm.config": {"get_current_vllm_config_or_none": lambda: None},
        "vllm.multimodal.utils": {"strip_covered_mm_data": lambda features, *arguments, **named: features},
    },
    called=("vllm.platforms.current_platform.register_custom_kv_cache_specs",),  # none is registered on a CPU
)


class Unstructured:
    """The manager of grammars, where no request has one."""

    def should_advance(self, *arguments: object, **named: object) -> bool:
        return False

    def accept_tokens(self, *arguments: object, **named: object) -> bool:
        return True

    def grammar_bitmask(self, *arguments: object, **named: object) -> None:
        return None


def _configuration(pages: int, page_size: int, longest: int, budget: int, running: int, depth: int, transfer: Any) -> Any:
    """The parts of a VllmConfig that the schedulers of the known releases read. A part that is missing is an AttributeError, thus drift."""
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(
            max_num_seqs=running, max_num_active_seqs=None, max_num_batched_tokens=budget, max_num_scheduled_tokens=None,
            max_model_len=longest, enable_chunked_prefill=True, chunked_prefill_enabled=True, is_encoder_decoder=False,
            async_scheduling=False, policy="fcfs", long_prefill_token_threshold=0, long_prefill_token_threshold_adaptive=False,
            max_num_partial_prefills=1, max_long_partial_prefills=1, disable_chunked_mm_input=False, max_num_encoder_input_tokens=0,
            encoder_cache_size=0, disable_hybrid_kv_cache_manager=True, watermark=0.0, prefill_schedule_interval=1,
            scheduler_reserve_full_isl=True, num_lookahead_slots=0,
        ),
        cache_config=SimpleNamespace(
            block_size=page_size, num_gpu_blocks=pages, enable_prefix_caching=True, mamba_cache_mode="none", mamba_block_size=None,
            enable_mamba_shared_prefix_checkpoint=False,
        ),
        model_config=SimpleNamespace(
            uses_mrope=False, uses_xdrope=False, uses_xdrope_dim=0, is_encoder_decoder=False,
            max_model_len=longest, runner_type="generate", is_diffusion=False,
            supports_multimodal_inputs=False, is_multimodal_model=False, return_sampling_mask=False, multimodal_config=None,
            enable_return_routed_experts=False, is_hybrid=False, enforce_eager=True, use_mla=False,
        ),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1, prefill_context_parallel_size=1, pipeline_parallel_size=depth, data_parallel_size=1,
            data_parallel_rank=0, data_parallel_index=0, tensor_parallel_size=1, dcp_kv_cache_interleave_size=1,
            cp_kv_cache_interleave_size=1,
        ),
        observability_config=SimpleNamespace(
            kv_cache_metrics=False, kv_cache_metrics_sample=0.0, per_request_spec_decode_metrics="none", enable_mfu_metrics=False,
            enable_logging_iteration_details=False,
        ),
        kv_transfer_config=transfer, kv_events_config=None, lora_config=None, ec_transfer_config=None, speculative_config=None,
        is_mm_encoder_only=False, max_concurrent_batches=depth, num_speculative_tokens=0, num_lookahead_tokens=0,
        num_prefill_lookahead_tokens=0, num_hash_lookahead_tokens=0, max_in_flight_tokens=budget * depth, use_v2_model_runner=False,
        aux_output_config=SimpleNamespace(enabled=False),
        ec_manager_config=SimpleNamespace(get_encoder_cache_manager_obj=lambda: None),
    )  # fmt: skip


class Release:
    """A release that has been imported: its classes, by the names that the adapters use."""

    def __init__(self, version: str, stand_ins: StandIns | None) -> None:
        self.version, self.stand_ins = version, stand_ins
        self._signatures: dict[Callable[..., object], Mapping[str, inspect.Parameter]] = {}
        self.hashing = self.module("vllm.v1.core.kv_cache_utils")
        self.sha256 = self.symbol("vllm.utils.hashing", "sha256")
        self.interface = self.module("vllm.v1.kv_cache_interface")
        self.manager_class = self.symbol("vllm.v1.core.kv_cache_manager", "KVCacheManager")
        self.pool_class = self.symbol("vllm.v1.core.block_pool", "BlockPool")
        self.request_class = self.symbol("vllm.v1.request", "Request")
        self.status = self.symbol("vllm.v1.request", "RequestStatus")
        self.scheduler_class = self.symbol("vllm.v1.core.sched.scheduler", "Scheduler")
        self.sampling_class = self.symbol("vllm.sampling_params", "SamplingParams")
        for name in ("init_none_hash", "get_request_block_hasher", "make_block_hash_with_group_id"):
            self.attribute(self.hashing, name)
        self.hashing.init_none_hash(self.sha256)
        self.can_detach = hasattr(self.manager_class, "pop_blocks_for_free")
        self.can_evict = hasattr(self.manager_class, "evict_blocks")
        self._external = "num_external_computed_tokens" in self._parameters(self.attribute(self.manager_class, "allocate_slots"))

    # --- names

    def module(self, name: str) -> Any:
        """The module of that name. Raises EngineDriftError. What a module does while it is imported may call stand-ins."""
        sealed = self.stand_ins is not None and self.stand_ins.sealed
        try:
            if self.stand_ins is not None:
                self.stand_ins.sealed = False
            return importlib.import_module(name)
        except EngineDriftError:
            raise
        except Exception as problem:
            raise self.drift(name, f"{type(problem).__name__}: {problem}") from problem
        finally:
            if self.stand_ins is not None:
                self.stand_ins.sealed = sealed

    def import_nixl(self) -> None:
        """The scheduler side of NIXL's connector: one module up to 0.16, then a package."""
        base = "vllm.distributed.kv_transfer.kv_connector.v1"
        place = importlib.util.find_spec(f"{base}.nixl")
        self.module(f"{base}.nixl_connector" if place is None else f"{base}.nixl")

    def symbol(self, module: str, name: str) -> Any:
        """What a module has by this name. Raises EngineDriftError."""
        return self.attribute(self.module(module), name)

    def attribute(self, owner: Any, name: str) -> Any:
        """What a module, class or object has by this name. Raises EngineDriftError."""
        found = getattr(owner, name, MISSING)
        if found is MISSING:
            place = owner.__name__ if inspect.ismodule(owner) or inspect.isclass(owner) else type(owner).__name__
            module = f"{owner.__module__}." if inspect.isclass(owner) else ""
            raise self.drift(f"{module}{place}.{name}")
        return found

    def drift(self, symbol: str, reason: str = "") -> EngineDriftError:
        """The error that says that `symbol` is not as kvmodel knows it."""
        return EngineDriftError("vllm", self.version, symbol, KNOWN, printable(reason, 300))

    @contextmanager
    def building(self, what: str) -> Iterator[None]:
        """While an object of the release is made: what it raises is drift, because it has not been asked for anything yet."""
        try:
            yield
        except EngineDriftError:
            raise
        except Exception as problem:
            raise self.drift(f"{what} that can be made as before", f"{type(problem).__name__}: {problem}") from problem

    def _parameters(self, function: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
        known = self._signatures.get(function)
        if known is None:
            known = self._signatures[function] = inspect.signature(function).parameters
        return known

    def call(self, function: Callable[..., Any], *arguments: object, **named: object) -> Any:
        """Call with those of the keywords that this release's signature has."""
        known = self._parameters(function)
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
            return function(*arguments, **named)
        return function(*arguments, **{name: value for name, value in named.items() if name in known})

    # --- making what the engine would make of its configuration

    def cache_config(self, pages: int, page_size: int, windows: Sequence[int | None]) -> Any:
        """The configuration of a pool: for each cache group its sliding window, or None for full attention."""
        groups = []
        for number, window in enumerate(windows):
            given = {"block_size": page_size, "num_kv_heads": 1, "head_size": 1, "dtype": "float32", "use_mla": False}
            name = "FullAttentionSpec" if window is None else "SlidingWindowSpec"
            kind = self.attribute(self.interface, name)
            spec = self.call(kind, **given) if window is None else self.call(kind, sliding_window=window, **given)
            groups.append(self.call(self.attribute(self.interface, "KVCacheGroupSpec"), [f"layer{number}"], spec))
        kind = self.attribute(self.interface, "KVCacheConfig")
        return self.call(kind, num_blocks=pages, kv_cache_tensors=[], kv_cache_groups=groups)

    def manager(self, pages: int, page_size: int, windows: Sequence[int | None]) -> Any:
        """A KVCacheManager over a pool of its own, with a prefix cache."""
        with self.building("vllm.v1.core.kv_cache_manager.KVCacheManager"):
            return self.call(
                self.manager_class,
                kv_cache_config=self.cache_config(pages, page_size, windows),
                max_model_len=LONGEST,
                scheduler_block_size=page_size,
                hash_block_size=page_size,
                enable_caching=True,
                enable_kv_cache_events=False,
            )

    def request(self, name: str, tokens: Sequence[int], salt: str | None, page_size: int, max_tokens: int = LONGEST) -> Any:
        """A Request with these tokens as its prompt."""
        with self.building("vllm.v1.request.Request"):
            return self.call(
                self.request_class,
                request_id=name,
                prompt_token_ids=list(tokens),
                sampling_params=self.sampling_class(max_tokens=max_tokens),
                pooling_params=None,
                eos_token_id=None,
                cache_salt=salt,
                block_hasher=self.hashing.get_request_block_hasher(page_size, self.sha256),
            )

    def scheduler(self, pages: int, page_size: int, longest: int, budget: int, running: int, depth: int, transfer: Any) -> Any:
        """A Scheduler over a pool of its own: up to `longest` tokens a request, `budget` tokens and `running` requests a batch, and `depth`
        batches under way. `transfer` is the configuration of a KV connector, or None."""
        with self.building("vllm.v1.core.sched.scheduler.Scheduler"):
            return self.call(
                self.scheduler_class,
                vllm_config=_configuration(pages, page_size, longest, budget, running, depth, transfer),
                kv_cache_config=self.cache_config(pages, page_size, (None,)),
                block_size=page_size,
                hash_block_size=page_size,
                structured_output_manager=Unstructured(),
                mm_registry=SimpleNamespace(supports_multimodal_inputs=lambda model: False),
                log_stats=False,
            )

    def batch_output(
        self, requests: Sequence[str], sampled: Sequence[Sequence[int]], received: frozenset[str], sent: frozenset[str]
    ) -> Any:
        """What a model runner says after a batch: sampled tokens, and the requests whose transfers have ended."""
        kind = self.symbol("vllm.v1.outputs", "ModelRunnerOutput")
        tokens: list[Any] = [list(row) for row in sampled]
        if "ndarray" in str(self.attribute(kind, "__annotations__").get("sampled_token_ids")):  # up to 0.11
            numpy = self.module("numpy")
            tokens = [numpy.array(row, dtype=numpy.int64) for row in tokens]
        ended = self.symbol("vllm.v1.outputs", "KVConnectorOutput")
        with self.building("vllm.v1.outputs.ModelRunnerOutput"):
            return self.call(
                kind,
                req_ids=list(requests),
                req_id_to_index={request: number for number, request in enumerate(requests)},
                sampled_token_ids=tokens,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
                kv_connector_output=ended(finished_sending=set(sent) or None, finished_recving=set(received) or None)
                if received or sent
                else None,
            )

    # --- asking the manager

    def lookup(self, manager: Any, request: Any) -> tuple[Any, int]:
        """The cached blocks of a request's prefix and how many tokens they hold; newer releases say more."""
        found = manager.get_computed_blocks(request)
        return found[0], found[1]

    def allocate(
        self, manager: Any, request: Any, new: int, hit: Any = None, hit_tokens: int = 0, external: int = 0, wait: bool = False
    ) -> bool:
        """Allocate for `new` tokens to compute after `hit_tokens` cached and `external` loaded ones. `wait`: these arrive later."""
        if self._external:
            found = manager.allocate_slots(request, new, hit_tokens, hit, num_external_computed_tokens=external, delay_cache_blocks=wait)
        else:  # up to 0.13 external tokens are part of the new ones
            found = manager.allocate_slots(request, new + external, hit_tokens, hit, delay_cache_blocks=wait)
        return found is not None

    def keys(self, request: Any, page_size: int, groups: int) -> tuple[tuple[str, ...], ...]:
        """For each cache group the keys of a request's full pages, as far as these are prompt or were computed."""
        make, full = self.hashing.make_block_hash_with_group_id, max(request.num_prompt_tokens, request.num_computed_tokens) // page_size
        return tuple(tuple(make(block, group).hex() for block in request.block_hashes[:full]) for group in range(groups))

    # --- asking the scheduler

    def scheduled(self, output: Any, tables: dict[str, list[list[int]]]) -> list[tuple[str, int, int]]:
        """What a SchedulerOutput asks for: request, tokens computed before, tokens to compute. Brings `tables`, the page tables that a
        model runner keeps, up to date as a model runner does."""
        first: dict[str, int] = {}
        for new in output.scheduled_new_reqs:
            tables[new.req_id] = [list(row) for row in new.block_ids]
            first[new.req_id] = new.num_computed_tokens
        cached = output.scheduled_cached_reqs
        for request, rows, computed in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True):
            if request in self.attribute(cached, "resumed_req_ids"):
                tables[request] = [list(row) for row in rows]
            elif rows is not None:
                for table, row in zip(tables[request], rows, strict=True):
                    table.extend(row)
            first[request] = computed
        return [(request, first[request], count) for request, count in output.num_scheduled_tokens.items()]

    # --- looking

    def pool_snapshot(self, manager: Any, detached: Mapping[str, tuple[int, ...]]) -> PoolSnapshot:
        """The pool of a manager. `detached` as the adapter knows it."""
        pool = self.attribute(manager, "block_pool")
        blocks, queue = self.attribute(pool, "blocks"), self.attribute(pool, "free_block_queue")
        null = self.attribute(pool, "null_block").block_id
        head, tail = self.attribute(queue, "fake_free_list_head"), self.attribute(queue, "fake_free_list_tail")
        managers = self.attribute(self.attribute(manager, "coordinator"), "single_type_managers")
        tables: dict[str, list[tuple[int, ...]]] = {}
        for number, group in enumerate(managers):
            for request, held in self.attribute(group, "req_to_blocks").items():
                if held:
                    tables.setdefault(request, [()] * len(managers))[number] = tuple(block.block_id for block in held)
        return PoolSnapshot(
            name="",
            pages=len(blocks),
            free=walk_free_list(head, "next_free_block", tail, "block_id", len(blocks)),
            tables={request: tuple(rows) for request, rows in tables.items()},
            null=frozenset((null,)),
            detached=detached,
            references={block.block_id: block.ref_cnt for block in blocks if block.block_id != null},
            index=self._index(pool),
        )

    def _index(self, pool: Any) -> dict[str, frozenset[int]]:
        cache = self.attribute(self.attribute(pool, "cached_block_hash_to_block"), "_cache")
        return {key.hex(): frozenset(found if isinstance(found, dict) else (found.block_id,)) for key, found in cache.items() if found}


MISSING = object()
_booted: Release | None = None


def boot(version: str, cache: Path | None = None, progress: Progress | None = None) -> Release:
    """Import a release, from the cache or the registry (`kvmodel.engines.wheels.fetch`), with stand-ins for the rest.

    A process has one release. Raises UsageError for a second one, FetchError, and EngineDriftError where it does not import.
    """
    global _booted
    if _booted is not None:
        if _booted.version != version:
            raise UsageError(f"this process has vllm {_booted.version} already; vllm {version} needs a process of its own")
        return _booted
    if "vllm" in sys.modules:
        raise UsageError("vllm is imported in this process already: kvmodel's adapters need to be there first")
    wheel = fetch(f"vllm=={version}", cache, progress)
    stand_ins = StandIns(PLAN, wheel.root, "vllm", version, KNOWN).install()
    sys.path.insert(0, str(wheel.root))
    try:
        booted = Release(version, stand_ins)
    except BaseException:
        sys.path.remove(str(wheel.root))
        stand_ins.remove()
        for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
            del sys.modules[name]
        raise
    stand_ins.seal()
    _booted = booted
    return booted
