"""Archives: the evidence of very many tasks in one file, written and read as a stream.

Neither writing nor reading ever holds more than a few blocks of tasks in memory, besides some
dozen bytes for every task, to find it by its id. The format is described in
:mod:`headstart.storage.archive.layout`.

>>> import tempfile
>>> from headstart import Evidence
>>> folder = tempfile.TemporaryDirectory()
>>> path = folder.name + "/shops.evidence"
>>> shops = ((f"shop {n}", Evidence.of([[1.0, n]], [2.0])) for n in range(5))
>>> write_evidence(path, shops, dim=2)
5
>>> for ids, evidence in read_evidence(path, batch=3):
...     print(ids, evidence.moment.tolist())
['shop 0', 'shop 1', 'shop 2'] [[2.0, 0.0], [2.0, 2.0], [2.0, 4.0]]
['shop 3', 'shop 4'] [[2.0, 6.0], [2.0, 8.0]]
>>> folder.cleanup()
"""

from headstart.storage.archive.merging import merge_evidence
from headstart.storage.archive.reading import EvidenceFile, read_evidence
from headstart.storage.archive.writing import write_evidence

__all__ = ["EvidenceFile", "merge_evidence", "read_evidence", "write_evidence"]
