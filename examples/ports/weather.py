"""The weather server: alerts and forecasts of the US National Weather Service.

    python examples/ports/weather.py

The usual version with FastMCP opens an HTTP client for each request, and returns a sentence if that fails. Here, the lifespan
opens one client for all (`ctx.state`, in FastMCP the `lifespan_context`), and a failure is a `ToolError`. FastMCP's `@mcp.tool()`
is `@server.tool`, without parentheses.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, TypeVar

import httpx2
from pydantic import BaseModel, Field, ValidationError

from trio_mcp import Context, Server, ToolError

M = TypeVar("M", bound=BaseModel)

Latitude = Annotated[float, Field(ge=-90, le=90)]
Longitude = Annotated[float, Field(ge=-180, le=180)]


class Alert(BaseModel):
    event: str
    area: str = Field(alias="areaDesc")
    severity: str


class Feature(BaseModel):
    properties: Alert


class Alerts(BaseModel):
    features: list[Feature]


class Links(BaseModel):
    forecast: str


class Point(BaseModel):
    properties: Links


class Period(BaseModel):
    name: str
    temperature: int
    unit: str = Field(alias="temperatureUnit")
    forecast: str = Field(alias="shortForecast")


class Periods(BaseModel):
    periods: list[Period]


class Forecast(BaseModel):
    properties: Periods


@asynccontextmanager
async def lifespan(_server: Server) -> AsyncIterator[httpx2.AsyncClient]:
    url = os.environ.get("WEATHER_URL", "https://api.weather.gov")
    async with httpx2.AsyncClient(base_url=url, timeout=30, headers={"user-agent": "trio-mcp-example"}) as client:
        yield client


server = Server("weather", lifespan=lifespan)


@server.tool
async def get_alerts(
    state: Annotated[str, Field(pattern="^[A-Z]{2}$", description="Two letters, such as CA.")],
    ctx: Context[httpx2.AsyncClient],
) -> list[str]:
    """List the active weather alerts of a US state."""
    found = await fetch(ctx.state, f"/alerts/active/area/{state}", Alerts)
    alerts = [feature.properties for feature in found.features]
    return [f"{alert.event} ({alert.severity}): {alert.area}" for alert in alerts]


@server.tool
async def get_forecast(latitude: Latitude, longitude: Longitude, ctx: Context[httpx2.AsyncClient]) -> list[str]:
    """Forecast the next days at a place in the US."""
    point = await fetch(ctx.state, f"/points/{latitude:.4f},{longitude:.4f}", Point)
    found = await fetch(ctx.state, point.properties.forecast, Forecast)
    return [
        f"{period.name}: {period.temperature}°{period.unit}, {period.forecast}"
        for period in found.properties.periods[:5]
    ]


async def fetch(client: httpx2.AsyncClient, url: str, answer: type[M]) -> M:
    try:
        response = await client.get(url)
        response.raise_for_status()
        return answer.model_validate_json(response.content)
    except (httpx2.HTTPError, ValidationError) as error:
        raise ToolError("The weather service did not answer as expected. Try again later.") from error


if __name__ == "__main__":
    server.run()
