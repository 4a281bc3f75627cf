"""The types of what `ctx.step` returns."""

from typing import assert_type

from trio_mcp import Context


async def load(year: int) -> int:
    return year


def plain(year: int) -> str:
    return str(year)


async def f(ctx: Context) -> None:
    x = await ctx.step("sales", load, 3)
    assert_type(x, int)
    y = await ctx.step("sales", plain, 3)
    assert_type(y, str)
    z = await ctx.step("n", lambda: 7)
    assert_type(z, int)
    o = await ctx.step("n", load, 7, idempotent=True)
    assert_type(o, int)


async def g(ctx: Context) -> int:
    return await ctx.step("sales", load, 3)
