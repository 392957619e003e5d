"""The progress bar, with the checkpoint timer and the check for stop signals."""

import errno
import sys
import time

from tqdm import tqdm

from varrnn.training.loggers import Logger
from varrnn.training.signals import Interrupts

FIRST_ETA, NEXT_ETA = 60.0, 600.0  # seconds between two lines with the remaining time, without a terminal


class RunMonitor:
    """One progress bar for a whole run: work done, rate, remaining time, and a status text.

    Without a terminal it writes lines, some of them with the remaining time. It also holds the run's logger.
    """

    def __init__(self, interrupts: Interrupts, shown: bool, save_minutes: float, resume_message: str) -> None:
        self.interrupts, self.save_minutes, self.resume_message = interrupts, save_minutes, resume_message
        self.shown = shown and sys.stderr.isatty()
        self.prints_eta = shown and not self.shown
        self.saved_at = time.monotonic()
        self.bar: tqdm | None = None
        self.logger = Logger()
        self._total = self._done = self._new = 0
        self._started = self._eta_due = 0.0

    def __enter__(self) -> "RunMonitor":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.logger.close()

    def start(self, total: int, done: int = 0, label: str = "") -> None:
        """Start counting up to `total`."""
        self.close()
        self._total, self._done, self._new, self._started = total, done, 0, self.seconds()
        self._eta_due = self._started + FIRST_ETA
        self.bar = tqdm(
            total=total,
            initial=done,
            desc=label,
            unit="word",
            unit_scale=True,
            dynamic_ncols=True,
            disable=not self.shown,
            mininterval=0.5,
            leave=False,
        )

    def close(self) -> None:
        """Remove the bar from the screen."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def advance(self, count: int) -> None:
        """Count work; without a terminal, sometimes print the remaining time."""
        self.interrupts.clock.tick()
        if self.bar is not None:
            self.bar.update(count)
        self._done, self._new = self._done + count, self._new + count
        if self.prints_eta and self.seconds() >= self._eta_due:
            self._eta_due = self.seconds() + NEXT_ETA
            self.log(self._eta())

    def _eta(self) -> str:
        """The share of work done, and the remaining time at the rate since this start."""
        rate = self._new / max(self.seconds() - self._started, 1e-9)
        left = max(0, self._total - self._done) / max(rate, 1e-9)
        time_left = f"{left / 3600:.1f} hours" if left >= 5400 else f"{left / 60:.0f} minutes"
        return f"  {self._done / max(self._total, 1):.0%} done, about {time_left} left ({rate:,.0f} words/s)"

    def set_status(self, text: str) -> None:
        """Set the status text after the bar."""
        if self.bar is not None:
            self.bar.set_postfix_str(text, refresh=False)

    def log(self, text: str) -> None:
        """Print a permanent line; a closed terminal or pipe does not end the run, since log.csv has the metrics too."""
        try:
            tqdm.write(text, file=sys.stdout)
            sys.stdout.flush()
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EPIPE):
                raise

    def seconds(self) -> float:
        """Seconds without the time in which this process was suspended."""
        return self.interrupts.clock.seconds()

    def save_due(self) -> bool:
        """Whether a checkpoint is due; True restarts the timer."""
        due = self.interrupts.signum is not None or time.monotonic() - self.saved_at >= 60 * self.save_minutes
        if due:
            self.saved_at = time.monotonic()
        return due

    def stop_if_requested(self) -> None:
        """Stop if a signal was received; call this after saving."""
        if self.interrupts.signum is not None:
            self.close()
            self.interrupts.stop(self.resume_message)
