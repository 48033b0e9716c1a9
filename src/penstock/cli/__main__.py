"""Makes `python -m penstock.cli` the same as `penstock`."""

from penstock.cli import main

if __name__ == "__main__":
    main()
