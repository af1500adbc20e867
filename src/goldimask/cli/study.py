"""`goldimask study ...`: measurements of what models and methods do."""

from __future__ import annotations

import typer

from goldimask.cli.app import app

study_app = typer.Typer(no_args_is_help=True, help="Measure what models and methods do.")
app.add_typer(study_app, name="study")
