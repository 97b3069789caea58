"""Carries errors of the library over a link: an error's class by name, its arguments, its attributes.

    owner: form_of(error) ─▶ ErrorForm ─▶ a frame ─▶ error_of(form) ─▶ attached: the same class, raised there

Only classes of errors.py are made. An error of another class arrives as a PlanstepError that names it.

Next: server.py.
"""

from typing import Any

from ... import errors
from ...errors import PlanstepError, reason
from ...proto.frames import ErrorForm

_CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, PlanstepError)
}
_PLAIN = (bool, int, float, str, bytes, type(None))
_TEXT_LENGTH = 20_000
_NUMBER_MAX = (1 << 63) - 1


def form_of(error: BaseException) -> ErrorForm:
    """Returns the form of an error. What msgpack cannot carry of it becomes text, and long text is cut off."""
    name = type(error).__name__
    if _CLASSES.get(name) is not type(error):
        return ErrorForm("PlanstepError", (f"{name}: {reason(error)}"[:_TEXT_LENGTH],))
    attributes = [(field, _plain(value)) for field, value in vars(error).items() if field[0] != "_"]
    return ErrorForm(name, tuple(map(_plain, error.args)), tuple(attributes))


def error_of(form: ErrorForm) -> PlanstepError:
    """Makes an error from its form. One that says nothing, as only a faulty owner sends it, gets words."""
    kind = _CLASSES.get(form.name, PlanstepError)
    error = kind.__new__(kind)
    error.args = form.arguments
    vars(error).update(form.attributes)
    try:
        says = bool(str(error))
    except Exception:  # its text is made from attributes
        says = False
    if says:
        return error
    return PlanstepError(
        f"the store's owner says {form.name or 'nothing'}, {form.arguments!r:.200}"
    )


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(map(_plain, value))
    if isinstance(value, str):
        return value[:_TEXT_LENGTH]
    if isinstance(value, int) and abs(value) > _NUMBER_MAX:
        return str(value)
    return value if isinstance(value, _PLAIN) else repr(value)[:_TEXT_LENGTH]
