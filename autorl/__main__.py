"""`python -m autorl` is `autorl`."""

from autorl.cli import main

if __name__ == "__main__":
    main()
