"""Finishes a comparison after its runs: Spark's verdict, the figures, the report.

    summary ─▶ results.json ─▶ Spark, in a process of its own (../judges/spark_process.py) ─▶ summary["spark"]
                           └─▶ figures, made in Python ─▶ report.html, png/ ─▶ summary["report"]

Spark does not judge an interrupted comparison, since the user waits for its end.

Next: ../judges/spark_process.py, ../report/html/page.py.
"""

from typing import Any

from ...cli.output import say
from ..judges.spark_process import prove_apart, without
from .result_folder import ResultFolder

NO_SPARK = ""
"""Value of `master` to run without Spark."""


def conclude(summary: dict[str, Any], folder: ResultFolder, master: str | None) -> None:
    """Adds Spark's verdict and the report to the summary; `master` is NO_SPARK, or None for local[*].

    Ctrl-C ends Spark, or the report, and marks the comparison as interrupted.
    """
    from ..report.html.figures import figures
    from ..report.html.page import write

    folder.save(summary)
    proof: dict[str, Any] = {}
    if summary["interrupted"]:
        summary["spark"] = without("the comparison was interrupted")
    elif master == NO_SPARK:
        summary["spark"] = without("--no-spark")
    else:
        say("Spark judges every run from its trace")
        try:
            proof = prove_apart(folder.path, master, say)
            summary["spark"] = proof["spark"]
        except KeyboardInterrupt:
            summary["spark"], summary["interrupted"] = without("it was interrupted"), True
        if not summary["spark"]["ran"]:
            say(f"Spark did not run: {summary['spark']['why_not']}")
    folder.save(summary)
    try:
        run_figures = proof.get("figures") or figures(folder.path, summary)
        summary["report"] |= write(folder.path, summary, run_figures)
    except KeyboardInterrupt:  # the report can be made later from the kept results
        summary["interrupted"] = True


def refuted(summary: dict[str, Any]) -> bool:
    """Returns True if Spark found a violation, or disagrees with Python."""
    spark = summary["spark"]
    return spark["agrees_with_python"] is False or any(check["found"] for check in spark["checks"])
