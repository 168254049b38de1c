"""Servers with faults whose cost is measured by removal: the judge of the probe's verdicts.

The way of a seed: ``kind`` reads the faults, ``draw`` makes a server of them, ``drive`` plays its clients, ``bare``
measures what each removal saves, ``probed`` asks the probe, ``judge`` compares the two, ``tables`` writes the result.
"""
