"""One self-contained HTML file: template, style, script, plotly and the content."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from varrnn.errors import UserError


def chart_library() -> str:
    """plotly's script, from the Python package."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UserError("the charts need plotly: pip install 'varrnn[report]'") from error
    return get_plotlyjs()


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def render(content: Mapping[str, Any], library: str | None = None) -> str:
    """The whole page. Its content security policy forbids network requests."""
    tree = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    parts = {
        "style": _asset("page.css"),
        "library": (chart_library() if library is None else library).replace("</script", "<\\/script"),
        "content": tree.replace("<", "\\u003c"),  # so that a word such as </script> does not end the script
        "script": _asset("page.js"),
    }
    return re.sub(r"/\*(\w+)\*/", lambda found: parts[found[1]], _asset("page.html"))
