"""Two nodes, prefill and decode, made of a release's own classes.

SGLang's own are: requests (`Req`) and what ends them, both request-to-token pools, the paged allocator, the pool of keys and values, the
prefix cache (off), the buffers of metadata, `validate_input_length`, `_add_request_to_queue`, `abort_request`, both queues with their
doors, `process_decode_queue` (preallocation, transfers, commit, deferred release), `process_batch_result_disagg_prefill`,
`send_kv_chunk`, `process_disagg_prefill_inflight_queue` and `release_kv_cache`. Ours are: the forward pass (a tag for each token), which
requests run together and which fit, what a decode step does with its result, the transfer (`loopback`), and the acknowledgement that a
transfer has drained. Sampling, streaming, metrics and tracing do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from kvmodel.engines.sglang import drift
from kvmodel.engines.sglang.boot import Release, StandIn
from kvmodel.engines.sglang.loopback import Loopback, Memory

__all__ = ["Answers", "Computation", "Node", "Nodes", "Settings"]

STRIDE = 1_000_000  # a tag is the number of the request's owner times this, and the position of the token from 1


@dataclass(frozen=True, slots=True)
class Settings:
    """Two nodes. Pools in usable pages; the null page comes in addition.

    A node's longest prompt is six tokens less than its pool, or than the context. `truncates` is ``--allow-auto-truncate`` on both
    nodes. `defers_release` None: as the release does it by default.
    """

    prefill_pages: int = 3
    decode_pages: int = 5
    page_size: int = 4
    requests: int = 8
    context: int = 1 << 10
    reserved_decode_tokens: int = 4
    truncates: bool = False
    defers_release: bool | None = None


class Silent:
    """Metrics, tracing and the like: every method is there and does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *problem: object) -> None:
        return None


class Answers(Silent):
    """What a node sends back: for each request the reason why it ended, by the name of its class."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}

    def stream_output(self, reqs: Sequence[Any], *more: Any, **named: Any) -> None:
        """Output of requests; those that have ended are noted."""
        for request in reqs:
            if request.finished_reason is not None:
                self.reasons.setdefault(request.rid, type(request.finished_reason).__name__)

    def send_output(self, abort: Any, request: Any = None) -> None:
        """A request that ended outside of a batch."""
        self.reasons.setdefault(abort.rid, "FINISH_ABORT")


@dataclass(frozen=True, slots=True)
class Computation:
    """One request's part of a batch: the KV of positions `first` to `first + count - 1` is to be computed."""

    request: Any
    first: int
    count: int


class Node:
    """One node: its pools, its scheduler and its answers. `pool` is "prefill" or "decode"."""

    def __init__(self, release: Release, pool: str, pages: int, settings: Settings, arguments: Any) -> None:
        torch = import_module("torch")

        self.release, self.pool, self.pages, self.page_size = release, pool, pages, settings.page_size
        tokens = pages * settings.page_size
        kind = release.symbol("srt.mem_cache.memory_pool", "MHATokenToKVPool")
        self.memory = release.call(
            kind,
            size=tokens,
            page_size=settings.page_size,
            dtype=torch.float64,
            head_num=1,
            head_dim=1,
            layer_num=1,
            device="cpu",
            enable_memory_saver=False,
            enable_alt_stream=False,
        )
        self.rows_of_memory = self.memory.k_buffer[0]
        self.rows_of_memory.zero_()
        allocator = release.symbol("srt.mem_cache.allocator", "PagedTokenToKVPoolAllocator")
        # sorted, as the scheduler has it where prefill and decode are apart
        self.allocator = allocator(tokens, settings.page_size, torch.float64, "cpu", self.memory, True)
        rows = ("disaggregation.decode", "DecodeReqToTokenPool") if pool == "decode" else ("mem_cache.memory_pool", "ReqToTokenPool")
        self.rows = release.call(
            release.symbol(f"srt.{rows[0]}", rows[1]),
            size=settings.requests,
            max_context_len=max(64, 2 * tokens),
            device="cpu",
            enable_memory_saver=False,
            pre_alloc_size=settings.requests,
        )
        self.cache = drift.make_cache(release, self.rows, self.allocator, settings.page_size)
        buffers = release.symbol("srt.disaggregation.utils", "MetadataBuffers")
        self.metadata = release.call(
            buffers, size=settings.requests, hidden_size=4, hidden_states_dtype=torch.float32, max_sampling_mask_tokens=0
        )
        self.slots = release.symbol("srt.disaggregation.utils", "ReqToMetadataIdxAllocator")(settings.requests)
        self.limit = min(settings.context - 1, tokens - 1) - 5  # TpModelWorker's max_req_input_len
        self.answers = Answers()
        self.scheduler = self._scheduler(arguments)

    def _scheduler(self, arguments: Any) -> Any:
        """The release's Scheduler without its `__init__`: its methods, and the attributes that they read on this path."""
        modes = self.release.symbol("srt.disaggregation.utils", "DisaggregationMode")
        backends = self.release.symbol("srt.disaggregation.utils", "TransferBackend")
        kind = self.release.symbol("srt.managers.scheduler", "Scheduler")
        scheduler = object.__new__(kind)
        no = partial(bool, False)
        tokens = self.pages * self.page_size
        runner = StandIn(
            effective_max_total_num_tokens=tokens,
            effective_logical_max_total_num_tokens=tokens,
            max_token_pool_size=tokens,
            swa_max_total_num_tokens=tokens,
        )
        batch = StandIn(reqs=[], forward_mode=StandIn(is_prebuilt=no))
        silent = Silent()
        vars(scheduler).update(
            server_args=arguments,
            disaggregation_mode=modes(self.pool),
            transfer_backend=backends.FAKE,
            max_req_input_len=self.limit,
            model_config=StandIn(num_key_value_heads=1, hf_eos_token_id={-1}, vocab_size=1 << 30, context_len=1 << 20, num_hidden_layers=1),
            # pools
            req_to_token_pool=self.rows,
            token_to_kv_pool_allocator=self.allocator,
            token_to_kv_pool=self.memory,
            tree_cache=self.cache,
            disagg_metadata_buffers=self.metadata,
            req_to_metadata_buffer_idx_allocator=self.slots,
            # queues
            waiting_queue=[],
            running_batch=batch,
            last_batch=None,
            cur_batch=None,
            running_mbs=[],
            mbs=[],
            result_queue=(),
            chunked_req=None,
            disagg_prefill_inflight_queue=[],
            disagg_prefill_pending_chunk_rids=set(),
            disagg_decode_prealloc_queue=None,
            processed_tokens_counter=0,
            max_queued_requests=None,
            # features that are off
            enable_priority_scheduling=False,
            abort_on_priority_when_disabled=False,
            schedule_low_priority_values_first=False,
            enable_hicache_storage=False,
            enable_hicache=False,
            enable_decode_hicache=False,
            enable_hisparse=False,
            enable_lmcache=False,
            enable_lora=False,
            enable_overlap=False,
            enable_continuous_input_polling=False,
            enable_staging=False,
            enable_metrics=False,
            hisparse_coordinator=None,
            sliding_window_size=None,
            dllm_config=None,
            mm_receiver=None,
            rust_server=None,
            kv_checksum_computer=None,
            kv_shard_widening=1,
            spec_algorithm=StandIn(is_none=partial(bool, True), is_eagle=no, is_dflash_family=no),
            random_seed=0,
            # one rank
            tp_rank=0,
            attn_tp_cpu_group=None,
            attn_cp_cpu_group=None,
            ps=StandIn(**drift.RANK_ZERO),
            tp_worker=StandIn(is_hybrid_swa=False, model_runner=runner),
            # what goes out
            output_streamer=self.answers,
            stream_output=self.answers.stream_output,
            ipc_channels=StandIn(send_to_tokenizer=self.answers),
            send_to_tokenizer=self.answers,
            metrics_reporter=StandIn(
                enable_metrics=False, report_prefill_stats=silent, kv_transfer_latency_ms=0, kv_transfer_speed_gb_s=0
            ),
            report_prefill_stats=silent,
            scheduler_stage_metrics=silent,
            batch_result_processor=silent,
            beam_coordinator=silent,
            grammar_manager=silent,
            move_logprobs_to_cpu=silent,
            maybe_send_health_check_signal=silent,
        )
        return scheduler

    def receive(self, request: Any, truncates: bool) -> None:
        """A request arrives: the end of ``handle_generate_request``."""
        complaint = self.release.symbol("srt.managers.utils", "validate_input_length")(request, self.limit, truncates)
        if complaint:
            request.set_finish_with_abort(complaint)
        self.scheduler._add_request_to_queue(request)

    def table(self, request: Any) -> tuple[int, ...]:
        """The pages of the request's row, in order of position; empty if it holds none."""
        number = drift.row_number(request)
        if number is None:
            return ()
        places = self.rows.req_to_token[number, : drift.allocated_length(request) : self.page_size]
        return tuple(place // self.page_size for place in places.tolist())

    def write_row(self, request: Any, first: int, places: Any) -> None:
        """Enter places into the request's row, and count them as its own."""
        torch = import_module("torch")

        end = first + len(places)
        self.rows.write((drift.row_number(request), slice(first, end)), places.to(torch.int32))
        drift.set_lengths(self.release, request, end)

    def compute(self, work: Computation, owner: int) -> None:
        """The forward pass writes a tag for each token."""
        number = drift.row_number(work.request)
        for position in range(work.first, work.first + work.count):
            self.rows_of_memory[int(self.rows.req_to_token[number, position])] = float(owner * STRIDE + position + 1)

    def attended(self, request: Any) -> tuple[tuple[int, int] | None, ...]:
        """For each position of the request, whose tag is in its place: owner and position, or None where nobody ever wrote."""
        number = drift.row_number(request)
        if number is None:
            return ()
        places = self.rows.req_to_token[number, : drift.allocated_length(request)].tolist()
        tags = [int(self.rows_of_memory[place].item()) for place in places]
        return tuple(((tag - 1) // STRIDE, (tag - 1) % STRIDE) if tag else None for tag in tags)


class Nodes:
    """A prefill and a decode node, the queues between them, and the wire."""

    def __init__(self, release: Release, settings: Settings) -> None:
        self.release, self.settings = release, settings
        self.arguments = drift.configure(release, settings.page_size)
        drift.use_cpu_kernels()
        self.prefill = Node(release, "prefill", settings.prefill_pages, settings, self.arguments)
        self.decode = Node(release, "decode", settings.decode_pages, settings, self.arguments)
        self.wire = Loopback(release, settings.page_size)
        self.wire.prefill = Memory(self.prefill.rows_of_memory, self.prefill.metadata)
        self.wire.decode = Memory(self.decode.rows_of_memory, self.decode.metadata)
        defers = settings.defers_release
        self.defers_release = drift.defers_release(release) if defers is None else defers
        self.scheduler = release.symbol("srt.managers.scheduler", "Scheduler")
        with self.release.calling("queues"):
            self._connect()

    def _connect(self) -> None:
        release, wire, settings = self.release, self.wire, self.settings
        kinds = release.symbol("srt.disaggregation.utils", "KVClassType")

        def classes(backend: Any, kind: Any, **named: Any) -> Any:
            return {kinds.SENDER: wire.sender, kinds.RECEIVER: wire.receiver}[kind]

        modules = [release.module(f"srt.disaggregation.{name}") for name in ("prefill", "decode", "utils")]
        for module in modules:
            for name, function in (("get_kv_class", classes), ("_is_fake_transfer", lambda *arguments, **named: False)):
                if hasattr(module, name):
                    setattr(module, name, function)
        manager = StandIn(
            kv_args=StandIn(state_types=[], kv_item_lens=[8], kv_data_ptrs=[0], state_data_ptrs=[], state_item_lens=[]),
            prefill_info_table={},
            transfer_infos={},
            req_to_decode_prefix_len={},
            is_dummy_cp_rank=False,
            enable_all_cp_ranks_for_transfer=False,
            enable_deferred_decode_kv_release=self.defers_release,
            supports_host_destination=False,
            is_abort_release_safe=lambda room, acknowledgements=0: wire.drained(room),
            register_deferred_abort_room=lambda room: 0,
            clear_deferred_abort_state=lambda room: None,
        )
        common: dict[str, Any] = {
            **dict.fromkeys(("gpu_id", "tp_rank", "pp_rank"), 0),
            **dict.fromkeys(("tp_size", "dp_size", "pp_size"), 1),
            **dict.fromkeys(("draft_token_to_kv_pool", "gloo_group")),
            "bootstrap_port": 8998,
            "scheduler_stage_metrics": Silent(),
        }
        prefill, decode = self.prefill, self.decode
        door = with_manager(release.symbol("srt.disaggregation.prefill", "PrefillBootstrapQueue"), manager)
        prefill.scheduler.disagg_prefill_bootstrap_queue = release.call(door, **common, **self._of(prefill))
        transfers = release.call(
            release.symbol("srt.disaggregation.decode", "DecodeTransferQueue"), **common, **self._of(decode), tree_cache=decode.cache
        )
        if hasattr(transfers, "enable_deferred_kv_release"):
            transfers.enable_deferred_kv_release = self.defers_release
        decode.scheduler.disagg_decode_transfer_queue = transfers
        door = with_manager(release.symbol("srt.disaggregation.decode", "DecodePreallocQueue"), manager)
        waiting = release.call(
            door,
            **common,
            **self._of(decode),
            tree_cache=decode.cache,
            req_to_token_pool=decode.rows,
            token_to_kv_pool_allocator=decode.allocator,
            transfer_queue=transfers,
            num_reserved_decode_tokens=settings.reserved_decode_tokens,
        )
        waiting._resolve_prefill_dp_rank = lambda request: 0
        decode.scheduler.disagg_decode_prealloc_queue = waiting

    def _of(self, node: Node) -> dict[str, Any]:
        return {
            "scheduler": node.scheduler,
            "token_to_kv_pool": node.memory,
            "req_to_metadata_buffer_idx_allocator": node.slots,
            "metadata_buffers": node.metadata,
            "max_total_num_tokens": node.pages * node.page_size,
            "transfer_backend": node.scheduler.transfer_backend,
        }

    # --- what happens

    def submit(self, rid: str, tokens: Sequence[int], room: int, max_new_tokens: int) -> tuple[Any, Any]:
        """The router sends one request to both nodes. Returns each node's own."""
        both = []
        for node in (self.prefill, self.decode):
            request = drift.make_request(self.release, rid, tokens, room, max_new_tokens)
            request.time_stats.trace_ctx = Silent()
            request.time_stats.compute_and_observe_kv_transfer_metrics = lambda *arguments, **named: None
            with self.calling("the intake"):
                node.receive(request, self.settings.truncates)
            both.append(request)
        return both[0], both[1]

    def abort(self, rid: str) -> None:
        """The client of the request goes away; both nodes hear of it."""
        with self.calling("Scheduler.abort_request"):
            for node in (self.decode, self.prefill):
                node.scheduler.abort_request(drift.abort_message(self.release, rid))

    def schedule_prefill(self) -> tuple[Computation, ...]:
        """One round of prefill's loop up to the forward pass: which requests are bootstrapped, and those that fit get their pages."""
        torch = import_module("torch")

        node, scheduler = self.prefill, self.prefill.scheduler
        work: list[Computation] = []
        with self.calling("PrefillBootstrapQueue.pop_bootstrapped"):
            scheduler.waiting_queue.extend(scheduler.disagg_prefill_bootstrap_queue.pop_bootstrapped())
            waiting, scheduler.waiting_queue = scheduler.waiting_queue, []
            for request in waiting:
                length = len(request.origin_input_ids)
                fits = pages_for(length, node.page_size) * node.page_size <= node.allocator.available_size()
                if not fits or not node.rows.available_size():
                    scheduler.waiting_queue.append(request)
                    continue
                node.rows.alloc([request])
                places = node.allocator.alloc_extend(
                    prefix_lens=torch.tensor([0]),
                    prefix_lens_cpu=torch.tensor([0]),
                    seq_lens=torch.tensor([length]),
                    seq_lens_cpu=torch.tensor([length]),
                    last_loc=torch.tensor([-1]),
                    extend_num_tokens=length,
                )
                node.write_row(request, 0, places)
                drift.mark_computed(request, length)
                work.append(Computation(request, 0, length))
        return tuple(work)

    def finish_prefill(self, work: Sequence[Computation], sampled: Sequence[int]) -> None:
        """The forward pass has run: its results are processed, and what can be sent is sent."""
        torch = import_module("torch")

        scheduler = self.prefill.scheduler
        counts = [part.count for part in work]
        result = StandIn(
            logits_output=None,
            next_token_ids=torch.tensor(list(sampled)),
            extend_input_len_per_req=counts,
            extend_logprob_start_len_per_req=counts,
            copy_done=None,
            routed_experts_output=None,
            indexer_topk_output=None,
            next_draft_input=None,
            can_run_cuda_graph=False,
            auxiliary_host_output=None,
        )
        batch = StandIn(
            reqs=[part.request for part in work], spec_info=None, prefill_stats=None, dp_cooperation_info=None, return_logprob=False
        )
        if work:
            with self.calling("Scheduler.process_batch_result_disagg_prefill"):
                scheduler.process_batch_result_disagg_prefill(batch, result)
        with self.calling("Scheduler.process_disagg_prefill_inflight_queue"):
            scheduler.process_disagg_prefill_inflight_queue()

    def schedule_decode(self) -> tuple[Computation, ...]:
        """One round of decode's loop up to the forward pass: preallocation, transfers that have succeeded, and one more token for each
        request that runs; one that gets no place for it waits."""
        torch = import_module("torch")

        node, scheduler = self.decode, self.decode.scheduler
        with self.calling("Scheduler.process_decode_queue"):
            scheduler.process_decode_queue()
            running = scheduler.running_batch.reqs
            running.extend(scheduler.waiting_queue)
            scheduler.waiting_queue = []
            work: list[Computation] = []
            for request in running:
                length = drift.allocated_length(request)
                last = node.rows.req_to_token[drift.row_number(request), length - 1].to(torch.int64).reshape(1)
                needs_page = length % node.page_size == 0
                if needs_page and node.allocator.available_size() < node.page_size:
                    continue
                places = node.allocator.alloc_decode(torch.tensor([length + 1]), torch.tensor([length + 1]), last)
                node.write_row(request, length, places)
                work.append(Computation(request, length, 1))
        return tuple(work)

    def finish_decode(self, work: Sequence[Computation], sampled: Sequence[int]) -> None:
        """The forward pass has run: each request gets its token, and one that has all of them, or whose client is gone, ends."""
        node, scheduler = self.decode, self.decode.scheduler
        with self.calling("release_kv_cache"):
            for part, token in zip(work, sampled, strict=True):
                request = part.request
                request.output_ids.append(token)
                if request.to_finish or len(request.output_ids) >= request.sampling_params.max_new_tokens:
                    request.finished_reason = drift.stop_reason(self.release, request)
                    drift.release_pages(self.release, request, node.cache)
                    node.answers.stream_output([request])
                    scheduler.running_batch.reqs.remove(request)

    def calling(self, what: str) -> Any:
        """As `Release.calling`, where the schedulers are objects of ours too."""
        return self.release.calling(what, self.scheduler)


def pages_for(tokens: int, page_size: int) -> int:
    """How many pages that many tokens take."""
    return -(-tokens // page_size)


def with_manager(queue: type, manager: Any) -> type:
    """The queue's class with a manager of transfers of ours."""
    return type(queue.__name__, (queue,), {"_init_kv_manager": lambda self: manager})
