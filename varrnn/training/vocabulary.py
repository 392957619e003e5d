"""vocabulary.json in a run's folder: the vocabulary and scaling that preprocess new texts as in training."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from varrnn.data.corpus import EOS, UNK
from varrnn.errors import UserError
from varrnn.tasks.base import Task
from varrnn.training import checkpoint

VOCABULARY = "vocabulary.json"


def save_vocabulary(task: Task, folder: Path) -> None:
    """Write vocabulary.json, so that a trained model can read new texts without its corpus."""
    content, file = json.dumps(task.vocabulary(), ensure_ascii=False) + "\n", folder / VOCABULARY
    if not file.is_file() or file.read_bytes() != content.encode():
        checkpoint.write_text(file, content)


def read_vocabulary(folder: Path) -> dict[str, Any] | None:
    """The content of vocabulary.json, or None for a run from before it existed."""
    file = folder / VOCABULARY
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        words = content["words"]
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(f"{file}: not a vocabulary ({type(error).__name__}); remove it to rebuild it") from error
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UserError(f"{file}: not a vocabulary (words must be a list of strings); remove it to rebuild it")
    return content


@dataclass
class Vocabulary:
    """The words of a language model; a word's id is its index in the list."""

    words: list[str]

    def __post_init__(self) -> None:
        self.ids = {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    @property
    def end(self) -> int | None:
        """The id of <eos>, if the corpus has it."""
        return self.ids.get(EOS)

    @property
    def unknown(self) -> int | None:
        """The id of <unk>, if the corpus has it."""
        return self.ids.get(UNK)

    def unknown_words(self, words: list[str]) -> list[str]:
        """The words that are not in the vocabulary, each once."""
        return list(dict.fromkeys(word for word in words if word not in self.ids))

    def encode(self, words: list[str]) -> list[int]:
        """The ids of words; unknown words become <unk>, or raise if the vocabulary has no <unk>."""
        missing = self.unknown_words(words)
        if missing and self.unknown is None:
            shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
            raise UserError(f"{shown}: not in the vocabulary of {len(self)} words, which has no {UNK}; use other words")
        return [self.ids.get(word, self.unknown or 0) for word in words]
