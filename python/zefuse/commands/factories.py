"""``FILE.py:function`` and ``module:function``: what a command is told to call for a model and its inputs."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zefuse.errors import InvalidArgumentError, NotFoundError, ZefuseError

HELP = "FILE.py:function or module:function, a function without arguments that returns (model, inputs)"


@dataclass
class Made:
    """A model and what it is called with: ``inputs`` as the factory gave it, a tensor, tuple, list or dict."""

    model: Any
    inputs: Any
    kwargs: dict[str, Any] = field(default_factory=dict)


def check_name(name: str, command: str) -> None:
    """Raises what is wrong with the name, before torch is imported."""
    file, colon, function = name.rpartition(":")
    if not colon or not file or not function.isidentifier():
        example = f"{name}:make" if name.endswith(".py") else "model.py:make"
        raise InvalidArgumentError(
            f"{command}: {name!r}: expected FILE.py:function or module:function, as in {example}; the function returns "
            "(model, inputs)"
        )
    if file.endswith(".py") or "/" in file:
        if not os.path.isfile(file):
            from zefuse.commands.command_parser import suggestion

            folder = Path(file).parent
            names = os.listdir(folder) if folder.is_dir() else []
            raise NotFoundError(f"{command}: no file {file!r}{suggestion(Path(file).name, names)}")
    elif re.fullmatch(r"[\w.]+", file) is None:
        raise InvalidArgumentError(
            f"{command}: {name!r}: {file!r} is neither a file that ends in .py nor a module's name"
        )


def call(name: str, command: str) -> Any:
    """What the function returns. The file's folder (of a module the current one) is on Python's path while it runs, and after:
    the model's methods may import."""
    check_name(name, command)
    place, _, function_name = name.rpartition(":")
    try:
        module = _loaded(place)
        factory = getattr(module, function_name, None)
        if factory is None:
            from zefuse.commands.command_parser import suggestion

            hint = suggestion(function_name, [each for each in dir(module) if not each.startswith("_")])
            raise NotFoundError(f"{command}: no factory {name!r}: {place} has no {function_name!r}{hint}")
        if not callable(factory):
            raise InvalidArgumentError(f"{command}: {name!r} is of type {type(factory).__name__}: expected a function")
        return factory()
    except ZefuseError:
        raise
    except ImportError as error:
        raise NotFoundError(f"{command}: no factory {name!r}: {error}") from error
    except SyntaxError as error:
        raise InvalidArgumentError(f"{command}: {error.filename}:{error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        raise InvalidArgumentError(
            f"{command}: {name!r} raised {type(error).__name__}: {error}\n  ZEFUSE_TRACEBACK=1 shows where"
        ) from error


def model_of(name: str, command: str) -> Made:
    """A factory's model and inputs. Raises InvalidArgumentError where it returns something else."""
    made = call(name, command)
    if isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
        return Made(*made)
    if isinstance(made, tuple) and len(made) == 3 and callable(made[0]) and isinstance(made[2], dict):
        return Made(*made)
    what = f"a tuple of {len(made)}" if isinstance(made, tuple) else type(made).__name__
    if isinstance(made, tuple) and len(made) in (2, 3) and not callable(made[0]):
        what += f", of which the first is of type {type(made[0]).__name__} and cannot be called"
    raise InvalidArgumentError(
        f"{command}: {name!r} returned {what}: expected (model, inputs) or (model, inputs, keyword arguments), inputs being a "
        "tensor, a tuple of arguments or a dict"
    )


def _loaded(place: str) -> Any:
    if not (place.endswith(".py") or "/" in place):
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(place)
    path = Path(place).resolve()
    sys.path.insert(0, str(path.parent))
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"_zefuse_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidArgumentError(f"{place!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # classes are found by their module's name (pickle, dataclasses)
    spec.loader.exec_module(module)
    return module
