"""Makes the report again, from DIR/results.json: python -m planstep.bench.report.html DIR. Next: page.py."""

from .page import main

if __name__ == "__main__":
    main()
