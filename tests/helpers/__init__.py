"""Shared by several tests: tiny runs, synthetic records, and the project's root."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
