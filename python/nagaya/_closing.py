# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Objects that a `with` block closes at its end."""

from types import TracebackType
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from typing_extensions import Self


class Closing:
    """The base of classes with a method close()."""

    __slots__ = ()

    def close(self) -> None:
        """Releases the object. Later calls have no effect."""
        raise NotImplementedError

    def __enter__(self) -> "Self":
        return self

    def __exit__(
        self,
        _kind: Optional[type[BaseException]],
        _value: Optional[BaseException],
        _trace: Optional[TracebackType],
    ) -> None:
        self.close()
