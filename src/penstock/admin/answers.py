"""What handlers return and read: JSON, errors, numbers from the query, and bodies of strict JSON."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, NoReturn

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from penstock.errors import QueryError
from penstock.queries.forms import strict_json

_MAX_INT_DIGITS = 20


class Json(Response):
    """A value as JSON."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Encode the value."""
        return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS)


def refuse(why: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> NoReturn:
    """End a request with an error status and a message."""
    raise HTTPException(status, why)


def whole_number(request: Request, name: str, default: int, most: int) -> int:
    """Return a query parameter, a whole number from 1 to `most`."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_INT_DIGITS and 1 <= int(text) <= most):
        refuse(f"Invalid {name} {text[:50]!r}: expected a whole number from 1 to {most}.")
    return int(text)


async def json_object(request: Request, *names: str) -> dict[str, Any]:
    """Return the body, a JSON object with exactly these names, if any. Ambiguous JSON (a duplicate name, NaN, …) is refused."""
    try:
        body = strict_json(await request.body())
    except QueryError as error:
        refuse(str(error))
    if not isinstance(body, dict) or set(body) != set(names):
        refuse(f"Invalid body: expected a JSON object with {' and '.join(repr(name) for name in names) or 'nothing'}.")
    return body


def known(number: int) -> int | None:
    """Turn -1, which means unknown or absent in reports, into JSON's null."""
    return None if number < 0 else number
