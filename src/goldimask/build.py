"""Recipe sections -> objects. The only place where configuration meets algorithms."""

from __future__ import annotations

from typing import Any

from goldimask.backbones import Backbone, find_model, load_backbone
from goldimask.config import BackboneSection, MethodSection
from goldimask.errors import GoldimaskError
from goldimask.methods import Method, method


def build_method(section: MethodSection) -> Method:
    """The method of a recipe; a key that is left out keeps the preset's value."""
    options: dict[str, Any] = {
        "attention_layer": section.attention_layer,
        "probe_mode": section.probe.mode,
        "protocol": "lift" if section.protocol == "lift" else None,
    }
    return method(
        section.preset,
        noise=section.noise,
        select=section.select,
        weigh=section.weigh,
        **{k: v for k, v in options.items() if v is not None},
    )


def build_backbone(section: BackboneSection, device: str | None = None) -> Backbone:
    """The backbone of a recipe; one with an adapter is refused, for it could not be saved."""
    name = section.path or section.name
    if find_model(name).adapter is not None:
        raise GoldimaskError(
            f"backbone.path: {name} is a run with an adapter; merge it first (goldimask merge)"
        )
    return load_backbone(
        name,
        dtype=None if section.dtype == "auto" else section.dtype,
        device=device,
        attn=section.attn,
        quant=section.quant,
        kernel=section.kernel,
        attention_rows=section.attention_rows,
    )
