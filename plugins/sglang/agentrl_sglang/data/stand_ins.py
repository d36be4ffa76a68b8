"""Stand-ins for packages that SGLang imports on a CPU but never calls for a dense text model.

It is copied into SGLang's environment. ``install("torchvision")`` makes any submodule importable and any attribute
there. What is made can be named, subclassed and compared; calling it says what is missing.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any


class _Absent(type):
    """The type of everything that is not there: most of it is used as a type only."""

    def __getattr__(cls, name: str) -> Any:
        return _absent(f"{cls.__module__}.{cls.__name__}", name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls.__bases__ != (object,):
            return super().__call__(*args, **kwargs)
        raise NotImplementedError(
            f"{cls.__module__}.{cls.__name__} is not there: only dense text models run on this CPU"
        )


def _absent(module: str, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Absent(name, (), {"__module__": module})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every submodule of one package."""

    def __init__(self, package: str) -> None:
        self._prefix = f"{package}."

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.startswith(self._prefix) else None

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = lambda name: _absent(module.__name__, name)


def install(package: str) -> None:
    """Make ``package``, whose ``__init__`` calls this, stand in for the real one."""
    sys.meta_path.insert(0, _Finder(package))

    def attribute(name: str) -> Any:
        # Lower case names of torchvision are submodules, those of sgl_kernel are functions.
        if name.islower() and not name.startswith("__") and package != "sgl_kernel":
            return importlib.import_module(f"{package}.{name}")
        return _absent(package, name)

    vars(sys.modules[package])["__getattr__"] = attribute
