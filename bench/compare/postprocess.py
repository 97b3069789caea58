"""What follows the runs, where they were kept: Spark's verdict, the figures, the report.

    summary ─▶ results.json ─▶ Spark, apart (../judges/spark_process.py) ─▶ summary["spark"]
                           └─▶ figures, made in Python ─▶ report.html, png/ ─▶ summary["report"]

A comparison that was interrupted is not put to Spark: who ended it waits for the end.

Next: ../judges/spark_process.py, ../report/html/page.py.
"""

from typing import Any

from ...cli.output import say
from ..judges.spark_process import prove_apart, without
from .result_folder import Kept

NO_SPARK = ""
"""In place of a master."""


def conclude(summary: dict[str, Any], kept: Kept, master: str | None) -> None:
    """Into the summary; `master`: NO_SPARK, or None for local[*]. Ctrl-C ends Spark, or the report, and
    makes it interrupted."""
    from ..report.html.figures import figures
    from ..report.html.page import write

    kept.save(summary)
    proof: dict[str, Any] = {}
    if summary["interrupted"]:
        summary["spark"] = without("the comparison was interrupted")
    elif master == NO_SPARK:
        summary["spark"] = without("--no-spark")
    else:
        say("Spark judges every run from its trace")
        try:
            proof = prove_apart(kept.path, master, say)
            summary["spark"] = proof["spark"]
        except KeyboardInterrupt:
            summary["spark"], summary["interrupted"] = without("it was interrupted"), True
        if not summary["spark"]["ran"]:
            say(f"Spark did not run: {summary['spark']['why_not']}")
    kept.save(summary)
    try:
        made = proof.get("figures") or figures(kept.path, summary)
        summary["report"] |= write(kept.path, summary, made)
    except KeyboardInterrupt:  # it can be made again from what is kept
        summary["interrupted"] = True


def refuted(summary: dict[str, Any]) -> bool:
    """Whether Spark found what may not be, or other than Python did."""
    spark = summary["spark"]
    return spark["agrees_with_python"] is False or any(check["found"] for check in spark["checks"])
