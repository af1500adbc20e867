"""Recipe sections -> objects. The only place where configuration meets algorithms."""

from __future__ import annotations

from typing import Any

from goldimask.backbones import Backbone, load_backbone
from goldimask.config import BackboneSection, MethodSection
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
    """The backbone of a recipe."""
    return load_backbone(
        section.path or section.name,
        dtype=None if section.dtype == "auto" else section.dtype,
        device=device,
        attn=section.attn,
        quant=section.quant,
        kernel=section.kernel,
        attention_rows=section.attention_rows,
    )
