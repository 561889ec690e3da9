"""Empty stand-ins for packages that SGLang imports at its top level and never calls for a text model on a CPU.

`tests/engines/install.sh` puts this module into SGLang's environment with a .pth file that imports it, so that the
processes that a server starts have it as well. A package that is really installed is left alone.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types

# CUDA's kernels; a compiler of kernels (1 GB); what PyPI has as a CUDA build, which does not load beside a CPU torch
NEVER_CALLED = ("sgl_kernel", "triton", "torchvision")


class _Anything(type):
    def __getattr__(cls, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Module(name)


def _taking_anything(*_: object, **__: object) -> None:
    """Stand in for the constructor of a class that is never used."""


class _Module(types.ModuleType):
    """A module that has whatever is asked for: classes for capital letters, else modules that can be called."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__file__ = __file__
        self.__version__ = "0"
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        made = (
            _Anything(name, (), {"__init__": _taking_anything})
            if name[0].isupper()
            else _Module(f"{self.__name__}.{name}")
        )
        setattr(self, name, made)
        return made

    def __call__(self, *args: object, **_: object) -> object:
        """Serve as a decorator, with arguments or without."""
        return args[0] if len(args) == 1 and callable(args[0]) else lambda function: function


class _Finder:
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(self, fullname: str, _path: object = None, _target: object = None) -> object:
        if fullname.partition(".")[0] not in self._names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def install(*names: str) -> None:
    """Let these packages be imported, unless they are really there."""
    missing = {name for name in names if importlib.machinery.PathFinder.find_spec(name) is None}
    if missing:
        sys.meta_path.append(_Finder(missing))


install(*NEVER_CALLED)
