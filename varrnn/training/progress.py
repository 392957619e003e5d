"""The progress bar, which also knows when to save and whether somebody asked to stop."""

import errno
import sys
import time

from tqdm import tqdm

from varrnn.training.signals import Interrupts


class RunMonitor:
    """One bar for a whole run: done, rate, time left, and a few words. Without a terminal only lines are written."""

    def __init__(self, interrupts: Interrupts, shown: bool, save_minutes: float, resume_message: str) -> None:
        self.interrupts, self.save_minutes, self.resume_message = interrupts, save_minutes, resume_message
        self.shown = shown and sys.stderr.isatty()
        self.saved_at = time.monotonic()
        self.bar: tqdm | None = None

    def __enter__(self) -> "RunMonitor":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, total: int, done: int = 0, label: str = "") -> None:
        """Begin to count up to `total`."""
        self.close()
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
        """Take the bar off the screen."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def advance(self, count: int) -> None:
        """Count."""
        self.interrupts.clock.tick()
        if self.bar is not None:
            self.bar.update(count)

    def set_status(self, text: str) -> None:
        """Words behind the bar."""
        if self.bar is not None:
            self.bar.set_postfix_str(text, refresh=False)

    def log(self, text: str) -> None:
        """A line that stays. A terminal that was closed takes no run along: its numbers are in log.csv as well."""
        try:
            tqdm.write(text, file=sys.stdout)
            sys.stdout.flush()
        except OSError as error:
            if error.errno != errno.EIO:
                raise

    def seconds(self) -> float:
        """The time that passes while this process is not suspended."""
        return self.interrupts.clock.seconds()

    def save_due(self) -> bool:
        """Is it time for a checkpoint? Saying yes starts the clock anew."""
        due = self.interrupts.signum is not None or time.monotonic() - self.saved_at >= 60 * self.save_minutes
        if due:
            self.saved_at = time.monotonic()
        return due

    def stop_if_requested(self) -> None:
        """Stop here if a signal came; everything must be saved by now."""
        if self.interrupts.signum is not None:
            self.close()
            self.interrupts.stop(self.resume_message)
