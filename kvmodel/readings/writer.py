"""Python source of writes to a sparse state: they keep its indices, note what changed, and counters out of range."""

from __future__ import annotations

from kvmodel.language.types import Counter
from kvmodel.readings.emitter import Emitter, indented, pack, tuple_of
from kvmodel.readings.sparse import Index, Store

__all__ = ["Writer"]


class Writer:
    """Emits writes into the function that `emitter` emits. Only once no index can be added any more."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.layout = emitter.layout

    def write(self, variable: str, keys: list[str], value: str, changed: str) -> list[str]:
        """Statements that write a value and note the place in `changed` if it differs from before.

        `keys` and `value` are names or constants; counters out of range are noted in the set ``R``.
        """
        store = self.layout.stores[variable]
        if store.relation and store.arity:
            return self._write_relation(store, keys, value, changed)
        main, old, default = self.emitter.container(store.slot), self.emitter.fresh(), repr(store.default)
        if not store.arity:
            lines, body = [f"{old} = {main}[0]"], [f"{main}[0] = {value}"]
        else:
            key = pack(keys)
            lines = [f"{old} = {main}.get({key}, {default})"]
            body = _either(value, default, [f"del {main}[{key}]"], [f"{main}[{key}] = {value}"])
            for index, slot in self.layout.indices_of(variable):
                body += self._index_value(index, slot, keys, (old, value, default))
        body.append(_note(store, keys, changed))
        kind = store.variable.type
        if isinstance(kind, Counter):
            place = f"({store.slot}, {tuple_of(keys)})"
            body += [f"if {kind.low} <= {value} <= {kind.high}:", f"    R.discard({place})", "else:", f"    R.add({place})"]
        return [*lines, f"if {old} != {value}:", *indented(body)]

    def write_block(self, variable: str, keys: list[str], position: int, group: str, value: str, changed: str) -> list[str]:
        """Statements that write one value at many places: `group` has the elements of the key at `position`, all of them
        places where the value differs from what is there."""
        store = self.layout.stores[variable]
        key, rest = keys[position], [part for place, part in enumerate(keys) if place != position]
        main, default = self.emitter.container(store.slot), repr(store.default)
        indices = self.layout.indices_of(variable)
        if store.relation and (store.arity == 1 or (store.rows and position == 1)):
            if store.rows:
                row = self.emitter.fresh()
                add = [
                    f"{row} = {main}.get({rest[0]})",
                    f"if {row} is None:",
                    f"    {row} = {main}[{rest[0]}] = set()",
                    f"{row}.update({group})",
                ]
                drop = [
                    f"{row} = {main}[{rest[0]}]",
                    f"{row}.difference_update({group})",
                    f"if not {row}:",
                    f"    del {main}[{rest[0]}]",
                ]
                note = f"{changed}.setdefault({rest[0]}, []).extend({group})"
            else:
                add, drop = [f"{main}.update({group})"], [f"{main}.difference_update({group})"]
                note = f"{changed}.extend({group})"
            add += self._index_block(store, keys, position, group, True)
            drop += self._index_block(store, keys, position, group, False)
            return [f"if {group}:", *indented([*_either(value, default, drop, add), note])]
        if store.arity == 1 and not store.relation and not indices and not isinstance(store.variable.type, Counter):
            drop, add = [f"for {key} in {group}:", f"    del {main}[{key}]"], [f"{main}.update(dict.fromkeys({group}, {value}))"]
            return [*_either(value, default, drop, add), f"{changed}.extend({group})"]
        return [f"for {key} in {group}:", *indented(self.write(variable, keys, value, changed))]

    def _write_relation(self, store: Store, keys: list[str], value: str, changed: str) -> list[str]:
        default = repr(store.default)
        if value in ("True", "False"):
            return self._drop(store, keys, changed) if value == default else self._put(store, keys, changed)
        return _either(value, default, self._drop(store, keys, changed), self._put(store, keys, changed))

    def _put(self, store: Store, keys: list[str], changed: str) -> list[str]:
        main = self.emitter.container(store.slot)
        note = [*self.index(store, keys, True), _note(store, keys, changed)]
        if not store.rows:
            return [f"if {pack(keys)} not in {main}:", f"    {main}.add({pack(keys)})", *indented(note)]
        row = self.emitter.fresh()
        return [
            f"{row} = {main}.get({keys[0]})",
            f"if {row} is None:",
            f"    {row} = {main}[{keys[0]}] = set()",
            f"if {keys[1]} not in {row}:",
            f"    {row}.add({keys[1]})",
            *indented(note),
        ]

    def _drop(self, store: Store, keys: list[str], changed: str) -> list[str]:
        main = self.emitter.container(store.slot)
        note = [*self.index(store, keys, False), _note(store, keys, changed)]
        if not store.rows:
            return [f"if {pack(keys)} in {main}:", f"    {main}.remove({pack(keys)})", *indented(note)]
        row = self.emitter.fresh()
        return [
            f"{row} = {main}.get({keys[0]})",
            f"if {row} is not None and {keys[1]} in {row}:",
            f"    {row}.remove({keys[1]})",
            f"    if not {row}:",
            f"        del {main}[{keys[0]}]",
            *indented(note),
        ]

    def index(self, store: Store, keys: list[str], add: bool) -> list[str]:
        """Statements that keep the indices of a relation at a place that was changed."""
        lines: list[str] = []
        for index, slot in self.layout.indices_of(store.variable.name):
            key, rest = _split_key(keys, index.known, None)
            lines += self._index_add(slot, key, rest) if add else self._index_remove(slot, key, rest)
        return lines

    def _index_value(self, index: Index, slot: int, keys: list[str], values: tuple[str, str, str]) -> list[str]:
        old, new, default = values
        old_key, rest = _split_key(keys, index.known, old if index.by_value else None)
        new_key, _ = _split_key(keys, index.known, new if index.by_value else None)
        remove, add = self._index_remove(slot, old_key, rest), self._index_add(slot, new_key, rest)
        if index.by_value:
            return [f"if {old} != {default}:", *indented(remove), *_either(new, default, [], add)]
        return _either(new, default, remove, [f"if {old} == {default}:", *indented(add)])

    def _index_add(self, slot: int, key: str, rest: str) -> list[str]:
        name, group = self.emitter.container(slot), self.emitter.fresh()
        return [
            f"{group} = ({rest},)",
            f"if {name}.setdefault({key}, {group}) is not {group}:",
            f"    {group} = {name}[{key}]",
            f"    if {group}.__class__ is set:",
            f"        {group}.add({rest})",
            "    else:",
            f"        {name}[{key}] = {{{group}[0], {rest}}}",
        ]

    def _index_remove(self, slot: int, key: str, rest: str) -> list[str]:
        name, group = self.emitter.container(slot), self.emitter.fresh()
        return [
            f"{group} = {name}[{key}]",
            f"if len({group}) == 1:",
            f"    del {name}[{key}]",
            "else:",
            f"    {group}.remove({rest})",
        ]

    def _index_block(self, store: Store, keys: list[str], position: int, group: str, add: bool) -> list[str]:
        """Keep the indices for a block of writes; where the key that varies is all that an index knows, and none of it is
        there yet, in one go."""
        lines: list[str] = []
        for index, slot in self.layout.indices_of(store.variable.name):
            name = self.emitter.container(slot)
            key, rest = _split_key(keys, index.known, None)
            one = self._index_add(slot, key, rest) if add else self._index_remove(slot, key, rest)
            each = [f"for {keys[position]} in {group}:", *indented(one)]
            if add and index.known == (position,):
                once = f"{name}.update(dict.fromkeys({group}, ({rest},)))"
                each = [f"if {name}.keys().isdisjoint({group}):", f"    {once}", "else:", *indented(each)]
            lines += each
        return lines


def _note(store: Store, keys: list[str], changed: str) -> str:
    """A statement that notes a changed place: in a list of keys, or for a relation with rows in a dictionary of lists."""
    return f"{changed}.setdefault({keys[0]}, []).append({keys[1]})" if store.rows else f"{changed}.append({pack(keys)})"


def _either(value: str, default: str, same: list[str], other: list[str]) -> list[str]:
    """`same` where the value is the default, `other` where it is not; decided here where the value is a constant."""
    if not value.isidentifier() or value in ("True", "False", "None"):
        return same if value == default else other
    if not same:
        return [f"if {value} != {default}:", *indented(other)]
    return [f"if {value} == {default}:", *indented(same), "else:", *indented(other)]


def _split_key(keys: list[str], known: tuple[int, ...], value: str | None) -> tuple[str, str]:
    front = [keys[position] for position in known] + ([] if value is None else [value])
    rest = [key for position, key in enumerate(keys) if position not in known]
    return pack(front), pack(rest)
