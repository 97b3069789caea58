"""A Flask service under gunicorn, whose workers share one store.

    pip install planstep flask gunicorn
    PLANSTEP_STORE=shop.planstep gunicorn --workers 4 --chdir docs/examples wsgi:app
    PLANSTEP_STORE=shop.planstep gunicorn --workers 4 --preload --chdir docs/examples wsgi:app

    curl -X POST 'localhost:8000/votes/tea?key=1'

The store is opened where the module is imported. Without --preload that is in each worker: one of them owns the
store, the others attach. With --preload it is in the master, before it forks: the master owns the store, is never
busy, and the workers use `db` as it is.
"""

import os

from flask import Flask, Response, jsonify, request

import planstep

db = planstep.open(os.environ.get("PLANSTEP_STORE", "shop.planstep"))
db.create_topic("votes", partitions=4, format="json", exist_ok=True)
db.create_table("totals", exist_ok=True)
db.create_table("seen", exist_ok=True)

app = Flask(__name__)


@app.post("/votes/<name>")
def vote(name: str) -> Response:
    key = request.args["key"]

    def count(tx: planstep.Transaction) -> bool:
        if tx.get("seen", key) is not None:
            return False
        tx.put("seen", key, name)
        tx.add("totals", name, 1)
        tx.write("votes", {"name": name, "key": key}, key=name)
        return True

    return jsonify(counted=db.run(count))


@app.get("/totals")
def totals() -> Response:
    return jsonify(dict(db.table("totals").scan()))


@app.get("/worker")
def worker() -> Response:
    return jsonify(process=os.getpid(), owner=db.owner)


@app.errorhandler(planstep.PlanstepError)
def refused(error: planstep.PlanstepError) -> tuple[Response, int]:
    return jsonify(error=str(error)), 503  # ask again with the same key
