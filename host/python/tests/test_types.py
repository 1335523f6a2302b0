"""The stub has every function of the extension module, with its parameters."""

import ast
import inspect
from pathlib import Path

from weir import _weir


def test_the_stub_is_that_of_the_module() -> None:
    stub = Path(_weir.__file__).with_name("_weir.pyi").read_text()
    declared = {
        function.name: [arg.arg for arg in [*function.args.args, *function.args.kwonlyargs]]
        for function in ast.parse(stub).body
        if isinstance(function, ast.FunctionDef)
    }
    built = {
        name: list(inspect.signature(function).parameters)
        for name, function in inspect.getmembers(_weir, inspect.isbuiltin)
    }
    assert declared == built
