"""Shows a training's progress: one line per epoch, and on a terminal a bar for the epoch that runs."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column

from adacalib.model.epoch_checkpoints import EpochRecord


class Progress:
    """Progress of one training; a context manager. Prints nothing where it is not visible (ranks other than 0)."""

    def __init__(self, what: str, epochs: int, *, visible: bool, console: Console | None = None) -> None:
        self.what, self.epochs, self.visible = what, epochs, visible
        self.console = console or Console(soft_wrap=True, highlight=False)
        self._bars = Bars(
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=None),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[figures]}", table_column=Column(no_wrap=True)),
            expand=True,
            transient=True,  # the epoch's line stays instead
            console=self.console,
            disable=not (visible and self.console.is_terminal),
        )

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()

    def start_epoch(self, epoch: int, steps: int) -> None:
        """Begins an epoch of so many steps."""
        self._task = self._bars.add_task(f"{self.what} {epoch}/{self.epochs}", total=steps, figures="")

    def step(self, loss: float, rows: int, seconds: float, waiting_share: float) -> None:
        """One step done.

        Args:
            loss: mean loss of the step's rows.
            rows: of the epoch so far, over all ranks.
            seconds: of the epoch so far.
            waiting_share: share of the seconds spent waiting for data.
        """
        figures = f"loss {loss:.4f} {rows / seconds:,.0f}/s {waiting_share:.0%} waiting"
        self._bars.update(self._task, advance=1, figures=figures)

    def end_epoch(self, record: EpochRecord) -> None:
        """An epoch done: its line, in place of the bar."""
        if self.visible:
            if self.console.is_terminal:
                self._bars.remove_task(self._task)
            held_out = "" if record.held_out_loss is None else f", held-out loss {record.held_out_loss:.5f}"
            self.console.print(
                f"{self.what}: epoch {record.epoch}/{self.epochs}, loss {record.training_loss:.5f}{held_out}, "
                f"{record.rows:,} rows, {record.rows / record.seconds:,.0f} samples/s, "
                f"{record.waiting_share:.0%} waiting for data"
            )
