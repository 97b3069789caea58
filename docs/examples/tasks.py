"""Celery tasks that share one store, and count each task once, however often Celery delivers it.

    pip install planstep celery
    PLANSTEP_STORE=shop.planstep celery --workdir docs/examples -A tasks worker --concurrency 4

The worker opens the store where it imports this module, and owns it. The processes of its pool are forks of it, use
`db` as it is, and attach. The broker is a folder here, so that there is no server to run; any broker does.
"""

import os
from pathlib import Path

from celery import Celery

import planstep

STORE = os.environ.get("PLANSTEP_STORE", "shop.planstep")

db = planstep.open(STORE)
db.create_topic("thumbnails", partitions=4, format="json", exist_ok=True)
db.create_table("done", exist_ok=True)
db.create_table("bytes", exist_ok=True)

broker = Path(STORE + ".broker")
for name in "in", "processed", "control":
    (broker / name).mkdir(parents=True, exist_ok=True)

app = Celery("tasks", broker="filesystem://")
app.conf.update(
    broker_transport_options={
        "data_folder_in": str(broker / "in"),
        "data_folder_out": str(broker / "in"),
        "processed_folder": str(broker / "processed"),
        "control_folder": str(broker / "control"),
    },
    task_acks_late=True,  # a task is delivered again when its process is killed
    task_reject_on_worker_lost=True,
)


@app.task(bind=True, autoretry_for=(planstep.PlanstepError,), max_retries=None)
def thumbnail(self, image: str, size: int) -> None:
    def note(tx: planstep.Transaction) -> None:
        if (
            tx.get("done", self.request.id) is None
        ):  # Celery keeps a task's id when it delivers again
            tx.put("done", self.request.id, os.getpid())
            tx.write("thumbnails", {"image": image}, key=image)
            tx.add("bytes", image[:1], size)

    db.run(note)
