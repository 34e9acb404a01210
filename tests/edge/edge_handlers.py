"""Python handlers that tests configure."""

from __future__ import annotations

import asyncio

seen: list[str] = []


def hello(request):
    request.respond(200, b"python\n", b"text/x-py")


async def slow(request):
    await asyncio.sleep(0)
    request.output(b"one\n")
    await request.flush()
    request.output(b"two\n")


async def echo(request):
    waiting = request.read_body()
    if waiting is not None:
        await waiting
    if request.body_file:
        with open(request.body_file, "rb") as file:
            body = file.read()
        request.headers_out.set(b"X-Spooled", b"yes")
    else:
        body = request.body
    request.respond(200, body or b"")


async def wait(request):
    seen.append("waiting")
    request.on_cleanup(lambda: seen.append("cleaned"))
    await asyncio.sleep(0.2)
    request.respond(200, b"waited\n")


def deny(request):
    return 403 if request.header_in(b"x-pass") is None else 0


async def deny_later(request):
    await asyncio.sleep(0)
    return deny(request)


def fail(request):
    raise ValueError("a fault of the handler")


async def fail_later(request):
    await asyncio.sleep(0)
    raise ValueError("a later fault")


async def fail_midway(request):
    request.output(b"begun")
    await request.flush()
    raise ValueError("a fault midway")


def jump(request):
    return request.internal_redirect(b"/target", b"from=jump")


def spin(request):
    return request.internal_redirect(b"/spin")


def note(request):
    seen.append(f"{request.status} {request.uri.decode()}")


def inject(request):
    request.headers_out.set(b"X-A", b"a\r\nB: c")
    request.headers_out.set(b"X\nB", b"v\0w")
    request.content_type = b"text/plain\r\nB: d"
    request.location_out = b"/\r\nB: e"
    return 302


def big(request):
    request.output(b"x" * 3_000_000)


def handle(request):
    seen.append(request.id)
    request.respond(200, b"id")


def status(request):
    return 201


async def flood(request):
    while True:
        request.output(b"x" * 1_000_000)
        await request.flush()


def answer_early(request):
    request.respond(200, b"early\n")


async def answer_and_go_on(request):
    request.respond(200, b"first\n")
    await asyncio.sleep(0)
    seen.append("went on")
