"""Monitor a deployed ensemble: tell when incoming data no longer look like validation data. No torch.

Example:
    >>> monitor = DriftMonitor(reference=[0.1, 0.2, 0.3, 0.4] * 50, score="entropy")
    >>> monitor.add([0.15, 0.35])
    >>> monitor.alarm is None
    True
"""

from pluribus.monitoring.drift import Alarm, DriftMonitor

__all__ = ["Alarm", "DriftMonitor"]
