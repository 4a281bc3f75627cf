"""Our application on ASGI servers that run on asyncio, such as uvicorn."""
