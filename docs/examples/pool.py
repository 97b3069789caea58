"""A pool of processes works through a list of files, and shares its results in one store.

    python pool.py STORE FILE…

It works with each start method of multiprocessing: a forked process uses `db` as it is, a spawned one imports this
module, and so opens the store itself. Kill it and start it again: what is done stays done.
"""

import multiprocessing
import sys
from collections import Counter
from pathlib import Path

import planstep

db = planstep.open(sys.argv[1])
db.create_table("words", exist_ok=True)
db.create_table("files", exist_ok=True)


def count_words(path: str) -> int:
    words = Counter(Path(path).read_text().split())

    def note(tx: planstep.Transaction) -> int:
        if tx.get("files", path) is not None:
            return 0
        for word, number in words.items():
            tx.add("words", word, number)
        tx.put("files", path, words.total())
        return words.total()

    return db.run(note)


if __name__ == "__main__":
    with multiprocessing.Pool(4) as pool:
        print(sum(pool.imap_unordered(count_words, sys.argv[2:])), "words are new")
    print(*sorted(db.table("words").scan(), key=lambda row: (-row[1], row[0]))[:3])
