"""What handlers answer with and read: JSON, plain text, refusals; a body of JSON that is taken only if it means one thing."""

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
        """The bytes."""
        return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS)


def refuse(why: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> NoReturn:
    """End a request with an error that says why."""
    raise HTTPException(status, why)


def whole_number(request: Request, name: str, default: int, most: int) -> int:
    """A parameter of the query, from 1 to `most`."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_INT_DIGITS and 1 <= int(text) <= most):
        refuse(f"{name} is a whole number from 1 to {most}")
    return int(text)


async def json_object(request: Request, *names: str) -> dict[str, Any]:
    """The body: a JSON object with just these names. What JSON leaves open (a name twice, NaN, half a character) is refused."""
    try:
        body = strict_json(await request.body())
    except QueryError as error:
        refuse(str(error))
    if not isinstance(body, dict) or set(body) != set(names):
        refuse(f"the body is an object with {' and '.join(repr(name) for name in names)}")
    return body


def known(number: int) -> int | None:
    """In reports -1 stands for what is not known or not there; JSON has a word for it."""
    return None if number < 0 else number
