"""Stand-ins for what an engine imports and page bookkeeping does not need: GPU kernels, tokenizers, configuration classes.

A stand-in lets ``import``, ``from x import Y``, subclassing, decorating, ``isinstance`` and annotations pass. It emulates nothing: where a
value matters, a `Plan` gives it. `StandIns` notes what was stood in for, and once it is sealed, calling a stand-in that the plan does not
name is `EngineDriftError`: an engine that begins to depend on one is never taken for an engine with a bug.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from kvmodel.errors import EngineDriftError

__all__ = ["Plan", "StandIns"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is stood in for. Names are those of modules; each stands for the module and everything below it.

    `missing`  packages that are stood in for where they are not installed
    `forced`   packages and modules that are stood in for in any case
    `package`  the engine's own package, and `real`, its modules that are themselves; the rest of it are stand-ins, through which real
               modules below are still found, without running an ``__init__.py``. `real` None: all of it is real
    `values`   for a stand-in module its real attributes, where the engine computes with them
    `called`   stand-ins that may be called after sealing ("torch.no_grad"); a module's name stands for everything in it
    `hidden`   whether probes by ``importlib.util.find_spec`` keep being told that a missing package is missing
    """

    missing: frozenset[str] = frozenset()
    forced: frozenset[str] = frozenset()
    package: str = ""
    real: tuple[str, ...] | None = None
    values: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    called: tuple[str, ...] = ()
    hidden: bool = True


class StandIns(MetaPathFinder, Loader):
    """The finder and loader of one plan's stand-ins; `root` is where the engine's package is.

    `modules` maps each stand-in module that was imported to the attributes that were asked of it; `calls` counts calls.
    """

    def __init__(self, plan: Plan, root: Path | None = None, engine: str = "", release: str = "", known: str = "") -> None:
        self.plan, self.root = plan, root
        self.engine, self.release, self.known = engine, release, known
        self.modules: dict[str, set[str]] = {}
        self.calls: dict[str, int] = {}
        self.sealed = False
        self._installed: dict[str, bool] = {}
        self._probe: Callable[..., importlib.machinery.ModuleSpec | None] | None = None

    def install(self) -> StandIns:
        """Take part in imports, before everything else."""
        sys.meta_path.insert(0, self)
        if self.plan.hidden:
            self._probe = importlib.util.find_spec
            importlib.util.find_spec = self._hiding
        return self

    def remove(self) -> None:
        """Undo `install`: the stand-ins leave ``sys.modules`` too."""
        sys.meta_path.remove(self)
        if self._probe is not None:
            importlib.util.find_spec, self._probe = self._probe, None
        for name in self.modules:
            sys.modules.pop(name, None)

    def seal(self) -> None:
        """From now on a call of a stand-in that the plan does not name is EngineDriftError."""
        self.sealed = True

    def stands_in(self, name: str) -> bool:
        """Whether the module `name` is a stand-in."""
        plan, top = self.plan, name.partition(".")[0]
        if _within(name, plan.forced):
            return True
        if top == plan.package:
            return plan.real is not None and not _within(name, plan.real)
        return top in plan.missing and not self._is_installed(top)

    def _is_installed(self, top: str) -> bool:
        if top not in self._installed:
            finders = [finder for finder in sys.meta_path if not isinstance(finder, StandIns)]
            self._installed[top] = any(finder.find_spec(top, None) is not None for finder in finders if hasattr(finder, "find_spec"))
        return self._installed[top]

    def _hiding(self, name: str, package: str | None = None) -> importlib.machinery.ModuleSpec | None:
        assert self._probe is not None
        module = sys.modules.get(name)
        if isinstance(module, StandInModule):
            return None
        spec = self._probe(name, package)
        return None if spec is not None and isinstance(spec.loader, StandIns) else spec

    # --- the import protocol

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if self.stands_in(fullname) else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = StandInModule(spec.name, self)
        vars(module).update(self.plan.values.get(spec.name, {}))
        return module

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        self.modules.setdefault(name, set())
        top, _, below = name.partition(".")
        real_below = top == self.plan.package and self.root is not None
        module.__path__ = [str(self.root.joinpath(top, *below.split(".") if below else ()))] if real_below and self.root else []
        module.__file__ = f"<stand-in for {name}>"

    # --- what stand-ins tell

    def attribute(self, module: str, name: str) -> object:
        """What `module`, a stand-in, has by this name: a module, a class or something callable."""
        full = f"{module}.{name}"
        if full in sys.modules:
            return sys.modules[full]
        if full in self.plan.values or self._is_real_module(full):
            return importlib.import_module(full)
        self.modules.setdefault(module, set()).add(name)
        return stand_in_class(full, self) if name[:1].isupper() else Anything(full, self)

    def _is_real_module(self, name: str) -> bool:
        if self.stands_in(name) or name.partition(".")[0] != self.plan.package or self.root is None:
            return False
        place = self.root.joinpath(*name.split("."))
        return place.is_dir() or place.with_suffix(".py").is_file()

    def note_call(self, name: str) -> None:
        """A stand-in is called. Raises EngineDriftError once sealed, unless the plan says that it may be."""
        self.calls[name] = self.calls.get(name, 0) + 1
        if self.sealed and not _within(name, self.plan.called):
            raise EngineDriftError(
                self.engine, self.release, f"bookkeeping without {name}", self.known, f"{name} is a stand-in here, and is called"
            )


def _within(name: str, places: frozenset[str] | tuple[str, ...]) -> bool:
    """Whether `name` is one of `places` or below one."""
    return name in places or any(name.startswith(place + ".") for place in places)


class StandInModule(ModuleType):
    """A module that has every attribute."""

    def __init__(self, name: str, owner: StandIns) -> None:
        super().__init__(name)
        self.__owner = owner

    def __getattr__(self, name: str) -> object:
        if _special(name):
            raise AttributeError(f"module {self.__name__} (a stand-in) has no {name}")
        found = self.__owner.attribute(self.__name__, name)
        setattr(self, name, found)
        return found


class Anything:
    """A stand-in for a function, a decorator or a constant."""

    def __init__(self, name: str, owner: StandIns) -> None:
        self.__dict__["_stands_for"] = (name, owner)

    def __call__(self, *arguments: object, **named: object) -> object:
        name, owner = self.__dict__["_stands_for"]
        owner.note_call(name)
        decorated = arguments[0] if len(arguments) == 1 and not named else None
        return decorated if callable(decorated) else Anything(f"{name}()", owner)

    def __getattr__(self, name: str) -> object:
        if _special(name):
            raise AttributeError(name)
        own, owner = self.__dict__["_stands_for"]
        return Anything(f"{own}.{name}", owner)

    @property
    def __func__(self) -> object:
        return self

    def __getitem__(self, key: object) -> object:
        return self

    def __setitem__(self, key: object, value: object) -> None:
        return None

    def __contains__(self, key: object) -> bool:
        return False

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __or__(self, other: object) -> object:
        return object

    __ror__ = __or__

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __subclasscheck__(self, subclass: type) -> bool:
        return False

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return ()

    def __enter__(self) -> object:
        return self

    def __exit__(self, *problem: object) -> None:
        return None

    def __repr__(self) -> str:
        return f"<stand-in for {self.__dict__['_stands_for'][0]}>"


class StandInClass(ABCMeta):
    """The class of stand-in classes: every attribute of them is there."""

    _stands_for: tuple[str, StandIns]

    def __getattr__(cls, name: str) -> object:
        if _special(name) or name.startswith("_abc_"):
            raise AttributeError(name)
        own, owner = cls._stands_for
        return Anything(f"{own}.{name}", owner)

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        if "_stands_for" in vars(cls):  # the stand-in, and no class of the engine below it
            cls._stands_for[1].note_call(cls._stands_for[0])
            if len(arguments) == 1 and not named and callable(arguments[0]):
                return arguments[0]
        return super().__call__(*arguments, **named)

    def __getitem__(cls, key: object) -> object:
        return cls

    def __setitem__(cls, key: object, value: object) -> None:
        return None

    def __iter__(cls) -> Iterator[object]:
        return iter(())

    def __contains__(cls, key: object) -> bool:
        return False

    def __or__(cls, other: object) -> Any:
        return cls

    __ror__ = __or__


def stand_in_class(name: str, owner: StandIns) -> type:
    """A class that can be subclassed, subscribed, instantiated and asked for anything."""

    def construct(self: object, *arguments: object, **named: object) -> None:
        return None

    def attribute(self: object, attribute: str) -> object:
        if _special(attribute):
            raise AttributeError(attribute)
        return Anything(f"{name}.{attribute}", owner)

    def accept(cls: type, /, *arguments: object, **named: object) -> None:
        return None

    def schema(cls: type, source: object, handler: object) -> object:
        return importlib.import_module("pydantic_core.core_schema").any_schema()

    module, _, short = name.rpartition(".")
    content: dict[str, object] = {
        "_stands_for": (name, owner),
        "__module__": module,
        "__init__": construct,
        "__getattr__": attribute,
        "__init_subclass__": classmethod(accept),
        "__class_getitem__": classmethod(lambda cls, key: cls),
        "__get_pydantic_core_schema__": classmethod(schema),  # a field of a real pydantic model may be of this class
    }
    return StandInClass(short, (), content)


def _special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
