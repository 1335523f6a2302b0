"""Results with named fields."""

from typing import Any


class Record(dict[str, Any]):
    """An object of a JSON result: a `dict` with its items as attributes.

    A field with the name of a method of `dict`, such as `values`, is an item only.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self)
            raise AttributeError(f"no field {name}; there are: {known}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]
