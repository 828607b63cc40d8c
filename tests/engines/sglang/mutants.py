"""Bugs put into the newest release at run time, each of which a machine has to find.

Each mutant says what it changes (of the release that is imported), which machine finds it, and by which properties it may show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

__all__ = ["MUTANTS", "Mutant"]

Change = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug: `change` puts it into the imported release."""

    name: str
    machine: str
    shows_as: frozenset[str]
    change: Change


MUTANTS: list[Mutant] = []


def mutant(machine: str, *shows_as: str) -> Callable[[Change], Change]:
    """Register a bug that `machine` has to find as a violation of one of `shows_as`."""

    def register(change: Change) -> Change:
        MUTANTS.append(Mutant(change.__name__, machine, frozenset(shows_as), change))
        return change

    return register


def of(name: str) -> Any:
    """A module of the release."""
    return import_module(f"sglang.srt.{name}")


def paged() -> Any:
    return of("mem_cache.allocator").PagedTokenToKVPoolAllocator


def around(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace a method by one that is given the original first."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *arguments, **named: wrapper(original, *arguments, **named))


# --- the doors, and what prefill announces


@mutant("handoff", "fresh_read", "isolated_read")
def rejects_are_forgotten() -> None:
    """Neither prefill's door nor the end of its forward pass asks whether a request was rejected."""
    of("disaggregation.prefill").is_unadmitted_reject = lambda request: False
    of("disaggregation.prefill").is_aborted = lambda request: False


@mutant("handoff", "pages_conserved")
def retired_keeps_its_page() -> None:
    """The door lets rejects in, and retiring one after the forward pass gives back nothing."""
    prefill = of("disaggregation.prefill")
    prefill.is_unadmitted_reject = lambda request: False
    prefill.SchedulerDisaggregationPrefillMixin._retire_aborted_prefill_result = lambda self, request: (
        request.update_finish_state() or True
    )


@mutant("handoff", "fresh_read", "isolated_read")
def announces_one_page() -> None:
    """Prefill announces and sends the first page of a prompt, whatever its length."""
    prefill = of("disaggregation.prefill")
    prefill.PrefillBootstrapQueue._num_pages_to_send = lambda self, request, prefix: 1
    around(prefill, "kv_to_page_indices", lambda original, *arguments: original(*arguments)[:1])


@mutant("handoff", "fresh_read", "isolated_read")
def pages_in_another_order() -> None:
    """Decode's page list is the other way round."""
    decode = of("disaggregation.decode").DecodePreallocQueue
    around(decode, "_transfer_page_indices", lambda original, *arguments: original(*arguments)[::-1])


# --- aborts and deferred release


@mutant("late-write", "isolated_write", "no_use_after_free")
def release_is_not_deferred() -> None:
    """The default of 0.5.19 and 0.5.20: pages of an aborted transfer are free at once."""
    of("environ").envs.SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE.set(False)


@mutant("late-write", "isolated_write", "no_use_after_free")
def deadline_is_now() -> None:
    """The deferred release gives up at once."""
    decode = of("disaggregation.decode").DecodeTransferQueue

    def defer(original: Any, self: Any, request: Any) -> None:
        self.deferred_kv_release_timeout = 0.0
        original(self, request)

    around(decode, "_defer_release", defer)


@mutant("late-write", "isolated_write", "no_use_after_free", "engine_error")
def deferred_and_released() -> None:
    """An aborted transfer is released, and its release deferred as well."""
    decode = of("disaggregation.decode").DecodeTransferQueue

    def defer(original: Any, self: Any, request: Any) -> None:
        original(self, request)
        self._release_request(request)

    around(decode, "_defer_release", defer)


# --- the end of a request


@mutant("handoff", "pages_conserved")
def pages_are_forgotten() -> None:
    """A request that ends gives back its row and not its pages."""
    of("mem_cache.base_prefix_cache").BasePrefixCache.free_kv_row = lambda self, kv, ranges: None


@mutant("handoff", "pages_conserved", "no_double_free", "exclusive_owner", "engine_error")
def one_row_for_two() -> None:
    """The row that decode hands out stays the next one to be handed out."""

    def alloc(original: Any, self: Any, requests: Any) -> Any:
        rows = original(self, requests)
        self.free_slots = [*rows, *self.free_slots]
        return rows

    around(of("disaggregation.decode").DecodeReqToTokenPool, "alloc", alloc)


@mutant("handoff", "engine_error", "pages_conserved")
def admits_without_room() -> None:
    """Decode reserves pages without asking how many there are."""
    of("disaggregation.decode").DecodePreallocQueue._allocatable_token_budgets = lambda self, *arguments, **named: 1 << 20


# --- the allocators


@mutant("pages", "no_double_free", "pages_conserved", "exclusive_owner", "range:entries")
def freed_twice() -> None:
    """A page that is given back goes into the free list twice."""
    around(paged(), "_release_page_ids", lambda original, self, *pages: original(self, *pages, *pages))


@mutant("pages", "no_double_free", "pages_conserved", "exclusive_owner", "range:entries")
def sorted_in_and_kept() -> None:
    """Pages that were given back are sorted into the free list, and stay where they waited."""

    def merge(original: Any, self: Any) -> None:
        staged, count = self.staged_pages, self.num_staged_pages
        original(self)
        self.staged_pages, self.num_staged_pages = staged, count

    around(paged(), "merge_and_sort_free", merge)


@mutant("pages", "no_double_free", "pages_conserved", "exclusive_owner")
def handed_out_and_free() -> None:
    """The last page that is handed out to a prompt stays in the free list."""

    def extend(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
        before = self.free_pages
        places = original(self, *arguments, **named)
        if places is not None and len(self.free_pages) < len(before):
            self.free_pages = before[len(before) - len(self.free_pages) - 1 :]
        return places

    around(paged(), "alloc_extend", extend)


@mutant("pages", "no_double_free", "pages_conserved", "exclusive_owner")
def one_more_token_for_nothing() -> None:
    """The page of one more token stays in the free list."""

    def decode(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
        before = self.free_pages
        places = original(self, *arguments, **named)
        self.free_pages = before
        return places

    around(paged(), "alloc_decode", decode)


@mutant("tokens", "no_double_free", "pages_conserved", "exclusive_owner", "range:entries")
def tokens_freed_twice() -> None:
    """The last place that is given back goes into the free list twice."""
    torch: Any = import_module("torch")
    around(
        of("mem_cache.allocator").TokenToKVPoolAllocator,
        "free",
        lambda original, self, places: original(self, torch.cat((places, places[-1:]))),
    )


@mutant("tokens", "pages_conserved")
def token_is_lost() -> None:
    """The first place that is given back is lost."""
    around(of("mem_cache.allocator").TokenToKVPoolAllocator, "free", lambda original, self, places: original(self, places[1:]))
