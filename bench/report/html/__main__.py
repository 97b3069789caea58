"""python -m planstep.bench.report.html DIR: the report anew, from DIR/results.json. Next: page.py."""

from .page import main

if __name__ == "__main__":
    main()
