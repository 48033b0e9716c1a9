"""What handlers answer with and read: JSON, plain text, refusals; a body of JSON that is taken only if it means one thing."""

from __future__ import annotations

import json
import math
from http import HTTPStatus
from typing import Any, NoReturn

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

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
        body = json.loads(
            await request.body(),
            object_pairs_hook=_once_each,
            parse_constant=_not_json,
            parse_float=_finite,
            parse_int=_short,
        )
        json.dumps(body, ensure_ascii=False).encode()  # a lone surrogate is no character
    except (ValueError, RecursionError):
        refuse("the body is not a JSON document that can only be read one way")
    if not isinstance(body, dict) or set(body) != set(names):
        refuse(f"the body is an object with {' and '.join(repr(name) for name in names)}")
    return body


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) < len(pairs):
        raise ValueError("a name twice")
    return names


def _not_json(word: str) -> NoReturn:
    raise ValueError(word)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("too large")
    return number


def _short(text: str) -> int:
    if len(text) > _MAX_INT_DIGITS:
        raise ValueError("too long")
    return int(text)
