"""``python -m drivers.bench``."""

from drivers.bench import main

if __name__ == "__main__":
    raise SystemExit(main())
