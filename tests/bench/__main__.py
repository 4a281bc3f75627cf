"""`python -m bench`: see `bench/__init__.py`."""

from .command import main

if __name__ == "__main__":
    raise SystemExit(main())
